"""Where a migration stands and how it ended, as its VM's owner is told."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.cli.vm import migrate
from livevirt.cli.vm.migrate import Outcome, View

Object = dict[str, Any]

HANDED_OVER = {"sourceNode": "node01", "targetNode": "node02"}
NO_ROOM = "0/2 nodes are available: 1 Insufficient memory"


def a_migration(
    phase: str = "", *, vm: str = "web", deleting: bool = False, over_quota: str = "", **state: Any
) -> Object:
    meta: Object = {"name": "kubevirt-migrate-vm-x", "uid": "u1"}
    if deleting:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    status: Object = {"phase": phase} if phase else {}
    if state:
        status["migrationState"] = state
    if over_quota:
        condition = {"type": "migrationRejectedByResourceQuota", "status": "True"}
        status["conditions"] = [{**condition, "message": over_quota}]
    return {"metadata": meta, "spec": {"vmiName": vm}, "status": status}


def a_pod(node: str = "") -> Object:
    if node:
        bound = [{"type": "PodScheduled", "status": "True"}]
        return {"spec": {"nodeName": node}, "status": {"conditions": bound}}
    unbound = {"type": "PodScheduled", "status": "False", "message": NO_ROOM}
    return {"spec": {}, "status": {"conditions": [unbound]}}


def a_vmi(node: str, phase: str = "Running") -> Object:
    return {"status": {"phase": phase, "nodeName": node}}


OUTCOMES: dict[str, tuple[View, Outcome | None]] = {
    "nobody has looked at it yet": (View(a_migration()), None),
    "it waits": (View(a_migration("Pending")), None),
    "the guest has arrived and still gets its new size": (
        View(a_migration("Running", completed=True)), None,
    ),
    "it was asked to stop": (View(a_migration("Running", deleting=True)), None),
    "it succeeded": (View(a_migration("Succeeded")), Outcome.MOVED),
    "it was asked to stop too late": (
        View(a_migration("Succeeded", deleting=True)), Outcome.MOVED,
    ),
    "it succeeded and was cleared away": (View(a_migration("Succeeded"), gone=True), Outcome.MOVED),
    "it failed": (View(a_migration("Failed")), Outcome.FAILED),
    "it took too long": (View(a_migration("Failed", abortRequested=True)), Outcome.FAILED),
    "it was stopped": (View(a_migration("Failed", deleting=True)), Outcome.CANCELLED),
    "it is gone": (View(a_migration("Scheduling"), gone=True), Outcome.CANCELLED),
}  # fmt: skip


@pytest.mark.parametrize(("view", "end"), OUTCOMES.values(), ids=OUTCOMES)
def test_outcomes(view: View, end: Outcome | None) -> None:
    assert migrate.outcome(view) is end


STATES = {
    "at first": (View(a_migration(), "node01"), "accepted, on node01"),
    "a quota has no room for a second pod": (
        View(a_migration("Pending", over_quota="exceeded quota: small"), "node01"),
        "Pending, on node01: exceeded quota: small",
    ),
    "no node has room": (
        View(a_migration("Scheduling"), "node01", a_pod()), f"Scheduling, on node01: {NO_ROOM}",
    ),
    "the target has a node": (
        View(a_migration("Scheduling"), "node01", a_pod("node02")), "Scheduling, node01 -> node02",
    ),
    "the nodes are at it": (
        View(a_migration("Running", **HANDED_OVER), "elsewhere"), "Running, node01 -> node02",
    ),
    "the guest has arrived": (
        View(a_migration("Running", completed=True, **HANDED_OVER)),
        "Running, node01 -> node02: the guest has arrived",
    ),
    "somebody deleted it": (
        View(a_migration("Running", deleting=True, **HANDED_OVER)),
        "Running, node01 -> node02: it is being stopped",
    ),
    "it takes too long": (
        View(a_migration("Running", abortRequested=True, **HANDED_OVER)),
        "Running, node01 -> node02: it is being stopped",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("view", "text"), STATES.values(), ids=STATES)
def test_states(view: View, text: str) -> None:
    assert migrate.state(view) == text


NEXT = (
    "see `kubectl describe vmim kubevirt-migrate-vm-x -n apps`,"
    " try again with `virtctl migrate web -n apps`"
)
TOLD = {
    "moved": (
        View(a_migration("Succeeded", **HANDED_OVER)), a_vmi("node02"),
        "VM web moved from node01 to node02",
    ),
    "moved, and only the instance knows where to": (
        View(a_migration("Succeeded"), "node01"), a_vmi("node02"),
        "VM web moved from node01 to node02",
    ),
    "cancelled": (
        View(a_migration("Failed", deleting=True)), a_vmi("node01"),
        "the migration of VM web was cancelled; the guest runs on node01",
    ),
    "failed with a reason": (
        View(a_migration("Failed", failureReason="QEMU died on node02")), a_vmi("node01"),
        f"VM web was not migrated: QEMU died on node02; the guest runs on node01; {NEXT}",
    ),
    "failed for want of a node": (
        View(a_migration("Failed"), "node01", a_pod()), a_vmi("node01"),
        f"VM web was not migrated: {NO_ROOM}; the guest runs on node01; {NEXT}",
    ),
    "failed because the guest ended": (
        View(a_migration("Failed", failureReason="the guest ended")), a_vmi("node01", "Succeeded"),
        f"VM web was not migrated: the guest ended; its guest does not run; {NEXT}",
    ),
    "failed, and the instance is gone": (
        View(a_migration("Failed")), None,
        f"VM web was not migrated: no reason was given; its guest does not run; {NEXT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("view", "vmi", "text"), TOLD.values(), ids=TOLD)
def test_what_is_told(view: View, vmi: Object | None, text: str) -> None:
    end = migrate.outcome(view)
    assert end is not None
    assert migrate.outcome_message(view, end, vmi, "apps") == text


def test_a_migration_that_is_not_waited_for_any_longer_can_be_watched_or_stopped() -> None:
    text = migrate.too_slow(View(a_migration("Running", **HANDED_OVER)), 90, "apps")
    assert text == (
        "VM web still migrates after 90 s (Running, node01 -> node02), and goes on; watch it with"
        " `virtctl migrate web -n apps --wait`, stop it with `virtctl migrate-cancel web -n apps`"
    )


def test_only_a_vms_own_migrations_that_go_on_count() -> None:
    going = [a_migration(), a_migration("Running", deleting=True)]
    others = [a_migration("Succeeded"), a_migration("Failed"), a_migration("Running", vm="db")]
    assert migrate.unfinished([*others, *going], "web") == going
