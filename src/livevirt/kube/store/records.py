"""What the store takes and gives: keys, stored objects, pages, changes and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec


class Key(NamedTuple):
    """One object's place; `namespace` is empty for cluster-scoped resources."""

    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


class Stored(NamedTuple):
    """An object as written by the change numbered `revision`."""

    key: Key
    revision: int
    value: bytes


class Page(NamedTuple):
    """Part of a listing, in the byte order of namespace and name.

    `revision` is the snapshot the items come from; `more` is set if items follow the last one
    given, and `remaining` how many.
    """

    items: list[Stored]
    revision: int
    more: bool
    remaining: int


# ---------------------------------------------------------------- changes a caller asks for

Encode = Callable[[int], bytes]
"""Given the revision a change gets, return the bytes to store.

Called once for each attempt, while the batch is put together: it must be quick and must not wait.
What it raises, the caller of `write` gets.
"""


class Put(NamedTuple):
    """Create the object (`expected` is None), or replace the one of revision `expected`."""

    key: Key
    expected: int | None
    encode: Encode


class Delete(NamedTuple):
    """Remove the object of revision `expected`; `encode` gives its last form for watchers."""

    key: Key
    expected: int
    encode: Encode


Change = Put | Delete


# ---------------------------------------------------------------- changes as watchers see them

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_decode = msgspec.json.decode


class Event(msgspec.Struct, eq=False):
    """A committed change; shared by all watchers, so nothing in it may be altered.

    For DELETED, `value` is the object's last form, encoded for the revision of its deletion.
    """

    revision: int
    type: EventType
    key: Key
    value: bytes
    previous: bytes | None  # the value before; None for ADDED
    _object: Any = None
    _previous_object: Any = None

    @property
    def object(self) -> Any:
        """The value as JSON objects, decoded by the first who asks, without managedFields.

        Controllers do not need those, which may be the larger half of an object.
        """
        if self._object is None:
            self._object = _decode(self.value)
            if isinstance(self._object, dict) and "metadata" in self._object:
                self._object["metadata"].pop("managedFields", None)
        return self._object

    @property
    def previous_object(self) -> Any:
        """The value before the change as JSON objects; None for ADDED."""
        if self._previous_object is None and self.previous is not None:
            self._previous_object = _decode(self.previous)
        return self._previous_object

    def forget(self) -> None:
        """Drop the decoded objects; they take many times the memory of the bytes."""
        self._object = self._previous_object = None

    def __repr__(self) -> str:
        return f"<{self.type} {self.key} at {self.revision}>"
