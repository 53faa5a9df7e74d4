"""A resource held in memory: for the few kinds that every request must look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from livevirt.kube.store.records import Event, Key, Stored


class Held(NamedTuple):
    """One object of a mirror; the decoded object is shared, never change it."""

    key: Key
    revision: int
    object: Any


class Mirror:
    """The objects of one resource, exactly as last published, at the cost of a dict look-up."""

    def __init__(self, stored: Iterable[Stored]) -> None:
        self._held: dict[str, dict[str, Held]] = {}
        for item in stored:
            self._put(Held(item.key, item.revision, msgspec.json.decode(item.value)))

    def get(self, namespace: str, name: str) -> Held | None:
        """Return one object, or None."""
        return self._held.get(namespace, {}).get(name)

    def list(self, namespace: str | None = None) -> list[Held]:
        """Return the objects of a namespace, or of all, ordered by namespace and name."""
        if namespace is None:
            spaces = [space for _, space in sorted(self._held.items())]
        elif space := self._held.get(namespace):
            spaces = [space]
        else:
            return []
        return [held for space in spaces for _, held in sorted(space.items())]

    def offer(self, event: Event) -> None:
        """Take over one published change."""
        if event.type == "DELETED":
            space = self._held.get(event.key.namespace, {})
            space.pop(event.key.name, None)
            if not space:
                self._held.pop(event.key.namespace, None)
        else:
            self._put(Held(event.key, event.revision, event.object))

    def _put(self, held: Held) -> None:
        self._held.setdefault(held.key.namespace, {})[held.key.name] = held
