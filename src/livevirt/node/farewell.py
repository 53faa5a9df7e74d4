"""Stopping every guest of a data directory while no server runs on it.

A guest that is being migrated has two QEMUs. It is brought back to one first: to its source, unless
its target has noted that it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from livevirt.errors import LivevirtError
from livevirt.kube.control.clock import Now
from livevirt.kube.control.key import Key
from livevirt.kube.objects import times
from livevirt.node import ending, pod_dir
from livevirt.node.guest import Guest
from livevirt.node.intent import UnknownIntent
from livevirt.node.local import Local
from livevirt.node.vmi_status import is_paused
from livevirt.paths import DataDir
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.errors import QmpError

GRACE_SECONDS = 30.0
SETTLE_SECONDS = 10.0  # for a guest that is being migrated to be in one place

Tell = Callable[[str], None]
#: A guest to be shut down, a QEMU that none has come to, or one that its guest has left.
Part = Literal["guest", "target", "left"]


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of a pod's QEMU, as far as it matters in a migration."""

    coming: str = ""  # the migration that is to bring the guest, by uid
    arrived: bool = False
    going: str = ""  # the migration that is to take it away
    left: bool = False


def part(place: Place, others: Iterable[Place]) -> Part:
    """Return what a QEMU is, given what there is of other pods for the same instance."""
    if place.coming and not place.arrived:
        return "target"
    went = place.going and any(each.arrived and each.coming == place.going for each in others)
    return "left" if place.left or went else "guest"


@dataclass(slots=True)
class _Found:
    """The pods of one instance."""

    all: list[Local] = field(default_factory=list)
    running: list[tuple[Local, Guest]] = field(default_factory=list)

    def of(self, wanted: Part) -> list[tuple[Local, Guest]]:
        places = [_place(local) for local in self.all]
        return [each for each in self.running if part(_place(each[0]), places) == wanted]


async def stop_guests(data: DataDir, now: Now, tell: Tell) -> int:
    """Shut down every running guest, switch off those that do not listen; return how many.

    How each ended is recorded, so the next server restarts what shall run and knows the rest ended
    well. Nobody else may start guests meanwhile: the caller holds the data directory's lock.
    """
    changed = asyncio.Event()
    found = _running(data, changed.set)
    async with asyncio.TaskGroup() as group:
        for each in found:
            group.create_task(_stop_all(each, changed, now, tell))
    return sum(len(each.running) for each in found)


def _running(data: DataDir, wake: Callable[[], None]) -> Sequence[_Found]:
    nodes, found = data.root / "nodes", dict[str, _Found]()
    for node in sorted(nodes.iterdir()) if nodes.exists() else ():
        for folder in pod_dir.all_in(node / "pods", data.run):
            try:
                intent = folder.read_intent()
            except UnknownIntent:
                continue  # a newer release's guest: not ours to end
            if intent is None:
                continue
            local = Local(Key(intent.namespace, intent.pod), folder, wake)
            of_vmi = found.setdefault(intent.vmi_uid, _Found())
            of_vmi.all.append(local)
            if local.look() and local.guest is not None:
                of_vmi.running.append((local, local.guest))
    return list(found.values())


def _place(local: Local) -> Place:
    incoming = local.intent.incoming if local.intent is not None else None
    leaving = local.folder.read_departure()
    return Place(
        coming=incoming.uid if incoming is not None else "",
        arrived=local.arrived,
        going=leaving.uid if leaving is not None else "",
        left=local.has_left,
    )


async def _stop_all(found: _Found, changed: asyncio.Event, now: Now, tell: Tell) -> None:
    """Stop the guest of one instance, wherever it is, and what else there is of it."""
    guests, at = found.of("guest"), times.format_time(now())
    for local, guest in guests:
        await _call_off(local, guest, changed)
    for local, guest in found.of("target"):
        await _end(local, guest, ending.unneeded(at))
    for local, guest in found.of("left"):
        await _end(local, guest, ending.migrated(at))
    for local, guest in guests:
        await _bring_back(local, guest, found.all)
        await _stop(local, guest, changed, now, tell)


async def _call_off(local: Local, guest: Guest, changed: asyncio.Event) -> None:
    """Have a guest that is being sent stay, unless it has been sent whole."""
    if local.folder.read_departure() is None:
        return
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while guest.view.standing is None and not guest.ended:
                changed.clear()
                await changed.wait()
            await migration.cancel(guest.qmp())
    except (LivevirtError, TimeoutError):
        return  # it is switched off if it does not shut down


async def _bring_back(local: Local, guest: Guest, others: Iterable[Local]) -> None:
    """Let a guest go on that was sent whole to a QEMU that is gone and never ran it."""
    place = _place(local)
    targets = [each for each in others if place.going and _place(each).coming == place.going]
    if not targets or any(each.arrived or each.folder.locked() for each in targets):
        return
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            if await lifecycle.run_state(guest.qmp()) == lifecycle.SENT_WHOLE:
                await lifecycle.resume(guest.qmp())
    except (QmpError, TimeoutError):
        return


async def _stop(local: Local, guest: Guest, changed: asyncio.Event, now: Now, tell: Tell) -> None:
    name = f"{guest.intent.namespace}/{guest.intent.vmi}"
    tell(f"stopping {name}")
    pressed = False
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            while not (guest.ended or (guest.view.standing and guest.view.standing.ended)):
                if not pressed and guest.view.standing is not None:
                    pressed = await _press(guest)
                changed.clear()
                await changed.wait()
    except TimeoutError:
        tell(f"{name} did not shut down within {GRACE_SECONDS:.0f} s and is switched off")
    at = times.format_time(now())
    standing = guest.view.standing
    over = standing is not None and standing.ended
    how = ending.of_standing(standing, at) if standing and over else ending.destroyed(at)
    await _end(local, guest, how)
    tell(f"stopped {name}")


async def _end(local: Local, guest: Guest, how: ending.Ending) -> None:
    """Record how it ended, then end QEMU."""
    if local.ending is None:
        local.folder.write_ending(how)
    await guest.quit()


async def _press(guest: Guest) -> bool:
    try:
        if is_paused(guest.view.standing):
            await lifecycle.resume(guest.qmp())  # who stands still hears no button
        await lifecycle.powerdown(guest.qmp())
    except QmpError:
        return False
    return True
