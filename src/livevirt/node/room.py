"""Room for CPUs in QEMU's cache of translated code, looked for or made in good time.

To ask takes QEMU some 20 ms, and to make room, by keeping the guest busy until the cache is full
and emptied, takes seconds. So both go on beside everything else: begin as soon as a CPU is likely
to be plugged, and ask for a place when it is. What was found is good for a moment only, since a
running guest takes more all the time.
"""

from __future__ import annotations

import asyncio
import time

from livevirt.node.guest import Guest
from livevirt.qemu.errors import NotNow, QmpError

FRESH_SECONDS = 0.1  # in which a CPU translates far less than the regions kept in reserve
_WAIT_SECONDS = 0.25  # for QEMU's answer; if it takes longer, room is being made
_PAUSE_SECONDS = 1.0  # between questions while nobody in the guest can be asked to do something
_ATTEMPTS = 60  # at making room for who may not need it any more


class Room:
    """Sees to it that CPUs can be plugged into one guest; with KVM they always can."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._places, self._found = 0, 0.0  # how many, and when
        self._finding: asyncio.Task[None] | None = None

    @property
    def finding(self) -> asyncio.Task[None] | None:
        """The task that looks for room or makes it, while it does."""
        return None if self._finding is None or self._finding.done() else self._finding

    def find(self) -> asyncio.Task[None]:
        """Look for room, or make it, from now on; a search that is under way goes on."""
        if self.finding is None:
            name = f"room in {self._guest.intent.vmi}"
            self._finding = asyncio.create_task(self._find(), name=name)
        assert self._finding is not None
        return self._finding

    async def take(self) -> None:
        """Return if a CPU can be plugged now; else raise NotNow and go on making room."""
        if not self._taken():
            await asyncio.wait({self.find()}, timeout=_WAIT_SECONDS)
            if not self._taken():
                raise NotNow("QEMU's cache of translated code is nearly full; it is being emptied")

    def stop(self) -> None:
        """Look for no more."""
        if self._finding is not None:
            self._finding.cancel()

    def _taken(self) -> bool:
        if self._places < 1 or time.monotonic() > self._found + FRESH_SECONDS:
            return False
        self._places -= 1
        return True

    async def _find(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._places = await self._guest.room()
            except QmpError:
                return  # QEMU does not answer, as whoever plugs will find
            self._found = time.monotonic()
            if self._places:
                return
            if not await self._guest.stir():
                await asyncio.sleep(_PAUSE_SECONDS)
