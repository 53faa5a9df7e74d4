from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.kube.objects import conditions
from livevirt.node import exit_record, pod_status
from livevirt.node.pod_status import UNPAUSED, ObservedPod, Resources, Waiting

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"
ASKED = {"requests": {"cpu": "1"}}
GRANTED = Resources({"cpu": "1"}, ASKED)


def a_pod(**status: Any) -> Any:
    return {
        "metadata": {"name": "p", "uid": "u", "generation": 3},
        "spec": {
            "containers": [{"name": "compute", "image": "qemu", "resources": ASKED}],
            "readinessGates": [{"conditionType": UNPAUSED}],
        },
        "status": {"qosClass": "Burstable", **status},
    }


def status(pod: Any = None, **seen: Any) -> Any:
    facts = {"pod": pod or a_pod(), "now": NOON, "resources": GRANTED, **seen}
    return pod_status.status(ObservedPod(**facts))


def said(found: Any, type_: str) -> tuple[str, str]:
    condition = conditions.find(found["conditions"], type_) or {}
    return condition.get("status", ""), condition.get("reason", "")


def test_given_an_image_is_missing_then_the_container_waits_for_it() -> None:
    found = status(waiting=Waiting("ErrImagePull", "no such image"))
    assert found["phase"] == "Pending"
    waiting = found["containerStatuses"][0]["state"]["waiting"]
    message = conditions.human_readable("no such image")
    assert waiting == {"reason": "ErrImagePull", "message": message}
    assert said(found, "Ready") == ("False", "ContainersNotReady")
    assert "podIP" not in found


def test_given_it_runs_then_everything_is_ready() -> None:
    found = status(started=AT)
    container = found["containerStatuses"][0]
    assert found["phase"] == "Running"
    assert container["state"] == {"running": {"startedAt": AT}}
    assert container["allocatedResources"] == {"cpu": "1"}
    assert container["resources"] == ASKED
    for type_ in ("Initialized", "ContainersReady", "Ready"):
        assert said(found, type_) == ("True", "")
    assert found["qosClass"] == "Burstable"


def test_given_a_paused_guest_then_the_gate_keeps_the_pod_unready() -> None:
    found = status(started=AT, paused=True)
    assert said(found, UNPAUSED) == ("False", "Paused")
    assert said(found, "ContainersReady") == ("True", "")
    assert said(found, "Ready") == ("False", "ReadinessGatesNotReady")


ENDINGS = {
    "shut down": (exit_record.destroyed(AT), "Succeeded", "Completed", 0, "PodCompleted"),
    "crashed": (
        exit_record.vanished(AT, oom_killed=False, rebooted=False, complaint=""),
        "Failed", "Error", 1, "PodFailed",
    ),
    "out of memory": (
        exit_record.vanished(AT, oom_killed=True, rebooted=False, complaint=""),
        "Failed", "OOMKilled", 137, "PodFailed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("end", "phase", "reason", "code", "ready"), ENDINGS.values(), ids=ENDINGS)
def test_how_a_guest_ended_is_told(
    end: Any, phase: str, reason: str, code: int, ready: str
) -> None:
    found = status(started=AT, ending=end)
    ended = found["containerStatuses"][0]["state"]["terminated"]
    assert (found["phase"], ended["reason"], ended["exitCode"]) == (phase, reason, code)
    assert said(found, "Ready") == ("False", ready)


def test_given_no_room_then_the_resize_is_pending_and_leaves_no_trace_once_granted() -> None:
    refused = Resources({"cpu": "1"}, ASKED, pending=Waiting("Deferred", "no room"))
    found = status(started=AT, resources=refused)
    pending = conditions.find(found["conditions"], "PodResizePending")
    assert pending is not None
    assert (pending["reason"], pending["observedGeneration"]) == ("Deferred", 3)
    assert conditions.find(status(found and a_pod(**found), started=AT)["conditions"],
                           "PodResizePending") is None  # fmt: skip


def test_given_the_kernel_refuses_then_the_resize_is_in_progress_with_an_error() -> None:
    found = status(started=AT, resources=Resources({"cpu": "2"}, ASKED, failed="busy"))
    assert said(found, "PodResizeInProgress") == ("True", "Error")


def test_a_status_that_is_right_stays_as_it_is() -> None:
    found = status(started=AT)
    again = status(a_pod(**found), started=AT, now=datetime(2027, 1, 1, tzinfo=UTC))
    assert again == found
