"""Objects by key and by index; every write returns what it changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object


class Key(NamedTuple):
    """Names one object of a kind. The namespace is empty for kinds that have none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


ToKeys = Callable[[Object], Iterable[Key]]


def key_of(obj: Object) -> Key:
    """Return the object's own key."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace") or "", metadata["name"])


def own_key(obj: Object) -> tuple[Key]:
    """Map an object to itself."""
    return (key_of(obj),)


def owner_key(kind: Kind) -> ToKeys:
    """Return a mapping from an object to the one of that kind that controls it, if any."""

    def controlling(obj: Object) -> Iterable[Key]:
        metadata = obj["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            if owner.get("controller") and (group, owner.get("kind")) == (kind.group, kind.kind):
                namespace = (metadata.get("namespace") or "") if kind.namespaced else ""
                return (Key(namespace, owner["name"]),)
        return ()

    return controlling


log = logging.getLogger(__name__)

Objects = list[Object]
IndexOf = Callable[[Object], Iterable[Hashable]]


class Change(NamedTuple):
    """What happened to one object: `old` is None when it is new, `new` when it is gone."""

    key: Key
    old: Object | None
    new: Object | None


Changes = list[Change]


class Cache:
    """Holds the objects it is given, not copies: never change one."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._indexers: dict[str, IndexOf] = {}
        # Keys are kept in dicts, not sets, so that an index is read in a stable order.
        self._indexes: dict[str, dict[Hashable, dict[Key, None]]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def index(self, name: str, values: IndexOf) -> None:
        """Keep an index of the values the function finds in an object."""
        if name in self._indexers:
            raise ValueError(f"there is an index {name!r} already")
        self._indexers[name] = values
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            self._enter(name, key, obj)

    def drop_index(self, name: str) -> None:
        """Remove an index."""
        del self._indexers[name], self._indexes[name]

    def get(self, key: Key) -> Object | None:
        """Return the object of that key, if there is one."""
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Objects:
        """Return the objects of a namespace, or all of them."""
        return [
            obj for key, obj in self._objects.items() if not namespace or key.namespace == namespace
        ]

    def by(self, index: str, value: Hashable) -> Objects:
        """Return the objects in which the index finds the value."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def put(self, obj: Object) -> Changes:
        """Hold the object in place of the one of its name.

        One that has another uid is another object: the old one is then gone and this one new.
        """
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None:
            self._add(key, obj)
            return [Change(key, None, obj)]
        if _same_version(old, obj):
            return []
        self._drop(key)
        self._add(key, obj)
        if old["metadata"].get("uid") != obj["metadata"].get("uid"):
            return [Change(key, old, None), Change(key, None, obj)]
        return [Change(key, old, obj)]

    def remove(self, obj: Object) -> Changes:
        """Hold the object no longer; `old` of the change is what is given here."""
        key = key_of(obj)
        if key not in self._objects:
            return []
        self._drop(key)
        return [Change(key, obj, None)]

    def replace(self, objects: Iterable[Object]) -> Changes:
        """Hold exactly these objects; what is missing among them is gone."""
        new = {key_of(obj): obj for obj in objects}
        changes: Changes = []
        for obj in [obj for key, obj in self._objects.items() if key not in new]:
            changes += self.remove(obj)
        for obj in new.values():
            changes += self.put(obj)
        return changes

    def _add(self, key: Key, obj: Object) -> None:
        self._objects[key] = obj
        for name in self._indexers:
            self._enter(name, key, obj)

    def _drop(self, key: Key) -> None:
        obj = self._objects.pop(key)
        for name, index in self._indexes.items():
            for value in self._values(name, obj):
                keys = index.get(value, {})
                keys.pop(key, None)
                if not keys:
                    index.pop(value, None)

    def _enter(self, name: str, key: Key, obj: Object) -> None:
        for value in self._values(name, obj):
            self._indexes[name].setdefault(value, {})[key] = None

    def _values(self, name: str, obj: Object) -> set[Hashable]:
        try:
            return set(self._indexers[name](obj))
        except Exception:  # one odd object must not cost us all the others
            log.exception("index failed", extra={"index": name, "object": str(key_of(obj))})
            return set()


def _same_version(a: Object, b: Object) -> bool:
    one, other = a["metadata"], b["metadata"]
    version = one.get("resourceVersion")
    return bool(version) and version == other.get("resourceVersion")
