"""Gives one guest the disks and media its instance asks for: look, plan, act, again, until it has.

A disk grows with its claim, also one that was there from the start.

Every round plans again from QEMU's own state, so a newer goal takes over and a restart of the
agent neither loses nor repeats anything. Each volume is made ready and attached for itself: what
is wrong with one volume is reported for it, and it is retried every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from livevirt.errors import ApiError, LivevirtError, QmpError
from livevirt.node import attachments, copying, domain
from livevirt.node.attachments import Attachments, Goal, Item, Problem, Wanted
from livevirt.node.copying import Copies, Failures
from livevirt.node.domain import DISK_PREFIX, volume_of
from livevirt.node.guard import Guard
from livevirt.node.guest import Guest
from livevirt.node.volumes import NodeVolumes, Prepared, VolumeProblem
from livevirt.qemu.disk import Disk, same_image
from livevirt.qemu.errors import AgentUnavailable, Disconnected, UnplugRefused, is_image_locked
from livevirt.qemu.mirror import EndCopy, FinishCopy, StartCopy
from livevirt.qemu.observe import Drive, Observed
from livevirt.qemu.plan import (
    Blocked,
    ChangeMedium,
    CloseImage,
    EndThread,
    GrowDisk,
    MachineSnapshot,
    PlugDisk,
    Step,
    UnplugDisk,
    disks,
    growth,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0  # between attempts at what did not work
MOST_PASSES = 4  # in a round: another claim for a disk takes two, and a last one to see so
STEP_SECONDS = 10.0  # what QEMU does by itself takes milliseconds
GUEST_SECONDS = 1.0  # a guest that releases it later is seen in a later round


class Attacher:
    """Attaches and detaches the volumes of one guest. `want` a goal; read `reported` when woken."""

    def __init__(self, guest: Guest, volumes: NodeVolumes, wake: Callable[[], None]) -> None:
        self.reported: Attachments | None = None  # None: not looked yet
        self.copies: Copies = {}  # of the goal wanted now, once they were looked at
        self._guest, self._volumes, self._wake = guest, volumes, wake
        self._goal: Goal | None = None
        self._prepared: dict[str, Prepared] = {}
        self._stale: set[str] = set()  # claims that have changed since
        self._drives: tuple[Drive, ...] = ()  # as the last round left them
        self._jobs: dict[str, str] = {}  # and the copies
        self._mounted: set[str] = set()  # drives in use by the agent's last report, by id
        self._failures = Failures()  # of copies
        self._refusals: dict[str, str] = {}  # what QEMU said last, by volume
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"volumes of {guest.intent.vmi}")

    def want(self, goal: Goal) -> None:
        """Let the guest have these disks from now on."""
        if self._goal is None:
            self._mounted = {DISK_PREFIX + name for name in goal.mounted}
        other, self._goal = goal != self._goal, goal
        if other:
            self.copies = {}  # what was seen belongs to another goal
        observed = self._guest.view.observed
        moved = observed is not None and observed.drives != self._drives
        copied = observed is not None and _jobs(observed) != self._jobs
        if other or copied or (moved and not attachments.settled(self.reported or {})):
            self._changed.set()

    def nudge(self, claim: str) -> None:
        """Look again at once at a claim that has changed, if a volume waits for it or has it."""
        goal = self._goal
        if goal and any(item.claim == claim for item in (*goal.items, *goal.fixed)):
            self._stale.add(claim)
            self._changed.set()

    def stop(self) -> None:
        """Stop; what was begun is planned again by the next attacher."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._goal is not None:
                await self._follow()

    async def _follow(self) -> None:
        """Work towards what is wanted until the guest has it."""
        while True:
            again = True
            try:
                again = await self._round()
            except (Disconnected, AgentUnavailable) as error:
                log.debug("volumes not looked after", extra=self._facts(error))
            except LivevirtError as error:
                log.warning("volumes not looked after", extra=self._facts(error))
            except Exception as error:  # a mistake of ours must not end it for this guest
                log.error("volumes not looked after", extra=self._facts(error), exc_info=error)
            if not again:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    async def _round(self) -> bool:
        """Do what can be done now; return whether something is left to do."""
        assert self._goal is not None
        goal = self._goal
        now = await self._look()
        unready = await self._make_ready(goal, now)
        troubles = {n: p for n, p in unready.items() if p.reason == attachments.REPLACED}
        for _ in range(MOST_PASSES):
            wanted = attachments.wanted(goal, self._prepared, unready, now)
            for error in self._failures.see(wanted, now, _time()):
                log.warning("copy failed", extra=self._facts() | {"error": error})
            if not await self._do_all(goal, self._plan(goal, wanted, now), now, troubles):
                break
            now = await self._look()
            if self._goal != goal:
                break  # a newer goal; what was done is seen by its round
        for each in self._prepared.values():
            self._volumes.release(each)
        self._drives, self._jobs = now.drives, _jobs(now)
        reported = attachments.attachments(goal, wanted, self._prepared, troubles, now)
        known = self._failures.problems(wanted) | troubles
        self._show(reported, copying.copies(goal, wanted, known, now))
        settled = attachments.settled(reported) and copying.settled(self.copies)
        done = settled and not self._plan(goal, wanted, now)
        return not done or self._goal != goal  # an image may be open without a drive

    async def _look(self) -> Observed:
        await self._guest.refresh()
        observed = self._guest.view.observed
        assert observed is not None  # it was looked at just now
        self._mounted &= {drive.id for drive in observed.drives}
        return observed

    async def _make_ready(self, goal: Goal, now: Observed) -> dict[str, Problem]:
        """Find the image of every volume that is not attached yet; return what is wrong.

        Of one that is attached the claim is read again if it has changed.
        """
        problems: dict[str, Problem] = {}
        namespace = self._guest.intent.namespace
        known, self._prepared = self._prepared, {}
        stale, self._stale = self._stale, set()
        for item in (*goal.items, *goal.fixed):
            if item.volume is None:
                continue
            before, attached = known.get(item.name), now.drive(item.id)
            used = attached is not None and attached.node is not None
            kept = before if used and before and _claim(before) == item.claim else None
            if kept is not None:
                self._prepared[item.name] = kept
                if item.claim not in stale:
                    continue
            try:
                found = await self._volumes.attachable(namespace, item.volume)
                if kept is None and used and _is_replaced(goal, item, found, attached):
                    why = f"the guest still has the disk of the PVC {item.claim} that was before"
                    problems[item.name] = Problem(attachments.REPLACED, why)
                elif kept is None or found.image == kept.image:
                    self._prepared[item.name] = found
            except VolumeProblem as error:
                problems[item.name] = Problem(error.reason, str(error))
            except (OSError, ApiError) as error:
                problems[item.name] = Problem("FailedMount", str(error))
        return problems

    def _plan(self, goal: Goal, wanted: Wanted, now: Observed) -> list[Step]:
        seen = MachineSnapshot(
            self._guest.intent.machine, now
        )  # disks do not depend on the guest's report
        steps = [
            replace(step, force=True)
            if isinstance(step, ChangeMedium) and volume_of(step.drive.id) in goal.forced
            else step
            for step in disks(
                domain.plugged(wanted.disks, seen.machine), seen, wanted.kept, wanted.copied
            )
            if not isinstance(step, UnplugDisk) or step.id.startswith(DISK_PREFIX)
            if not isinstance(step, StartCopy) or not self._failures.waits(step.disk.node, _time())
        ]
        return [*steps, *growth(attachments.sizes(goal, self._prepared), seen)]

    # ------------------------------------------------------------ doing

    async def _do_all(
        self, goal: Goal, steps: list[Step], now: Observed, troubles: dict[str, Problem]
    ) -> bool:
        """Do the steps that may be done; return whether one was, so that more may be possible.

        Attaching does not wait for detaching, nor one that the guest is slow to release for
        another. What one could not have because another still had it is tried again then.
        """
        guard = Guard(self._guest, goal.forced, self._mounted)
        tried = [step for step in steps if _name(step) not in troubles]
        slow = [step for step in tried if _asks_guest(step, now)]
        going = [s for s in tried if isinstance(s, UnplugDisk) and s not in slow]
        coming = [step for step in tried if not isinstance(step, UnplugDisk)]
        chains: list[Sequence[Step]] = [coming, going, *([step] for step in slow)]
        outcomes = await _all(*(self._in_turn(goal, chain, now, guard) for chain in chains))
        found = [pair for each in outcomes for pair in each]
        done = any(problem is None for _, problem in found)
        troubles |= {
            _name(step): problem
            for step, problem in found
            if problem is not None and not (done and _may_pass(step, problem))
        }
        return done

    async def _in_turn(
        self, goal: Goal, steps: Sequence[Step], now: Observed, guard: Guard
    ) -> list[tuple[Step, Problem | None]]:
        """Do steps one after the other; return those that were tried, each with what went wrong."""
        found = []
        for step in steps:
            if self._goal != goal:
                break  # a newer goal has other steps
            found.append((step, await self._do(step, now, guard)))
        return found

    async def _do(self, step: Step, now: Observed, guard: Guard) -> Problem | None:
        """Do one step; return why it could not be done, None if it was."""
        if isinstance(step, Blocked):
            plugged = now.drive(step.name) is not None
            code = attachments.CANNOT_DETACH if plugged else attachments.CANNOT_ATTACH
            return Problem(code, step.reason)
        if isinstance(step, UnplugDisk) and (problem := await guard.objection(now, step.id)):
            return problem
        try:
            async with asyncio.timeout(GUEST_SECONDS if _asks_guest(step, now) else STEP_SECONDS):
                await self._guest.do(step)
        except Disconnected:
            raise
        except TimeoutError:
            if not _asks_guest(step, now):
                return Problem(attachments.CANNOT_ATTACH, "QEMU does not answer; it is tried again")
            message = "the guest was asked to release the disk and has not yet"
            return Problem(attachments.WAITING_FOR_GUEST, message)
        except UnplugRefused as error:
            if isinstance(step, ChangeMedium):
                return await guard.locked(now, step.drive.id)
            return Problem(attachments.IN_USE, str(error))
        except QmpError as error:
            if self._refusals.get(_name(step)) != str(error):  # once, not at every attempt
                self._refusals[_name(step)] = str(error)
                log.warning("step refused", extra=self._facts(error) | {"step": repr(step)})
            problem = await self._refused(step, error)
            if isinstance(step, StartCopy) and step.disk.node is not None:
                self._failures.note(step.disk.node, problem, _time())
            return problem
        self._refusals.pop(_name(step), None)
        log.info("volumes changed", extra=self._facts() | {"step": _words(step)})
        return None

    async def _refused(self, step: Step, error: QmpError) -> Problem:
        """Return the problem with a step that QEMU refused."""
        locked, message = is_image_locked(error), str(error)
        if isinstance(step, GrowDisk):
            return Problem(attachments.CANNOT_GROW, f"QEMU refused: {message}; it is tried again")
        if isinstance(step, StartCopy) and not locked:
            why = f"the copy cannot begin: {message}; it is tried again"
            return Problem(copying.COPY_FAILED, why)
        if not isinstance(step, PlugDisk | ChangeMedium | StartCopy):
            return Problem(attachments.CANNOT_DETACH, f"QEMU refused: {message}; it is tried again")
        if not locked:
            return Problem(attachments.CANNOT_ATTACH, f"QEMU refused: {message}; it is tried again")
        goal, name = self._goal, _name(step)
        claim = next((each.claim for each in goal.items if each.name == name), "") if goal else ""
        who = await self._users(name, claim)
        return Problem(attachments.CLAIM_IN_USE, f"PVC {claim} is in use{who}; it is tried again")

    async def _users(self, volume: str, claim: str) -> str:
        """Return what uses the claim of a volume, if that is known."""
        goal, observed, intent = self._goal, self._guest.view.observed, self._guest.intent
        own = attachments.sharers(goal, volume, observed) if goal and observed else []
        if own:
            return f" by volume {', '.join(own)} of this VM"
        others: list[str] = []
        with contextlib.suppress(ApiError):  # it is in use, by whomever
            others = await self._volumes.holders(intent.namespace, claim, intent.vmi_uid)
        return f" by VMI {', '.join(others)}" if others else ""

    def _show(self, reported: Attachments, copies: Copies) -> None:
        if reported != self.reported or copies != self.copies:
            self.reported, self.copies = reported, copies
            self._wake()

    def _facts(self, error: BaseException | None = None) -> dict[str, str]:
        intent = self._guest.intent
        facts = {"vmi": f"{intent.namespace}/{intent.vmi}"}
        return facts | ({"error": str(error)} if error is not None else {})


