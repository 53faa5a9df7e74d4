from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi.plan import (
    PATIENCE,
    CreatePod,
    DeletePod,
    LetGo,
    Step,
    Wait,
    phase,
    plan,
)
from livevirt.vm.lifecycle.vmi.status import changes, label_changes
from livevirt.vm.lifecycle.vmi.view import Instance, InstanceSnapshot, Launcher, Problem, pod

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def a_pod(node: str = "", phase: str = "Pending", **rest: Any) -> Launcher:
    return Launcher("pod", "p1", node, phase, **rest)


def seen(vmi: Instance | str, *pods: Launcher, left: int = 0, **rest: Problem) -> InstanceSnapshot:
    instance = Instance(vmi) if isinstance(vmi, str) else vmi
    return InstanceSnapshot(instance, pods, left=timedelta(seconds=left), **rest)  # type: ignore[arg-type]


def leaving(phase: str, grace: int = 30, **rest: Any) -> Instance:
    return Instance(phase, deleting=True, grace=grace, **rest)


BOUND, RUNNING = a_pod("n1"), a_pod("n1", "Running")
OTHER = Launcher("target", "p2", "n2", "Running", home=False)

RULES: dict[str, tuple[InstanceSnapshot, str, list[Step]]] = {
    "given no pod, then create it": (seen("Pending"), "Pending", [CreatePod()]),
    "given something missing, then wait for it": (
        seen("Pending", missing="X: y"), "Pending", [],
    ),
    "given a pod without a node, then Scheduling": (seen("Pending", a_pod()), "Scheduling", []),
    "given a pod with a node, then Scheduled": (seen("Pending", BOUND), "Scheduled", []),
    "given Scheduling, when it has a node, then Scheduled": (
        seen("Scheduling", BOUND), "Scheduled", [],
    ),
    "given Scheduled, then the node tells what is next": (
        seen("Scheduled", RUNNING), "Scheduled", [],
    ),
    "given a pod that failed before it had a node, then Failed": (
        seen("Pending", a_pod(phase="Failed")), "Failed", [],
    ),
    "given Scheduling, when the pod is lost, then Failed": (seen("Scheduling"), "Failed", []),
    "given Running, when the pod is lost, then the node may tell how": (
        seen("Running"), "Running", [Wait(PATIENCE)],
    ),
    "given Running, when the node tells nothing, then Failed": (
        seen("Running", left=5), "Failed", [],
    ),
    "given Scheduled, when the pod ended, then the node may tell how": (
        seen("Scheduled", a_pod("n1", "Failed"), left=2), "Scheduled", [Wait(timedelta(seconds=3))],
    ),
    "given an ended guest, then its pod stays": (
        seen("Succeeded", a_pod("n1", "Succeeded")), "Succeeded", [],
    ),
    "given a deletion, then the pod goes first": (
        seen(leaving("Running"), RUNNING), "Running", [DeletePod("pod", "p1", 30)],
    ),
    "given a deletion without grace, then the pod has a second": (
        seen(leaving("Running", 0), RUNNING), "Running", [DeletePod("pod", "p1", 1)],
    ),
    "given a pod that is going, then wait": (
        seen(leaving("Running"), a_pod("n1", "Running", deleting=True, grace=30)), "Running", [],
    ),
    "given a pod that is going too slowly, then hurry it": (
        seen(leaving("Running", 0), a_pod("n1", "Running", deleting=True, grace=30)),
        "Running", [DeletePod("pod", "p1", 1)],
    ),
    "given a deletion, when the guest ended and its pod is gone, then let go": (
        seen(leaving("Succeeded")), "Succeeded", [LetGo()],
    ),
    "given a deletion before there was a pod, then let go": (
        seen(leaving("Pending")), "Failed", [LetGo()],
    ),
    "given a deletion, when nobody told how it ended, then wait a little": (
        seen(leaving("Running")), "Running", [Wait(PATIENCE)],
    ),
    "given a deletion, when nobody tells, then let go": (
        seen(leaving("Running"), left=5), "Failed", [LetGo()],
    ),
    "given a deletion held by others only, then nothing": (
        seen(leaving("Succeeded", held=False)), "Succeeded", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "next_phase", "steps"), RULES.values(), ids=RULES)
