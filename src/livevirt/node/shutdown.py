"""Stops every guest of a data directory while no server runs on it.

A guest that is being migrated has two QEMUs. It is brought back to one first: to its source, unless
its target has noted that it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from livevirt.errors import LivevirtError
from livevirt.files.reserve import Reserve
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.kube.objects import times
from livevirt.node import exit_record, pod_dir
from livevirt.node.exit_record import ExitRecord
from livevirt.node.guest import Guest
from livevirt.node.intent import UnknownIntent
from livevirt.node.local import Local
from livevirt.node.migration.facts import PodFacts, Side, side
from livevirt.node.vmi_status import is_paused
from livevirt.paths import DataDir
from livevirt.qemu import lifecycle, migration
from livevirt.qemu.errors import QmpError

GRACE_SECONDS = 30.0
SETTLE_SECONDS = 10.0  # for a migration to be cancelled

Print = Callable[[str], None]
#: A QEMU whose guest is to be shut down, that no guest has arrived in, or that its guest has left.
Role = Literal["guest", "target", "left"]


def role(pod: PodFacts, others: Iterable[PodFacts]) -> Role:
    """Return what a pod's QEMU is, given the other pods of the same instance."""
    match side(pod):
        case Side.TARGET:
            return "target"
        case Side.SOURCE if pod.left or any(each.arrived for each in _targets(pod, others)):
            return "left"
        case _:
            return "guest"


def _targets(source: PodFacts, others: Iterable[PodFacts]) -> list[PodFacts]:
    """Return the pods that the guest of this one is being sent to."""
    departure = source.departure
    return [each for each in others if departure is not None and each.incoming == departure.uid]


@dataclass(slots=True)
class _InstancePods:
    """The pods of one instance."""

    all: list[Local] = field(default_factory=list)
    running: list[tuple[Local, Guest]] = field(default_factory=list)

    def with_role(self, wanted: Role) -> list[tuple[Local, Guest]]:
        facts = [local.migration_facts() for local in self.all]
        return [
            (local, guest)
            for local, guest in self.running
            if role(local.migration_facts(), facts) == wanted
        ]


async def stop_guests(data: DataDir, now: Now, show: Print) -> int:
    """Shut down every running guest, kill those that do not react; return how many there were.

    How each ended is recorded, so the next server restarts what should run and knows the rest ended
    well. No other process may start guests meanwhile: the caller holds the data directory's lock.
    """
    changed = asyncio.Event()
    found = _running(data, changed.set)
    reporter = _Reporter(now, show, Reserve(data.reserve))
    async with asyncio.TaskGroup() as group:
        for each in found:
            group.create_task(_stop_all(each, changed, reporter))
    return sum(len(each.running) for each in found)


def _running(data: DataDir, wake: Callable[[], None]) -> Sequence[_InstancePods]:
    nodes, found = data.root / "nodes", dict[str, _InstancePods]()
    for node in sorted(nodes.iterdir()) if nodes.exists() else ():
        for folder in pod_dir.all_in(node / "pods", data.run):
            try:
                intent = folder.read_intent()
            except UnknownIntent:
                continue  # a newer release's guest: not ours to end
            if intent is None:
                continue
            local = Local(Key(intent.namespace, intent.pod), folder, wake)
            of_vmi = found.setdefault(intent.vmi_uid, _InstancePods())
            of_vmi.all.append(local)
            if local.look() and local.guest is not None:
                of_vmi.running.append((local, local.guest))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Records how guests ended, and shows it."""

    now: Now
    show: Print
    reserve: Reserve

    async def end(self, local: Local, guest: Guest, record: ExitRecord) -> None:
        """Record how a guest ended, then end its QEMU, also if the disk refuses the record."""
        if local.ending is None:
            try:
                self.reserve.spend(lambda: local.folder.write_ending(record))
            except OSError as error:
                self.show(
                    f"cannot record how {_name(guest)} ended: {error};"
                    " the next livevirt will report it as failed"
                )
        await guest.quit()


def _name(guest: Guest) -> str:
    return f"{guest.intent.namespace}/{guest.intent.vmi}"


async def _stop_all(pods: _InstancePods, changed: asyncio.Event, reporter: _Reporter) -> None:
    """Stop the guest of one instance, wherever it is, and its other QEMUs."""
    guests, at = pods.with_role("guest"), times.format_time(reporter.now())
    for local, guest in guests:
        await _cancel_migration(local, guest, changed)
    for local, guest in pods.with_role("target"):
        await reporter.end(local, guest, exit_record.unneeded(at))
    for local, guest in pods.with_role("left"):
        await reporter.end(local, guest, exit_record.migrated(at))
    for local, guest in guests:
        await _resume_at_source(local, guest, pods.all)
        await _stop(local, guest, changed, reporter)


async def _cancel_migration(local: Local, guest: Guest, changed: asyncio.Event) -> None:
    """Cancel the migration of a guest that is being sent, unless it was sent whole."""
    if not local.is_sending:
        return
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while guest.view.standing is None and not guest.ended:
                changed.clear()
                await changed.wait()
            await migration.cancel(guest.qmp())
    except (LivevirtError, TimeoutError):
        return  # the guest is killed if it does not shut down


async def _resume_at_source(local: Local, guest: Guest, others: Iterable[Local]) -> None:
    """Resume a guest that was sent whole to a QEMU that is gone and never ran it."""
    by_pod = {each.key.name: each for each in others}
    targets = _targets(
        local.migration_facts(), (each.migration_facts() for each in by_pod.values())
    )
    if not targets or any(each.arrived or by_pod[each.pod].folder.locked() for each in targets):
        return
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            if await lifecycle.run_state(guest.qmp()) == lifecycle.SENT_WHOLE:
                await lifecycle.resume(guest.qmp())
    except (QmpError, TimeoutError):
        return


async def _stop(local: Local, guest: Guest, changed: asyncio.Event, reporter: _Reporter) -> None:
    name, show = _name(guest), reporter.show
    show(f"stopping {name}")
    pressed = False
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            while not (guest.ended or (guest.view.standing and guest.view.standing.ended)):
                if not pressed and guest.view.standing is not None:
                    pressed = await _press_power_button(guest)
                changed.clear()
                await changed.wait()
    except TimeoutError:
        show(f"{name} did not shut down within {GRACE_SECONDS:.0f} s and is switched off")
    at = times.format_time(reporter.now())
    standing = guest.view.standing
    shut_down = standing is not None and standing.ended
    record = (
        exit_record.of_standing(standing, at)
        if standing and shut_down
        else exit_record.destroyed(at)
    )
    await reporter.end(local, guest, record)
    show(f"stopped {name}")


async def _press_power_button(guest: Guest) -> bool:
    try:
        if is_paused(guest.view.standing):
            await lifecycle.resume(guest.qmp())  # a paused guest does not react
        await lifecycle.powerdown(guest.qmp())
    except QmpError:
        return False
    return True
