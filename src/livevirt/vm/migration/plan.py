"""What to do about a migration: frozen data in, phases and steps out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from livevirt.vm.migration.view import Instance, Migration, Pod, Seen, State

#: The phases of a migration that goes well, in order; `Failed` can follow all but the last.
ORDER = (
    "", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running",
    "Succeeded",
)  # fmt: skip
_HANDED = ORDER.index("PreparingTarget")
_SUCCEEDED = len(ORDER) - 1
#: A guest that has arrived has so long to take its new size; then the migration is over anyway.
PATIENCE = timedelta(minutes=2)
GRACE = 1  # second: there is nothing left to shut down
CANCELLED = "the migration was cancelled"
_POD_LOST = "the target pod ended before the guest was handed over"
_TARGET_LOST = "the target pod ended before the migration began"


@dataclass(frozen=True, slots=True)
class CreateTarget:
    """Create the target pod."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Write into the instance who moves it from where to where: from now on its nodes act."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Ask the nodes to stop the migration the instance is in."""


@dataclass(frozen=True, slots=True)
class End:
    """Write into the instance that the migration it is in failed, before it began."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod that holds no guest."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Remake:
    """Delete a target pod that is too small by now; once it is gone another is created."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Untag:
    """Take the target's name off the instance's labels."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take our finalizer off the migration."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after that time."""

    time: timedelta


Step = CreateTarget | HandOver | Abort | End | DeletePod | Remake | Untag | LetGo | Wait


def phases(seen: Seen) -> list[str]:
    """Return the phases the migration passes through now, the last one being where it stays."""
    phase = seen.migration.phase
    if seen.migration.final:
        return []
    if failure(seen):
        return ["Failed"]
    stands = ORDER.index(phase) if phase in ORDER else 0
    return list(ORDER[stands + 1 : max(_reached(seen), stands) + 1])


def failure(seen: Seen) -> str:
    """Return why the migration has failed, nothing if it has not."""
    migration, vmi, state = seen.migration, seen.vmi, seen.state
    if seen.moved:
        return ""
    if vmi is None:
        return "the instance is gone"
    if state is not None and state.ended:
        return state.failure or "the nodes gave no reason"
    if vmi.final:
        return "the guest has ended"
    if vmi.deleting:
        return "the instance is being deleted"
    if state is not None:
        return ""
    if migration.phase in ORDER[_HANDED:]:
        return "the instance no longer knows of the migration"
    if migration.deleting:
        return CANCELLED
    if seen.rival:
        return f"migration {seen.rival} of the instance is under way already"
    if vmi.unmovable and not vmi.copying:  # a copy ends, and then it may move
        return vmi.unmovable
    return _pod_failure(seen)


def plan(seen: Seen) -> list[Step]:
    """List the steps towards a guest on another node, or those that clean up after it."""
    migration, vmi, state, target = seen.migration, seen.vmi, seen.state, seen.target
    if migration.final:
        return _clean(seen)
    if seen.moved:
        left = _patience_left(seen)
        return [Wait(left)] if left and not _released(seen) else []
    if failure(seen):
        return stop(state, target) if state is not None else []
    assert vmi is not None
    if state is not None:
        lost = not state.started and (target is None or target.ended)
        return stop(state, target) if migration.deleting or lost else []
    if target is None:
        return _begin(seen, vmi)
    if seen.outgrown:
        return []  # it goes, which will wake us
    if target.short:
        return [Remake(target.name, target.uid)]
    if target.phase == "Pending":
        return [Wait(min(_deadlines(migration, target)) - seen.now)]
    if not target.node or not vmi.running or vmi.copying:
        return []
    if vmi.state is None or vmi.state.ended:
        return [HandOver()] if seen.source is not None else []
    return stop(vmi.state, seen.stray_target) if seen.stray else []


def stop(state: State, target: Pod | None) -> list[Step]:
    """List what stops a migration that was handed over.

    The nodes do it. Only where there is no target and nothing has begun, nobody else would.
    """
    if state.ended:
        return []
    if not state.started and (target is None or target.ended):
        return [End(CANCELLED if state.abort_requested else _TARGET_LOST)]
    return [] if state.abort_requested else [Abort()]


def abandoned(vmi: Instance | None, pod: Pod, uid: str) -> list[Step]:
    """List what to do about the target pod of a migration that is not there any more."""
    if vmi is None:
        return []  # it goes with its instance
    state = vmi.state
    if state is not None and state.uid == uid and not state.ended:
        return stop(state, pod)
    if pod.deleting or pod.name == _home(state) or not (pod.ended or pod.node != vmi.node):
        return []  # this is where the guest runs
    return [DeletePod(pod.name, pod.uid)]


def _home(state: State | None) -> str:
    """Return the pod in which the last migration left the guest, if there was one."""
    if state is None:
        return ""
    return state.target_pod if state.completed else state.source_pod


def _reached(seen: Seen) -> int:
    """Return how far the migration is, as a place in the order of phases."""
    state, target = seen.state, seen.target
    if seen.moved:
        return _SUCCEEDED if _released(seen) else _SUCCEEDED - 1
    if state is not None:
        return _HANDED + (2 if state.started else 1 if state.prepared else 0)
    if target is not None:
        return 3 if target.phase == "Running" and target.node else 2
    return 1


def _released(seen: Seen) -> bool:
    """Tell whether nothing keeps a migration whose guest has arrived from being over."""
    vmi = seen.vmi
    if vmi is None or not vmi.running or seen.migration.deleting:
        return True
    return not vmi.waits_for or not _patience_left(seen)


def _patience_left(seen: Seen) -> timedelta:
    state = seen.state
    if state is None or state.ended is None:
        return timedelta(0)
    return max(state.ended + PATIENCE - seen.now, timedelta(0))


def _begin(seen: Seen, vmi: Instance) -> list[Step]:
    if not vmi.running or vmi.copying or seen.creating:
        return []  # what it waits for wakes us
    if wait := max(seen.back_off, seen.refused):
        return [Wait(wait)]
    if seen.turn or seen.outgrown:
        return [CreateTarget()]
    return [Wait(_until_asked_again(seen.migration.priority))]


def _until_asked_again(priority: int) -> timedelta:
    """Return how long a migration waits for its turn at most before it looks by itself."""
    return timedelta(seconds=1 if priority >= 100 else 3 if priority >= 50 else 5)


def _pod_failure(seen: Seen) -> str:
    """Return why the target pod is of no use."""
    migration, target = seen.migration, seen.target
    if seen.outgrown:
        return ""  # another takes its place
    if target is None:
        return _POD_LOST if migration.phase in ("Scheduling", "Scheduled") else ""
    if target.ended or target.deleting:
        return _POD_LOST
    if target.phase != "Pending" or seen.now < min(_deadlines(migration, target)):
        return ""
    if target.unschedulable:
        seconds = f"{(seen.now - target.unschedulable_since).total_seconds():.0f} s"
        return f"there was no node for the target pod within {seconds}: {target.unschedulable}"
    seconds = f"{migration.pending_timeout.total_seconds():.0f} s"
    return f"the target pod did not start within {seconds}"


def _deadlines(migration: Migration, target: Pod) -> list[datetime]:
    """Return when a target pod that waits must have started, and when it must have a node."""
    found = [target.created + migration.pending_timeout]
    if target.unschedulable:
        found.append(target.unschedulable_since + migration.unschedulable_timeout)
    return found


def _clean(seen: Seen) -> list[Step]:
    """List what is left to do for a migration that has ended."""
    migration, vmi, state = seen.migration, seen.vmi, seen.state
    steps: list[Step] = []
    if vmi is not None and state is not None and vmi.tagged and state.ended:
        steps = [Untag()]
    left = seen.source if migration.phase == "Succeeded" else seen.target
    if left is None or left.ended or vmi is None or vmi.deleting or left.node == vmi.node:
        return steps or ([LetGo()] if migration.held else [])
    # The migration is held until the pod is gone.
    if state is not None and not state.ended:
        return stop(state, seen.target)
    return steps if left.deleting else [DeletePod(left.name, left.uid), *steps]