def test_plan(state: InstanceSnapshot, next_phase: str, steps: list[Step]) -> None:
    assert (phase(state), plan(state)) == (next_phase, steps)


# ---------------------------------------------------------------- status


def a_vmi(phase: str = "Pending", **status: Any) -> Object:
    return {"metadata": {"name": "web", "uid": "g1"}, "status": {"phase": phase, **status}}


def a_pod_object(*listed: Object) -> Object:
    return {
        "metadata": {"uid": "p1"},
        "status": {"qosClass": "Burstable", "conditions": list(listed)},
    }


def ready_reason(state: InstanceSnapshot, pod: Object | None) -> tuple[str, str]:
    found = changes(a_vmi(state.vmi.phase), pod, state, NOON)["conditions"]
    ready = conditions.find(found, "Ready")
    assert ready is not None
    return ready["status"], ready.get("reason", "")


READY = {"type": "Ready", "status": "True"}
WAITING = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
REASONS: dict[str, tuple[InstanceSnapshot, Object | None, tuple[str, str]]] = {
    "no pod": (seen("Pending"), None, ("False", "PodNotExists")),
    "a pod on its way out": (
        seen("Running", a_pod("n1", "Running", deleting=True)), a_pod_object(READY),
        ("False", "PodTerminating"),
    ),
    "a guest that does not run": (
        seen("Scheduled", RUNNING), a_pod_object(READY), ("False", "GuestNotRunning"),
    ),
    "a guest reported before its pod": (
        seen("Running", BOUND), a_pod_object(), ("False", "GuestNotRunning"),
    ),
    "a pod that does not say": (
        seen("Running", RUNNING), a_pod_object(), ("False", "PodConditionMissing"),
    ),
    "a pod that is not ready": (
        seen("Running", RUNNING), a_pod_object(WAITING), ("False", "ReadinessGatesNotReady"),
    ),
    "a pod that is ready": (seen("Running", RUNNING), a_pod_object(READY), ("True", "")),
}  # fmt: skip


@pytest.mark.parametrize(("state", "pod", "expected"), REASONS.values(), ids=REASONS)
def test_ready(state: InstanceSnapshot, pod: Object | None, expected: tuple[str, str]) -> None:
    assert ready_reason(state, pod) == expected


def test_an_instance_that_finds_its_node_is_told_so_in_one_write() -> None:
    state = seen("Pending", BOUND)
    found = changes(a_vmi(), a_pod_object(), state, NOON)
    assert found["phase"] == "Scheduled"
    assert found["nodeName"] == "n1"
    assert found["activePods"] == {"p1": "n1"}
    assert found["qosClass"] == "Burstable"
    assert [each["phase"] for each in found["phaseTransitionTimestamps"]] == ["Scheduled"]
    assert label_changes(a_vmi(), state) == {"kubevirt.io/nodeName": "n1"}


PODS: dict[str, tuple[dict[str, str], tuple[Launcher, ...], dict[str, str | None] | None]] = {
    "one that comes": ({"p1": "n1"}, (RUNNING, OTHER), {"p2": "n2"}),
    "both as told": ({"p1": "n1", "p2": "n2"}, (RUNNING, OTHER), None),
    "one that is gone": ({"p0": "n0", "p1": "n1"}, (RUNNING,), {"p0": None}),
    "one that has ended": (
        {"p1": "n1", "p2": "n2"}, (RUNNING, replace(OTHER, phase="Succeeded")), {"p2": None},
    ),
    "one without a node": ({"p1": "n1"}, (RUNNING, replace(OTHER, node="")), None),
    "none any more": ({"p1": "n1"}, (), {"p1": None}),
}  # fmt: skip


@pytest.mark.parametrize(("told", "pods", "change"), PODS.values(), ids=PODS)
def test_the_pods_that_are_there_are_listed(
    told: dict[str, str], pods: tuple[Launcher, ...], change: dict[str, str | None] | None
) -> None:
    vmi, pod = a_vmi("Running", activePods=told), a_pod_object() if pods else None
    assert changes(vmi, pod, seen("Running", *pods), NOON).get("activePods") == change


def test_a_status_that_is_right_is_not_written_again() -> None:
    state, vmi = seen("Scheduled", BOUND), a_vmi("Scheduled")
    vmi["status"] |= changes(vmi, a_pod_object(), state, NOON)
    assert changes(vmi, a_pod_object(), state, NOON) == {}


