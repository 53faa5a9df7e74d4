"""Stopping every guest of a data directory while no server runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from livevirt.api import times
from livevirt.control.clock import Now
from livevirt.control.key import Key
from livevirt.node import ending, pod_dir
from livevirt.node.guest import Guest
from livevirt.node.intent import UnknownIntent
from livevirt.node.local import Local
from livevirt.paths import DataDir
from livevirt.qemu import lifecycle
from livevirt.qemu.errors import QmpError

GRACE_SECONDS = 30.0

Tell = Callable[[str], None]


async def stop_guests(data: DataDir, now: Now, tell: Tell) -> int:
    """Shut down every running guest, switch off those that do not listen; return how many.

    How each ended is recorded, so the next server restarts what shall run and knows the rest ended
    well. Nobody else may start guests meanwhile: the caller holds the data directory's lock.
    """
    changed = asyncio.Event()
    found = list(_running(data, changed.set))
    async with asyncio.TaskGroup() as group:
        for local, guest in found:
            group.create_task(_stop(local, guest, changed, now, tell))
    return len(found)


def _running(data: DataDir, wake: Callable[[], None]) -> Iterator[tuple[Local, Guest]]:
    nodes = data.root / "nodes"
    for node in sorted(nodes.iterdir()) if nodes.exists() else ():
        for folder in pod_dir.all_in(node / "pods", data.run):
            try:
                intent = folder.read_intent()
            except UnknownIntent:
                continue  # a newer release's guest: not ours to end
            if intent is None:
                continue
            local = Local(Key(intent.namespace, intent.pod), folder, wake)
            if local.look() and local.guest is not None:
                yield local, local.guest


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
    if local.ending is None:
        local.folder.write_ending(how)
    await guest.quit()
    tell(f"stopped {name}")


async def _press(guest: Guest) -> bool:
    try:
        await lifecycle.powerdown(guest.qmp())
    except QmpError:
        return False
    return True
