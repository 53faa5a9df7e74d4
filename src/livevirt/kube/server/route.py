"""URL paths: which resource a request is about."""

from __future__ import annotations

from typing import NamedTuple

from livevirt.errors import NotFound
from livevirt.kube.objects import refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import ActionPath


class Target(NamedTuple):
    """What a resource path names."""

    kind: Kind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find(registry: Registry, parts: list[str]) -> Target | ActionPath | None:
    """Return what the path below `/api` or `/apis` names; None for paths that are no resources.

    Raises NotFound for a resource we do not have.
    """
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            if registry.actions is not None and group == registry.actions.group:
                return _action(rest)
        case _:
            return None
    match rest:
        case ["namespaces", namespace, plural, *more] if plural not in ("status", "finalize"):
            kind = _kind(registry, group, version, plural)
            if not kind.namespaced or len(more) > 2:
                raise refusals.no_such_path()
            return Target(kind, version, namespace, *more)
        case [plural, *more]:
            kind = _kind(registry, group, version, plural)
            if len(more) > 2 or (more and kind.namespaced):
                raise refusals.no_such_path()
            return Target(kind, version, "", *more)
    raise refusals.no_such_path()


def _kind(registry: Registry, group: str, version: str, plural: str) -> Kind:
    kind = registry.at(group, version, plural)
    if kind is None:
        raise refusals.no_such_path()
    return kind


def _action(rest: list[str]) -> ActionPath:
    match rest:
        case ["namespaces", namespace, resource, name, *action] if action:
            return ActionPath(resource, namespace, name, "/".join(action))
        case ["namespaces", namespace, resource]:  # expand-vm-spec
            return ActionPath("", namespace, "", resource)
        case [action]:
            return ActionPath("", "", "", action)
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
