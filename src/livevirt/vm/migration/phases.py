"""The phases of a VirtualMachineInstanceMigration: which follows which, when, and what fails it.

Pure tables. The state table in docs/migration.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from livevirt.vm.migration.snapshot import Migration, Pod, Snapshot

#: The phases of a migration that succeeds, in order.
ORDER = (
    "", "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running",
    "Succeeded",
)  # fmt: skip
_HANDED_OVER = ORDER[ORDER.index("PreparingTarget") :]
#: How long a guest on its target may take to reach its new size; then the migration ends anyway.
RESIZE_TIMEOUT = timedelta(minutes=2)
CANCELLED = "the migration was cancelled"
_POD_LOST = "the target pod ended before the guest was handed over"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the state table: from a phase to the next, once a condition holds.

    Each condition includes those of the rows below it, for the nodes may be faster than we.
    """

    phase: str
    condition: Callable[[Snapshot], bool]
    next: str
    when: str  # the condition, as the docs say it


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason for which a migration fails."""

    name: str
    reason: Callable[[Snapshot], str]  # empty: it does not apply
    when: str  # as the docs say it
    without_state: bool = False  # whether only while `migrationState` is not this migration's


def phases(snapshot: Snapshot) -> list[str]:
    """Return the phases the migration enters now, in order; the last one is where it stays."""
    phase = snapshot.migration.phase
    if snapshot.migration.final:
        return []
    if failure(snapshot):
        return ["Failed"]
    return _walk(phase if phase in ORDER else "", snapshot)


def reached(snapshot: Snapshot) -> str:
    """Return the phase that the instance and the pods show, whatever is recorded."""
    return _walk("", snapshot)[-1]


def failure(snapshot: Snapshot) -> str:
    """Return why the migration has failed, nothing if it has not."""
    found = failed_by(snapshot)
    return "" if found is None else found.reason(snapshot)


def failed_by(snapshot: Snapshot) -> Failure | None:
    """Return the first of `FAILURES` that applies, None if the migration has not failed."""
    if snapshot.moved:
        return None
    for each in FAILURES:
        if each.without_state and snapshot.state is not None:
            continue
        if each.reason(snapshot):
            return each
    return None


def deadlines(migration: Migration, target: Pod) -> list[datetime]:
    """Return when a pending target pod must have started, and when it must have a node."""
    found = [target.created + migration.pending_timeout]
    if target.unschedulable:
        found.append(target.unschedulable_since + migration.unschedulable_timeout)
    return found


def resize_time_left(snapshot: Snapshot) -> timedelta:
    """Return how long a guest on its target may still take to reach its new size."""
    state = snapshot.state
    if state is None or state.ended is None:
        return timedelta(0)
    return max(state.ended + RESIZE_TIMEOUT - snapshot.now, timedelta(0))


def _walk(phase: str, snapshot: Snapshot) -> list[str]:
    """Follow the transitions that apply, one after the other."""
    passed = []
    for each in TRANSITIONS:
        if each.phase == phase and each.condition(snapshot):
            phase = each.next
            passed.append(phase)
    return passed


# ---------------------------------------------------------------- conditions


def _accepted(_: Snapshot) -> bool:
    return True


def _target_created(snapshot: Snapshot) -> bool:
    return snapshot.target is not None or _handed_over(snapshot)


def _target_started(snapshot: Snapshot) -> bool:
    target = snapshot.target
    started = target is not None and target.phase == "Running" and bool(target.node)
    return started or _handed_over(snapshot)


def _handed_over(snapshot: Snapshot) -> bool:
    return snapshot.state is not None or snapshot.moved


def _target_prepared(snapshot: Snapshot) -> bool:
    state = snapshot.state
    return (state is not None and state.prepared) or _transfer_started(snapshot)


def _transfer_started(snapshot: Snapshot) -> bool:
    state = snapshot.state
    return (state is not None and state.started) or snapshot.moved


def _completed(snapshot: Snapshot) -> bool:
    """Return whether the guest has moved and nothing remains to be waited for."""
    vmi = snapshot.vmi
    if not snapshot.moved:
        return False
    if vmi is None or not vmi.running or snapshot.migration.deleting:
        return True
    return not vmi.pending_change or not resize_time_left(snapshot)


TRANSITIONS = (
    Transition("", _accepted, "Pending", "the controller sees the migration"),
    Transition("Pending", _target_created, "Scheduling", "the target pod exists"),
    Transition(
        "Scheduling", _target_started, "Scheduled", "the target pod runs on a node"
    ),
    Transition(
        "Scheduled", _handed_over, "PreparingTarget",
        "`migrationState` of the instance names the migration",
    ),
    Transition(
        "PreparingTarget", _target_prepared, "TargetReady",
        "the target node has set `targetNodeAddress`",
    ),
    Transition(
        "TargetReady", _transfer_started, "Running", "the source node has set `startTimestamp`"
    ),
    Transition(
        "Running", _completed, "Succeeded",
        "the target node has set `completed`, and the guest has its new size or 2 minutes have "
        "passed",
    ),
)  # fmt: skip


# ---------------------------------------------------------------- failures


def _instance_gone(snapshot: Snapshot) -> str:
    return "the instance is gone" if snapshot.vmi is None else ""


def _nodes_failed(snapshot: Snapshot) -> str:
    state = snapshot.state
    if state is None or not state.ended:
        return ""
    return state.failure or "the nodes gave no reason"


def _guest_ended(snapshot: Snapshot) -> str:
    vmi = snapshot.vmi
    return "the guest has ended" if vmi is not None and vmi.final else ""


def _instance_deleted(snapshot: Snapshot) -> str:
    vmi = snapshot.vmi
    return "the instance is being deleted" if vmi is not None and vmi.deleting else ""


def _state_lost(snapshot: Snapshot) -> str:
    handed_over = snapshot.migration.phase in _HANDED_OVER
    return "the instance no longer knows of the migration" if handed_over else ""


def _cancelled(snapshot: Snapshot) -> str:
    return CANCELLED if snapshot.migration.deleting else ""


def _conflicting(snapshot: Snapshot) -> str:
    if not snapshot.conflicting:
        return ""
    return f"migration {snapshot.conflicting} of the instance is under way already"


def _not_migratable(snapshot: Snapshot) -> str:
    vmi = snapshot.vmi
    if vmi is None or vmi.copying_volume:  # a copy ends, and then it may be migratable
        return ""
    return vmi.not_migratable


def _target_lost(snapshot: Snapshot) -> str:
    target = snapshot.target
    if snapshot.target_replaced:
        return ""
    if target is None:
        lost = snapshot.migration.phase in ("Scheduling", "Scheduled")
    else:
        lost = target.ended or target.deleting
    return _POD_LOST if lost else ""


def _target_timed_out(snapshot: Snapshot) -> str:
    migration, target = snapshot.migration, snapshot.target
    if snapshot.target_replaced or target is None or target.phase != "Pending":
        return ""
    if snapshot.now < min(deadlines(migration, target)):
        return ""
    if target.unschedulable:
        seconds = f"{(snapshot.now - target.unschedulable_since).total_seconds():.0f} s"
        return f"there was no node for the target pod within {seconds}: {target.unschedulable}"
    seconds = f"{migration.pending_timeout.total_seconds():.0f} s"
    return f"the target pod did not start within {seconds}"


#: The first that applies is the reason; none does once the guest runs on the target.
FAILURES = (
    Failure("InstanceGone", _instance_gone, "the instance no longer exists"),
    Failure("NodesFailed", _nodes_failed, "a node has set `failed` in `migrationState`"),
    Failure("GuestEnded", _guest_ended, "the guest has ended"),
    Failure("InstanceDeleted", _instance_deleted, "the instance is being deleted"),
    Failure(
        "StateLost", _state_lost,
        "it was handed over, and the state is gone or has become another migration's",
        without_state=True,
    ),
    Failure("Cancelled", _cancelled, "the migration is deleted", without_state=True),
    Failure(
        "Conflicting", _conflicting, "an earlier migration of the instance is under way",
        without_state=True,
    ),
    Failure(
        "NotMigratable", _not_migratable, "`LiveMigratable` of the instance is False",
        without_state=True,
    ),
    Failure(
        "TargetLost", _target_lost, "the target pod ended or was deleted", without_state=True
    ),
    Failure(
        "TargetTimedOut", _target_timed_out,
        "the target pod got no node, or did not start, in time", without_state=True,
    ),
)  # fmt: skip
