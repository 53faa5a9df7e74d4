"""What one server serves: its kinds, and the group of actions that stores nothing.

The composition root builds one `Registry` and hands it to discovery, routing, OpenAPI and the
controllers that follow every kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object


@dataclass(frozen=True, slots=True)
class Action:
    """One verb of an action group, such as `virtualmachines/start`.

    `verb` is what a role grants: GET is get, PUT update, POST create.
    """

    resource: str  # plural of the kind it belongs to; empty for one of the namespace itself
    name: str
    verb: str
    kind: str = ""  # what the body or the response is, where that is a kind
    definition: str = ""  # `table.Type` of that kind, where it has a schema

    @property
    def path(self) -> str:
        """Its name in discovery and roles, such as `virtualmachines/start`."""
        return f"{self.resource}/{self.name}" if self.resource else self.name


@dataclass(frozen=True, slots=True)
class ActionGroup:
    """An API group whose paths do something and store nothing."""

    group: str
    versions: tuple[str, ...]
    actions: tuple[Action, ...]

    def has(self, resource: str, name: str) -> bool:
        """Return whether there is an action of that resource and name."""
        return any(each.resource == resource and each.name == name for each in self.actions)


class Registry:
    """The kinds of one server, found by path and by name."""

    def __init__(self, kinds: tuple[Kind, ...], actions: ActionGroup | None = None) -> None:
        self.kinds = kinds
        self.actions = actions
        self._by_path = {
            (kind.group, version, kind.plural): kind for kind in kinds for version in kind.versions
        }
        self._by_name = {(kind.group, kind.kind): kind for kind in kinds}
        #: Kinds whose objects lie in the store, by resource. Newer events are a view of core ones.
        self.stored = {k.resource: k for k in kinds if k.stored and k is not core.EVENT_VIEW}

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served at a path, or None."""
        return self._by_path.get((group, version, plural))

    def groups(self) -> dict[str, list[str]]:
        """Return each group of kinds and its versions, the preferred one first, core as ""."""
        found: dict[str, list[str]] = {}
        for kind in self.kinds:
            versions = found.setdefault(kind.group, [])
            versions += [v for v in kind.versions if v not in versions]
        return found

    def of(self, group: str, version: str) -> list[Kind]:
        """Return the kinds of a group in a version."""
        return [k for k in self.kinds if k.group == group and version in k.versions]

    def of_object(self, obj: Object) -> Kind | None:
        """Return the kind an object claims to be, if it is served in that version."""
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        kind = self._by_name.get((group, str(obj.get("kind", ""))))
        return kind if kind is not None and version in kind.versions else None
