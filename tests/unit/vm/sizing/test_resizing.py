from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from livevirt.errors import Forbidden, Invalid
from livevirt.vm.sizing import resizing
from livevirt.vm.sizing.reservation import Size, held
from livevirt.vm.sizing.resizing import Ask, Attempts, Bounds
from livevirt.vm.spec.resources import Namespace

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FREE = Namespace()


def a_vmi(sockets: int = 1, has: int = 1, reason: str = "WaitingForResize") -> Any:
    domain = {"cpu": {"sockets": sockets, "maxSockets": 4}, "memory": {"guest": "512Mi"}}
    listed = [{"type": "HotVCPUChange", "status": "True", "reason": reason}] if reason else []
    return {
        "metadata": {"name": "web"},
        "spec": {"domain": domain},
        "status": {"conditions": listed, "currentCPUTopology": {"sockets": has}},
    }


def a_pod(sockets: int = 1) -> Any:
    need = held(a_vmi(), Size(sockets, 512 * 2**20))
    containers = [
        {"name": "compute", "resources": {"requests": need.requests}},
        {"name": "other", "resources": {"requests": {"cpu": "1"}}},
    ]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers}}


def test_only_the_container_of_the_guest_is_resized() -> None:
    need = resizing.needed(a_vmi(3), FREE)
    found = resizing.containers(a_vmi(3), a_pod(), need)
    assert found is not None
    assert [each["resources"]["requests"]["cpu"] for each in found] == ["300m", "1"]


@pytest.mark.parametrize(
    ("vmi", "pod", "back"),
    [
        (a_vmi(3), a_pod(3), False),
        (a_vmi(1, has=3), a_pod(3), False),  # the guest goes first
        (a_vmi(3, has=2), a_pod(2), True),
    ],
    ids=["asked for already", "shrinking", "failed"],
)
def test_a_pod_that_holds_what_it_must_is_left_alone(vmi: Any, pod: Any, back: bool) -> None:
    assert resizing.containers(vmi, pod, resizing.needed(vmi, FREE, back=back)) is None


def test_a_change_that_failed_gives_back_what_it_had_reserved() -> None:
    need = resizing.needed(a_vmi(3, has=2), FREE, back=True)
    found = resizing.containers(a_vmi(3, has=2), a_pod(3), need)
    assert found is not None
    assert found[0]["resources"]["requests"]["cpu"] == "200m"


def test_a_quota_that_is_short_is_named_with_what_it_lacks() -> None:
    quota = {
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.cpu": "1150m", "requests.memory": "8Gi", "pods": "2"}},
    }
    quota["status"] = {
        "hard": quota["spec"]["hard"],
        "used": {"requests.cpu": "1100m", "requests.memory": "1Gi", "pods": "1"},
    }
    error = Forbidden("pods is forbidden: exceeded quota: small, requested: x")
    need = resizing.needed(a_vmi(3), FREE)
    found = resizing.refusal(error, a_pod(), Ask(need, Bounds([quota])))
    assert found.reason == "OverQuota"
    assert "ResourceQuota small is missing 150m of requests.cpu" in found.message
    assert "resumes automatically" in found.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Forbidden("[maximum cpu usage per Container is 1, but request is 2]"), "OverLimitRange"),
        (
            Forbidden("node didn't have enough allocatable resources: cpu, requested: 1"),
            "Infeasible",
        ),
        (
            Forbidden("no", details={"causes": [{"reason": "NodeCapacity", "message": "m"}]}),
            "Infeasible",
        ),
        (Invalid("Pod QOS Class may not change as a result of resizing"), "ResizeRefused"),
    ],
)
def test_every_refusal_has_its_reason(error: Any, reason: str) -> None:
    found = resizing.refusal(error, a_pod(), Ask(resizing.needed(a_vmi(3), FREE), Bounds()))
    assert found.reason == reason
    assert error.message in found.message


def test_attempts_are_spaced_out_and_the_wait_ends() -> None:
    attempts, waits = Attempts(), []
    for _ in range(8):
        attempts = attempts.failed(NOON)
        waits.append(attempts.wait(NOON).total_seconds())
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]
    assert attempts.wait(NOON + timedelta(minutes=2)) == timedelta(0)
    assert Attempts().wait(NOON) == timedelta(0)


def test_what_was_refused_is_asked_for_again_later_or_once_something_else_holds() -> None:
    ask = Ask(resizing.needed(a_vmi(3), FREE), Bounds([{"metadata": {"name": "q"}}]), "stays")
    attempts = replace(Attempts().failed(NOON), refused=ask)
    assert attempts.waits(replace(ask, need=resizing.needed(a_vmi(3), FREE)), NOON)
    assert not attempts.waits(replace(ask, need=resizing.needed(a_vmi(2), FREE)), NOON)
    assert not attempts.waits(replace(ask, bounds=Bounds()), NOON)
    assert not attempts.waits(replace(ask, hindrance=""), NOON)
    assert not attempts.waits(ask, NOON + timedelta(seconds=2))
    assert not attempts.failed(NOON).waits(ask, NOON)


def test_a_new_attempt_has_time_before_its_outcome_counts() -> None:
    attempts = Attempts().failed(NOON).again(NOON)
    assert attempts.is_trying(NOON)
    assert attempts.last is None
    assert attempts.wait(NOON) == timedelta(seconds=3)
    later = NOON + timedelta(seconds=3)
    assert not attempts.is_trying(later)
    assert attempts.failed(later).wait(later) == timedelta(seconds=4)


@pytest.mark.parametrize(
    ("reason", "failed"), [("WaitingForResize", False), ("PlugFailed", True), ("", False)]
)
def test_whether_qemu_refused_the_change(reason: str, failed: bool) -> None:
    assert resizing.is_plug_failed(a_vmi(3, reason=reason)) is failed