async def _all(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Return what comes of all of them; the first that fails calls the others off.

    Not a TaskGroup: that of Python 3.11 forgets to be cancelled while one of its tasks fails.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _is_replaced(goal: Goal, item: Item, found: Prepared, attached: Drive | None) -> bool:
    """Return whether the guest's claim was deleted, and this is a new one of the same name."""
    node = Disk(id=item.id, image=found.image).node
    if attached is None or attached.node is None or node is None or item.move is not None:
        return False
    return goal.attached.get(item.name) == item.claim and not same_image(node, attached.node)


def _asks_guest(step: Step, now: Observed) -> bool:
    """Return whether a step is done only when the guest releases the disk."""
    return isinstance(step, UnplugDisk) and now.devices.get(step.id) == "virtio-blk-pci"


def _may_pass(step: Step, problem: Problem) -> bool:
    """Return whether another step, once done, may have made way: for a port, or a claim."""
    return isinstance(step, Blocked) or problem.reason == attachments.CLAIM_IN_USE


def _jobs(observed: Observed) -> dict[str, str]:
    """Return how each copy stands, but not how far it is."""
    return {copy.target: copy.status for copy in observed.copies}


def _time() -> float:
    return asyncio.get_running_loop().time()


def _claim(prepared: Prepared) -> str:
    return str(prepared.claim["metadata"]["name"]) if prepared.claim is not None else ""


def _name(step: Step) -> str:
    """Return the volume, or the image, that a step is about."""
    match step:
        case PlugDisk(disk, _) | ChangeMedium(disk, _) | StartCopy(disk, _, _) | FinishCopy(disk):
            return volume_of(disk.id)
        case UnplugDisk(id, _) | GrowDisk(id, _, _):
            return volume_of(id)
        case Blocked(_, name, _):
            return volume_of(name)
        case CloseImage(id) | EndCopy(id) | EndThread(id):
            return id
    return ""


def _words(step: Step) -> str:
    return f"{type(step).__name__} {_name(step)}"
