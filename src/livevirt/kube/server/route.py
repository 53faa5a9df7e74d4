"""URL paths: which resource a request is about."""

from __future__ import annotations

from typing import NamedTuple

from livevirt.errors import NotFound
from livevirt.kube.objects import core, refusals
from livevirt.kube.objects.kind import Kind

ACTIONS_GROUP = "subresources.kubevirt.io"


class Target(NamedTuple):
    """What a resource path names."""

    kind: Kind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Action(NamedTuple):
    """A verb of subresources.kubevirt.io, such as start, on an object."""

    resource: str  # virtualmachines or virtualmachineinstances; "" for the group's own paths
    namespace: str
    name: str
    action: str  # may hold slashes: "portforward/22/tcp"


def find(parts: list[str]) -> Target | Action | None:
    """Return what the path below `/api` or `/apis` names; None for paths that are no resources.

    Raises NotFound for a resource we do not have.
    """
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            if group == ACTIONS_GROUP:
                return _action(rest)
        case _:
            return None
    match rest:
        case ["namespaces", namespace, plural, *more] if plural not in ("status", "finalize"):
            kind = _kind(group, version, plural)
            if not kind.namespaced or len(more) > 2:
                raise refusals.no_such_path()
            return Target(kind, version, namespace, *more)
        case [plural, *more]:
            kind = _kind(group, version, plural)
            if len(more) > 2 or (more and kind.namespaced):
                raise refusals.no_such_path()
            return Target(kind, version, "", *more)
    raise refusals.no_such_path()


def _kind(group: str, version: str, plural: str) -> Kind:
    kind = core.BY_PATH.get((group, version, plural))
    if kind is None:
        raise refusals.no_such_path()
    return kind


def _action(rest: list[str]) -> Action:
    match rest:
        case ["namespaces", namespace, resource, name, *action] if action:
            return Action(resource, namespace, name, "/".join(action))
        case ["namespaces", namespace, resource]:  # expand-vm-spec
            return Action("", namespace, "", resource)
        case [action]:
            return Action("", "", "", action)
    raise NotFound("the server could not find the requested resource")


def verb_of(method: str, target: Target, watch: bool) -> str:
    """Return the Kubernetes verb of an HTTP method on a target."""
    named = bool(target.name)
    match method:
        case "GET" | "HEAD":
            if named:
                return "get"
            return "watch" if watch else "list"
        case "POST" if not named or target.subresource:
            return "create"
        case "PUT" if named:
            return "update"
        case "PATCH" if named:
            return "patch"
        case "DELETE":
            return "delete" if named else "deletecollection"
    raise refusals.method_not_allowed()
