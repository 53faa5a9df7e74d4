"""Leaves no guest between two QEMUs when the nodes of a machine stop: nobody would see it arrive.

The target decides, as always. A guest that has come is let run there; what has not come never will,
and the QEMU that waited for it is gone before it goes on at its source.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from livevirt.errors import LivevirtError
from livevirt.kube.control.clock import Now
from livevirt.kube.objects.times import format_time
from livevirt.node import ending
from livevirt.node import guest as guests
from livevirt.node.departure import ABOUT_TO_BE_SENT, Departure, goes_on
from livevirt.node.handover import Handovers
from livevirt.node.intent import Leaving
from livevirt.node.local import Local
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.session import Session

log = logging.getLogger(__name__)

SECONDS = 5.0  # far more than it takes, but for a QEMU that does not quit and has to be killed
_LOOK_SECONDS = 0.02


async def settle(locals_: Iterable[Local], handovers: Handovers, now: Now) -> None:
    """Have every guest of a node that moves run in one place."""
    await asyncio.gather(*(_settle(local, handovers, now) for local in locals_))


async def _settle(local: Local, handovers: Handovers, now: Now) -> None:
    try:
        if local.awaits or local.arrival is not None:
            async with asyncio.timeout(guests.QUIT_SECONDS + SECONDS):
                await _take_in(local, handovers, now)
        elif local.departure is not None and not local.has_left:
            # Longer: it waits for what the target says.
            async with asyncio.timeout(guests.QUIT_SECONDS + 2 * SECONDS):
                await _keep(local, local.departure, handovers)
    except (LivevirtError, OSError, TimeoutError) as error:
        facts = {"pod": str(local.key), "error": str(error)}
        log.warning("a migration is left to itself", extra=facts)


async def _take_in(local: Local, handovers: Handovers, now: Now) -> None:
    """Let a guest that has come run here; have no other come."""
    incoming = local.intent.incoming if local.intent is not None else None
    if incoming is None:
        return
    called_off = local.call_off()
    if called_off and local.guest is not None:
        if local.ending is None:
            how = ending.unneeded(format_time(now()))
            await asyncio.to_thread(local.folder.write_ending, how)
        await local.guest.quit()
    handovers.settle(incoming.uid, came=not called_off)
    while local.arrival is not None and not local.arrival.told.arrived:  # noqa: ASYNC110 - soon
        await asyncio.sleep(_LOOK_SECONDS)


async def _keep(local: Local, departure: Departure, handovers: Handovers) -> None:
    """Have a guest that does not get there go on here."""
    departure.stop()  # it begins nothing any more
    noted, guest = local.folder.read_departure(), local.guest
    if noted is None or guest is None:
        return  # nothing of it was sent
    while (came := handovers.settled(noted.uid)) is None:  # noqa: ASYNC110 - soon
        await asyncio.sleep(_LOOK_SECONDS)
    if came:
        return
    while not await _stays(guest.qmp(), noted):  # noqa: ASYNC110 - QEMU does not tell
        await asyncio.sleep(_LOOK_SECONDS)
    log.info("migration called off", extra={"pod": str(local.key)})


async def _stays(qmp: Session, noted: Leaving) -> bool:
    """Have a guest go on whose target is gone; return whether it is known to stay by now."""
    found, state = await migration.transfer(qmp), await lifecycle.run_state(qmp)
    if found.under_way or state == ABOUT_TO_BE_SENT:
        return False
    if goes_on(noted, state):
        await lifecycle.resume(qmp)
    return True