def test_the_nodes_own_conditions_are_left_alone() -> None:
    paused = {"type": "Paused", "status": "True"}
    state, vmi = seen("Running", RUNNING), a_vmi("Running", conditions=[paused])
    assert paused in changes(vmi, a_pod_object(READY), state, NOON)["conditions"]


MISSING = Problem("FailedPvcNotFound", "PVC a/b", "b")
PROBLEMS: dict[str, tuple[InstanceSnapshot, tuple[str, str]]] = {
    "a missing claim": (
        seen("Pending", missing=MISSING), ("FailedPvcNotFound", "PVC a/b"),
    ),
    "a missing image": (
        seen("Scheduled", a_pod("n1", problem=Problem("ErrImagePull", "no such image"))),
        ("ErrImagePull", "no such image"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", ["ErrImagePull", "FailedPvcNotFound", "ClaimInUse"])
def test_what_a_pod_waits_for_is_a_problem_of_its_instance(reason: str) -> None:
    waiting = {"reason": reason, "message": "not there"}
    compute = {"name": "compute", "state": {"waiting": waiting}}
    meta, status = {"name": "pod", "uid": "p1"}, {"containerStatuses": [compute]}
    found = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}
    assert pod(found, a_vmi("Scheduled")).problem == Problem(reason, "not there")
    waiting["reason"] = "ContainerCreating"
    assert pod(found, a_vmi("Scheduled")).problem is None


REFUSED = Problem("FailedCreate", "exceeded quota: small")
NEWS: dict[str, tuple[str, InstanceSnapshot, InstanceSnapshot, str]] = {
    "another claim is missing": (
        "Synchronized",
        seen("Pending", missing=MISSING),
        seen("Pending", missing=replace(MISSING, message="PVC a/c")),
        "PVC a/c",
    ),
    "the pod is refused for another cause": (
        "Synchronized",
        seen("Pending", failure=REFUSED),
        seen("Pending", failure=replace(REFUSED, message="must be less than the limit")),
        "must be less than the limit",
    ),
    "the nodes have another cause": (
        "PodScheduled",
        seen("Scheduling", a_pod(unschedulable=Problem("Unschedulable", "0/1: Insufficient cpu"))),
        seen(
            "Scheduling", a_pod(unschedulable=Problem("Unschedulable", "0/2: Insufficient memory"))
        ),
        "0/2: Insufficient memory",
    ),
}


@pytest.mark.wording
@pytest.mark.parametrize(("type_", "first", "second", "words"), NEWS.values(), ids=NEWS)
def test_the_words_of_a_condition_are_the_last_ones(
    type_: str, first: InstanceSnapshot, second: InstanceSnapshot, words: str
) -> None:
    def told(vmi: Object, state: InstanceSnapshot) -> dict[str, Any]:
        return changes(vmi, a_pod_object() if state.pods else None, state, NOON)

    vmi = a_vmi(first.vmi.phase)
    vmi["status"] |= told(vmi, first)
    assert told(vmi, first) == {}
    assert (conditions.find(told(vmi, second)["conditions"], type_) or {})["message"] == words


def test_a_claim_that_is_missing_is_named_until_it_is_there() -> None:
    vmi = a_vmi("Pending")
    vmi["status"] |= changes(vmi, None, seen("Pending", missing=MISSING), NOON)
    assert vmi["status"]["missingClaim"] == "b"
    assert changes(vmi, None, seen("Pending"), NOON)["missingClaim"] is None


@pytest.mark.parametrize(("state", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_keeps_the_guest_from_starting_is_told(
    state: InstanceSnapshot, problem: tuple[str, str]
) -> None:
    found = changes(a_vmi(state.vmi.phase), a_pod_object(), state, NOON)["conditions"]
    told = conditions.find(found, "Synchronized")
    assert told is not None
    assert (told["status"], told["reason"]) == ("False", problem[0])
    assert told["message"] == conditions.human_readable(problem[1])
    vmi = a_vmi("Running", conditions=found)
    after = changes(vmi, a_pod_object(READY), seen("Running", RUNNING), NOON)
    assert conditions.find(after["conditions"], "Synchronized") is None
