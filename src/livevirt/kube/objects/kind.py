"""What a kind is: its names, versions, scope, subresources and columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from livevirt.kube.objects.schema import Type, definitions

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`, taken from the object by a JSONPath or by a named cell."""

    name: str
    path: str = ""  # a JSONPath such as `.status.phase`; empty for cells made by code
    type: str = "string"
    format: str = ""
    priority: int = 0  # 1 shows with -o wide only
    description: str = ""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource of a kind: `status`, `resize`, `binding` …"""

    name: str
    kind: str = ""  # the body's kind where it is not the object's own
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = ("get", "patch", "update")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of object; there is exactly one of these per kind."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]  # preferred first
    definition: str  # `table.Type`, or with {version} where versions differ
    storage: str = ""  # the stored version; the preferred one when empty
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    custom: bool = False  # behaves like a custom resource of a CustomResourceDefinition
    stored: bool = True  # False: answered by code, never kept (reviews, token requests)
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()  # field selectors besides metadata.name and .namespace
    tables: dict[str, str] = field(default_factory=dict)  # version → definition
    #: Converts an object whose `apiVersion` was already changed, where versions differ in fields.
    conversion: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None

    @property
    def singular(self) -> str:
        """The name kubectl takes for one of them."""
        return self.kind.lower()

    @property
    def resource(self) -> str:
        """`plural`, or `plural.group` outside the core group: its name in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def version(self) -> str:
        """The preferred version."""
        return self.versions[0]

    @property
    def stored_version(self) -> str:
        """The version objects are kept in."""
        return self.storage or self.versions[0]

    @property
    def api_version(self) -> str:
        """The preferred `apiVersion`."""
        return self.api_version_of(self.version)

    def api_version_of(self, version: str) -> str:
        """Return `group/version`, or only the version in the core group."""
        return f"{self.group}/{version}" if self.group else version

    def schema(self, version: str = "") -> Type:
        """Return the type of an object of this kind in a version."""
        return definitions()[self.tables.get(version or self.version, self.definition)]

    def as_version(self, version: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Return an object of this kind in another of its versions; the given one stays as is."""
        wanted = self.api_version_of(version)
        if obj["apiVersion"] == wanted:
            return obj
        converted = {**obj, "apiVersion": wanted}
        return converted if self.conversion is None else self.conversion(version, converted)

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource of that name, if the kind has it."""
        return next((s for s in self.subresources if s.name == name), None)

    @property
    def has_status(self) -> bool:
        """Whether `status` is a subresource."""
        return any(s.name == "status" for s in self.subresources)

    def path(
        self, namespace: str = "", name: str = "", subresource: str = "", version: str = ""
    ) -> str:
        """Return the URL path of a collection, an object or a subresource."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, version or self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)
