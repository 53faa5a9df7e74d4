"""Where two nodes of one machine meet to hand a guest over.

Nothing in here outlives the process, nor need it: whoever comes back says again what it has said.
Between machines the same few words would go over a wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from livevirt.qemu.machine import Machine


@dataclass(frozen=True, slots=True)
class Offer:
    """A guest that is to leave: the machine that could take it, and whether it stands still."""

    machine: Machine
    paused: bool = False


class Handovers:
    """The guests on offer and the places that wait for one, by the uid of the migration."""

    def __init__(self) -> None:
        self._offers: dict[str, Offer] = {}
        self._sockets: dict[str, str] = {}
        self._waiting: dict[str, dict[str, Callable[[], None]]] = {}
        self._settled: dict[str, bool] = {}

    def offer(self, uid: str, offer: Offer) -> None:
        """Say what machine could take the guest."""
        self._offers[uid] = offer
        self._call(uid)

    def offered(self, uid: str) -> Offer | None:
        """Return what is on offer, None if nothing is yet."""
        return self._offers.get(uid)

    def listen(self, uid: str, socket: str) -> None:
        """Say where the guest is waited for."""
        self._sockets[uid] = socket
        self._call(uid)

    def socket(self, uid: str) -> str | None:
        """Return where the guest is waited for, None if nobody does yet."""
        return self._sockets.get(uid)

    def call(self, uid: str, who: str, wake: Callable[[], None]) -> None:
        """Have somebody woken whenever the other side says something."""
        self._waiting.setdefault(uid, {})[who] = wake

    def settle(self, uid: str, *, came: bool) -> None:
        """Say for good, as the nodes stop, whether the guest has come."""
        self._settled[uid] = came

    def settled(self, uid: str) -> bool | None:
        """Return whether the guest has come, None if that is not decided."""
        return self._settled.get(uid)

    def forget(self, uid: str) -> None:
        """Forget a handover that is over."""
        for known in (self._offers, self._sockets, self._waiting, self._settled):
            known.pop(uid, None)

    def _call(self, uid: str) -> None:
        for wake in tuple(self._waiting.get(uid, {}).values()):
            wake()
