"""The notes on disk about a pod's migrations. Each is a file in the pod's directory."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from livevirt.files import durable


class Departure(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The note that a guest is being sent to another QEMU."""

    uid: str  # of the migration
    stopped: bool = False  # by the agent, because the guest wrote faster than it was sent
    paused: bool = False  # the guest did not run before, and must not run if it stays


class MigrationNotes:
    """One pod's notes. Every method can be repeated."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arrived = folder / "arrived"
        self._left = folder / "left"
        self._departure = folder / "departure.json"

    @property
    def arrived(self) -> bool:
        """Whether an incoming guest has arrived and may run here."""
        return self._arrived.exists()

    def write_arrived(self) -> None:
        """Decide, without yielding to the event loop, that the guest has arrived.

        The note survives the agent at once. `sync` makes it survive the machine.
        """
        self._arrived.touch()

    def sync(self) -> None:
        """Make `write_arrived` durable."""
        durable.sync(self._folder)

    @property
    def left(self) -> bool:
        """Whether the guest is known to run on another node."""
        return self._left.exists()

    def write_left(self) -> None:
        """Record durably that the guest runs on another node."""
        durable.write(self._left, b"")

    def write_departure(self, departure: Departure) -> None:
        """Record durably that the guest is being sent."""
        durable.write(self._departure, msgspec.json.encode(departure))

    def read_departure(self) -> Departure | None:
        """Return the note that the guest is being sent, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self._departure.read_bytes(), type=Departure)
        return None

    def remove_departure(self) -> None:
        """Remove that note: the guest stays."""
        self._departure.unlink(missing_ok=True)
