"""Changes of size: the facts that tell of one, and the conditions they make."""

from typing import Any

import pytest

from livevirt.kube.objects import conditions
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.hot_change import Obstacle
from livevirt.vm.verdict.comparison import MEMORY, SOCKETS
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict

CPU, RAM = "HotVCPUChange", "HotMemoryChange"
OVER_QUOTA = Obstacle("OverQuota", "short")


def a_change(path: str, verdict: Verdict) -> Ruling:
    return Ruling(verdict, Reason.POD_RESIZE, "why", path=path, running=1, wanted=3)


def a_vmi(sockets: int = 1, memory: str = "512Mi", **status: Any) -> Any:
    """Return an instance of one socket and 512Mi that asks for that size."""
    has = {"currentCPUTopology": {"sockets": 1}, "memory": {"guestCurrent": "512Mi"}}
    domain = {"cpu": {"sockets": sockets, "maxSockets": 4}, "memory": {"guest": memory}}
    return {"metadata": {"name": "web"}, "spec": {"domain": domain}, "status": has | status}


def changing(sockets: int = 3, memory: str = "512Mi", **status: Any) -> Any:
    return a_vmi(sockets, memory, sizeRevision={"cpu": 1}, **status)


REQUESTS = {
    "both": ({SOCKETS: Verdict.LIVE_AFTER_RESIZE, MEMORY: Verdict.LIVE}, {"cpu": 5, "memory": 1}),
    "one": ({SOCKETS: Verdict.LIVE_AFTER_MIGRATION}, {"cpu": 5}),
    "what waits for a restart": ({SOCKETS: Verdict.RESTART}, None),
    "something else": ({"spec.template.spec.nodeSelector": Verdict.LIVE}, None),
}


@pytest.mark.parametrize(("edits", "revision"), REQUESTS.values(), ids=REQUESTS)
def test_each_live_change_of_a_size_is_counted(edits: Any, revision: Any) -> None:
    judgement = Judgement(tuple(a_change(path, verdict) for path, verdict in edits.items()))
    vmi = a_vmi(sizeRevision={"cpu": 4}, observedSizeRevision={"cpu": 4})
    assert hot_change.requested(judgement, vmi) == revision


UNDER_WAY = {
    "never changed": (a_vmi(), []),
    "asked for": (changing(), [CPU]),
    "done": (changing(observedSizeRevision={"cpu": 1}), []),
    "another one": (a_vmi(sizeRevision={"cpu": 2}, observedSizeRevision={"cpu": 1}), [CPU]),
    "reported": (a_vmi(conditions=[conditions.condition(RAM, True)]), [RAM]),
    "ended": (changing(phase="Failed"), []),
}


@pytest.mark.parametrize(("vmi", "types"), UNDER_WAY.values(), ids=UNDER_WAY)
def test_whether_a_change_is_under_way(vmi: Any, types: list[str]) -> None:
    assert hot_change.under_way(vmi) == types


def test_a_change_is_observed_by_itself() -> None:
    vmi = a_vmi(sizeRevision={"cpu": 2, "memory": 3}, observedSizeRevision={"cpu": 1})
    assert hot_change.observed(vmi, [RAM]) == {"cpu": 1, "memory": 3}
    assert hot_change.observed(vmi, []) == {"cpu": 1}
    assert hot_change.observed(a_vmi(), [CPU]) is None


def test_an_obstacle_is_of_one_change_only() -> None:
    vmi = changing()
    vmi["status"]["podResize"] = hot_change.pod_resize(vmi, OVER_QUOTA)
    found = hot_change.obstacle(vmi)
    assert found is not None
    assert found.reason == "OverQuota"
    assert hot_change.reason_of(vmi, CPU) == "OverQuota"
    assert hot_change.pod_resize(vmi, found) is vmi["status"]["podResize"]
    assert hot_change.pod_resize(vmi, OVER_QUOTA) == vmi["status"]["podResize"]
    vmi["status"]["sizeRevision"] = {"cpu": 2}
    assert hot_change.obstacle(vmi) is None
    assert hot_change.reason_of(vmi, CPU) == ""
    assert hot_change.pod_resize(vmi, None) is None


def test_without_an_obstacle_the_condition_tells_where_a_change_stands() -> None:
    vmi = changing(conditions=[hot_change.condition(CPU, "Plugging", "m")])
    assert hot_change.reason_of(vmi, CPU) == "Plugging"
    assert hot_change.reason_of(vmi, RAM) == ""


BEGUN = {
    "it grows": (changing(), [(CPU, "WaitingForResize")]),
    "it shrinks": (changing(1, currentCPUTopology={"sockets": 3}), [(CPU, "Unplugging")]),
    "its pod may not grow": (
        changing(podResize={"reason": "OverQuota", "sizeRevision": {"cpu": 1}}),
        [(CPU, "OverQuota")],
    ),
    "the node has reported it": (
        changing(conditions=[hot_change.condition(CPU, "Plugging", "m")]), [(CPU, "Plugging")],
    ),
    "both": (
        a_vmi(2, "1Gi", sizeRevision={"cpu": 1, "memory": 1}),
        [(CPU, "WaitingForResize"), (RAM, "WaitingForResize")],
    ),
    "none": (a_vmi(conditions=[{"type": "Ready", "reason": "r"}]), [("Ready", "r")]),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "expected"), BEGUN.values(), ids=BEGUN)
def test_a_vm_shows_changes_that_its_instance_has_not_reported(vmi: Any, expected: Any) -> None:
    found = hot_change.reported(vmi)
    assert [(each["type"], each["reason"]) for each in found] == expected


@pytest.mark.wording
def test_a_change_names_both_sizes() -> None:
    assert "1 -> 3" in hot_change.begun(changing(), CPU)["message"]
    assert "512Mi -> 1Gi" in hot_change.begun(a_vmi(1, "1Gi"), RAM)["message"]
