"""Where two nodes of one machine meet to hand a guest over, and what each notes on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from livevirt.files import durable
from livevirt.qemu.machine import Machine


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


Party = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A guest that is to move: the machine that can receive it, and whether it is paused."""

    machine: Machine
    paused: bool = False


@dataclass(slots=True)
class Handover:
    """What both sides of one migration have published so far."""

    offer: Offer | None = None  # by the source
    socket: str = ""  # by the target: where it listens
    arrived: bool | None = None  # by a target that stops: the final answer
    subscribers: dict[Party, Callable[[], None]] = field(default_factory=dict)


class Handovers:
    """The handovers of one machine, by the uid of the migration."""

    def __init__(self) -> None:
        self._records: dict[str, Handover] = {}

    def get(self, uid: str) -> Handover:
        """Return what was published about a migration; change it by the methods below only."""
        return self._records.get(uid) or Handover()

    def subscribe(self, uid: str, party: Party, wake: Callable[[], None]) -> None:
        """Call `wake` whenever something is published, in place of that party's earlier one."""
        self._record(uid).subscribers[party] = wake

    def offer(self, uid: str, offer: Offer) -> None:
        """Publish which machine can receive the guest."""
        self._record(uid).offer = offer
        self._notify(uid)

    def listen(self, uid: str, socket: str) -> None:
        """Publish where the target listens."""
        self._record(uid).socket = socket
        self._notify(uid)

    def settle(self, uid: str, *, arrived: bool) -> None:
        """Publish, while the agents stop, whether the guest has arrived; this does not change."""
        self._record(uid).arrived = arrived

    def remove(self, uid: str) -> None:
        """Remove what is known about a migration that has ended."""
        self._records.pop(uid, None)

    def _record(self, uid: str) -> Handover:
        return self._records.setdefault(uid, Handover())

    def _notify(self, uid: str) -> None:
        for wake in tuple(self._record(uid).subscribers.values()):
            wake()
