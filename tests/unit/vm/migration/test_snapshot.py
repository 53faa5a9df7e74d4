from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object
from livevirt.vm.migration import snapshot
from livevirt.vm.migration.phases import deadlines

from .migration_builders import NOON

NOW = "2030-01-01T12:00:00Z"


def a_migration(status: Object | None = None, **rest: Any) -> Object:
    meta = {"name": "move", "uid": "m1", "creationTimestamp": NOW, **rest.pop("metadata", {})}
    return {"metadata": meta, "spec": {"vmiName": "web", **rest}, "status": status or {}}


def a_condition(type_: str, status: str = "True", reason: str = "") -> Condition:
    return {"type": type_, "status": status, "reason": reason}


WAITS = {
    "given nothing": ([], ""),
    "given a change of CPUs, whatever it says": (
        [a_condition("HotVCPUChange", "False")], "HotVCPUChange",
    ),
    "given a change of memory": ([a_condition("HotMemoryChange")], "HotMemoryChange"),
    "given one that failed": ([a_condition("HotMemoryChange", "False")], ""),
    "given a guest that does not take it": (
        [a_condition("HotMemoryChange", reason="GuestNotAccepting")], "",
    ),
    "given a plug that failed": ([a_condition("HotVCPUChange", reason="PlugFailed")], ""),
    "given a migration that is required": (
        [a_condition("MigrationRequired")], "MigrationRequired",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("listed", "what"), WAITS.values(), ids=WAITS)
def test_what_a_guest_that_arrived_still_needs(listed: list[Condition], what: str) -> None:
    vmi = {"metadata": {"uid": "v1"}, "status": {"conditions": listed}}
    assert snapshot.read_instance(vmi).pending_change == what


def test_given_annotations_then_the_timeouts_are_theirs() -> None:
    given = {snapshot.UNSCHEDULABLE_SECONDS: "3", snapshot.PENDING_SECONDS: "soon"}
    found = snapshot.read_migration(a_migration(metadata={"annotations": given}))
    assert found.unschedulable_timeout == timedelta(seconds=3)
    assert found.pending_timeout == timedelta(seconds=900)


@pytest.mark.parametrize("seconds", ["999999999999", "9" * 20, "9" * 5000])
def test_given_a_timeout_beyond_any_calendar_then_it_is_a_very_long_one(seconds: str) -> None:
    given = {snapshot.UNSCHEDULABLE_SECONDS: seconds, snapshot.PENDING_SECONDS: f"00{seconds}"}
    found = snapshot.read_migration(a_migration(metadata={"annotations": given}))
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Pending", "conditions": [{**waits, "lastTransitionTime": NOW}]}
    meta = {"name": "target", "uid": "p1", "creationTimestamp": NOW}
    target = snapshot.read_pod({"metadata": meta, "spec": {}, "status": status})
    much_later = NOON + timedelta(days=10_000)
    assert all(deadline > much_later for deadline in deadlines(found, target))


@pytest.mark.parametrize(
    ("annotations", "automatic"),
    [
        ({}, False),
        ({snapshot.WORKLOAD_UPDATE: ""}, True),
        ({snapshot.EVACUATION: "n1"}, True),
        ({snapshot.EVACUATION: "n1", snapshot.NO_BACK_OFF: ""}, False),
    ],
)
def test_only_what_controllers_ask_for_backs_off(annotations: Object, automatic: bool) -> None:
    found = snapshot.read_migration(a_migration(metadata={"annotations": annotations}))
    assert found.automatic is automatic


def test_given_a_final_one_then_it_knows_when_it_ended() -> None:
    passed = [
        {"phase": "Pending", "phaseTransitionTimestamp": "2030-01-01T11:00:00Z"},
        {"phase": "Failed", "phaseTransitionTimestamp": NOW},
    ]
    found = snapshot.read_migration(
        a_migration({"phase": "Failed", "phaseTransitionTimestamps": passed})
    )
    assert found.finished == NOON
    assert snapshot.read_migration(a_migration({"phase": "Running"})).finished is None


def test_the_priority_is_the_place_in_the_queue() -> None:
    found = [
        snapshot.read_migration(a_migration(priority=p)).priority for p in ("system-critical", "")
    ]
    assert found == [100, 0]


def test_given_a_pod_without_a_node_then_since_when() -> None:
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes", "lastTransitionTime": NOW,
    }  # fmt: skip
    pod = {
        "metadata": {"name": "p", "uid": "p1"},
        "spec": {},
        "status": {"conditions": [condition]},
    }
    found = snapshot.read_pod(pod)
    assert (found.unschedulable, found.unschedulable_since) == ("0/1 nodes", NOON)
