"""Plan: which steps bring a migration on, or clean up after it. Frozen data in, steps out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from livevirt.vm.migration.phases import CANCELLED, deadlines, failure, reached, resize_time_left
from livevirt.vm.migration.snapshot import Instance, MigrationState, Pod, Snapshot

TARGET_LOST = "the target pod ended before the migration began"


@dataclass(frozen=True, slots=True)
class CreateTarget:
    """Create the target pod."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Write source and target into the instance's `migrationState`: its nodes act from then on."""


@dataclass(frozen=True, slots=True)
class RequestAbort:
    """Ask the nodes to abort the migration in the instance's `migrationState`."""


@dataclass(frozen=True, slots=True)
class FailState:
    """Write into the instance's `migrationState` that the migration failed before it began."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod without a guest."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReplaceTarget:
    """Delete a target pod that is too small by now; once it is gone another is created."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RemoveTargetLabel:
    """Remove the label with the target node from the instance."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove our finalizer from the migration."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Reconcile again after that time."""

    time: timedelta


Step = (
    CreateTarget
    | HandOver
    | RequestAbort
    | FailState
    | DeletePod
    | ReplaceTarget
    | RemoveTargetLabel
    | RemoveFinalizer
    | Wait
)


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """What the controller does in a phase."""

    steps: Callable[[Snapshot], list[Step]]
    summary: str  # as the docs say it


def plan(snapshot: Snapshot) -> list[Step]:
    """List the steps towards a guest on another node, or those that clean up after it."""
    if snapshot.migration.final:
        return PLANS[snapshot.migration.phase].steps(snapshot)
    if failure(snapshot):
        return stop(snapshot.state, snapshot.target) if snapshot.state is not None else []
    phase = reached(snapshot)
    if phase == "Succeeded":
        return []  # that is recorded before anything is deleted
    return PLANS[phase].steps(snapshot)


def stop(state: MigrationState, target: Pod | None) -> list[Step]:
    """List what stops a migration that was handed over.

    That is up to the nodes, unless there is no target and the transfer has not begun.
    """
    if state.ended:
        return []
    if not state.started and (target is None or target.ended):
        return [FailState(CANCELLED if state.abort_requested else TARGET_LOST)]
    return [] if state.abort_requested else [RequestAbort()]


def abandoned(vmi: Instance, pod: Pod, uid: str) -> list[Step]:
    """List what to do about the target pod of a migration that no longer exists."""
    state = vmi.state
    if state is not None and state.uid == uid and not state.ended:
        return stop(state, pod)
    if pod.deleting or pod.name == _guest_pod(state) or not (pod.ended or pod.node != vmi.node):
        return []  # the guest runs in it
    return [DeletePod(pod.name, pod.uid)]


def _guest_pod(state: MigrationState | None) -> str:
    """Return the pod in which the last migration left the guest, if there was one."""
    if state is None:
        return ""
    return state.target_pod if state.completed else state.source_pod


# ---------------------------------------------------------------- by phase


def _create_target(snapshot: Snapshot) -> list[Step]:
    vmi = snapshot.vmi
    if vmi is None or not vmi.running or vmi.copying_volume or snapshot.target_expected:
        return []  # a change of the instance or the pod triggers the next reconcile
    if wait := max(snapshot.back_off, snapshot.retry_in):
        return [Wait(wait)]
    if snapshot.admitted or snapshot.target_replaced:
        return [CreateTarget()]
    return [Wait(_queue_poll(snapshot.migration.priority))]


def _queue_poll(priority: int) -> timedelta:
    """Return how long a queued migration waits at most before it checks the queue by itself."""
    return timedelta(seconds=1 if priority >= 100 else 3 if priority >= 50 else 5)


def _await_target(snapshot: Snapshot) -> list[Step]:
    target = snapshot.target
    if target is None or snapshot.target_replaced:
        return []
    if target.too_small:
        return [ReplaceTarget(target.name, target.uid)]
    if target.phase == "Pending":
        return [Wait(min(deadlines(snapshot.migration, target)) - snapshot.now)]
    return []


def _hand_over(snapshot: Snapshot) -> list[Step]:
    vmi, target = snapshot.vmi, snapshot.target
    if vmi is None or target is None or snapshot.target_replaced:
        return []
    if target.too_small:
        return [ReplaceTarget(target.name, target.uid)]
    if not vmi.running or vmi.copying_volume:
        return []
    if vmi.state is None or vmi.state.ended:
        return [HandOver()] if snapshot.source is not None else []
    return stop(vmi.state, snapshot.orphaned_target) if snapshot.orphaned else []


def _follow_nodes(snapshot: Snapshot) -> list[Step]:
    state, target = snapshot.state, snapshot.target
    if snapshot.moved:
        return [Wait(resize_time_left(snapshot))]
    if state is None:
        return []
    lost = not state.started and (target is None or target.ended)
    return stop(state, target) if snapshot.migration.deleting or lost else []


def _clean_up(snapshot: Snapshot) -> list[Step]:
    """List what is left to do for a migration that has ended."""
    migration, vmi, state = snapshot.migration, snapshot.vmi, snapshot.state
    steps: list[Step] = []
    if vmi is not None and state is not None and vmi.target_label and state.ended:
        steps = [RemoveTargetLabel()]
    left = snapshot.source if migration.phase == "Succeeded" else snapshot.target
    if left is None or left.ended or vmi is None or vmi.deleting or left.node == vmi.node:
        return steps or ([RemoveFinalizer()] if migration.finalizer else [])
    # The migration keeps its finalizer until the pod is gone.
    if state is not None and not state.ended:
        return stop(state, snapshot.target)
    return steps if left.deleting else [DeletePod(left.name, left.uid), *steps]


_WATCH = "requests an abort if the migration is deleted; sets `failed` if the target pod is lost"
#: By the phase that the instance and the pods show, which may be ahead of the recorded one.
PLANS: Mapping[str, PhasePlan] = {
    "Pending": PhasePlan(
        _create_target,
        "creates the target pod once the queue admits the migration, no back-off applies, and "
        "the guest runs and copies no volume",
    ),
    "Scheduling": PhasePlan(_await_target, "replaces a target pod that has become too small"),
    "Scheduled": PhasePlan(
        _hand_over,
        "replaces a target pod that has become too small, else writes `migrationState` (the "
        "handoff)",
    ),
    "PreparingTarget": PhasePlan(_follow_nodes, f"{_WATCH} before the transfer starts"),
    "TargetReady": PhasePlan(_follow_nodes, f"{_WATCH} before the transfer starts"),
    "Running": PhasePlan(_follow_nodes, "requests an abort if the migration is deleted"),
    "Succeeded": PhasePlan(_clean_up, "deletes the source pod, then removes the finalizer"),
    "Failed": PhasePlan(_clean_up, "deletes the target pod, then removes the finalizer"),
}
