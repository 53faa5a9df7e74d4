"""The key of an object: its namespace and name, and how keys are read off objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
