"""Settles migrations when the node agents of a machine stop in an orderly way.

Without an agent no arrival would be noticed. So the target decides, as always: a guest that has
arrived may run there; one that has not never will, and the QEMU that waited for it is gone before
the guest is resumed at its source.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from livevirt.errors import LivevirtError
from livevirt.kube.control.clock import Now
from livevirt.kube.objects.times import format_time
from livevirt.node import exit_record
from livevirt.node import guest as guests
from livevirt.node.local import Local
from livevirt.node.migration.facts import Side
from livevirt.node.migration.handover import Departure, Handovers
from livevirt.node.migration.source import SourceMigration
from livevirt.node.migration.states import COMPLETING, resumes
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.session import Session

log = logging.getLogger(__name__)

SECONDS = 5.0  # far more than it takes, unless a QEMU does not quit and has to be killed
_POLL_SECONDS = 0.02


async def settle(locals_: Iterable[Local], handovers: Handovers, now: Now) -> None:
    """Leave every guest of a node that migrates in one place."""
    await asyncio.gather(*(_settle(local, handovers, now) for local in locals_))


async def _settle(local: Local, handovers: Handovers, now: Now) -> None:
    try:
        if local.side is Side.TARGET:
            async with asyncio.timeout(guests.QUIT_SECONDS + SECONDS):
                await _settle_target(local, handovers, now)
        elif local.source is not None and not local.has_left:
            # Longer, because it waits for the target's answer.
            async with asyncio.timeout(guests.QUIT_SECONDS + 2 * SECONDS):
                await _settle_source(local, local.source, handovers)
    except (LivevirtError, OSError, TimeoutError) as error:
        fields = {"pod": str(local.key), "error": str(error)}
        log.warning("migration not settled", extra=fields)


async def _settle_target(local: Local, handovers: Handovers, now: Now) -> None:
    """Wait until a guest that has arrived runs here; receive no other."""
    incoming = local.intent.incoming if local.intent is not None else None
    if incoming is None:
        return
    cancelled = local.cancel_arrival()
    if cancelled and local.guest is not None:
        if local.ending is None:
            record = exit_record.unneeded(format_time(now()))
            await asyncio.to_thread(local.folder.write_ending, record)
        await local.guest.quit()
    handovers.settle(incoming.uid, arrived=not cancelled)
    while local.target is not None and not local.target.arrived:  # noqa: ASYNC110 - soon
        await asyncio.sleep(_POLL_SECONDS)


async def _settle_source(local: Local, source: SourceMigration, handovers: Handovers) -> None:
    """Resume a guest here that does not arrive."""
    source.stop()  # it starts nothing any more
    departure, guest = local.folder.migration.read_departure(), local.guest
    if departure is None or guest is None:
        return  # nothing was sent
    while (arrived := handovers.get(departure.uid).arrived) is None:  # noqa: ASYNC110 - soon
        await asyncio.sleep(_POLL_SECONDS)
    if arrived:
        return
    while not await _stays(guest.qmp(), departure):  # noqa: ASYNC110 - QEMU sends no event
        await asyncio.sleep(_POLL_SECONDS)
    log.info("migration cancelled", extra={"pod": str(local.key)})


async def _stays(qmp: Session, departure: Departure) -> bool:
    """Resume a guest whose target is gone; return whether the transfer has ended, as it must."""
    found, run_state = await migration.transfer(qmp), await lifecycle.run_state(qmp)
    if found.under_way or run_state == COMPLETING:
        return False
    if resumes(departure, run_state):
        await lifecycle.resume(qmp)
    return True
