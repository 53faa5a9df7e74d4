"""One change as watchers see it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from livevirt.kube.store.key import Key

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
        """The value as JSON objects, decoded by the first who asks."""
        if self._object is None:
            self._object = _decode(self.value)
        return self._object

    @property
    def previous_object(self) -> Any:
        """The value before the change as JSON objects; None for ADDED."""
        if self._previous_object is None and self.previous is not None:
            self._previous_object = _decode(self.previous)
        return self._previous_object

    def forget(self) -> None:
        """Let go of the decoded objects; they take many times the memory of the bytes."""
        self._object = self._previous_object = None

    def __repr__(self) -> str:
        return f"<{self.type} {self.key} at {self.revision}>"
