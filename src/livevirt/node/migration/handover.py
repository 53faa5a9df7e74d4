"""Where the source and the target of a migration on one machine exchange what they need.

There is one record per migration. It is lost with the process and need not outlive it: both sides
publish their half again after a restart. Between machines the same fields would go over a wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from livevirt.qemu.machine import Machine

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
