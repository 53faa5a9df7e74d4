from typing import Any

import pytest

from livevirt.node import resize
from livevirt.node.intent import Limits
from livevirt.node.resize import Granted, Refused

ROOM = resize.amounts({"cpu": "4", "memory": "8Gi"})


def a_pod(uid: str = "1", phase: str = "Running", status: Any = None, **requests: str) -> Any:
    container = {"name": "compute", "resources": {"requests": requests}}
    statuses = [{"name": "compute", **status}] if status else []
    return {
        "metadata": {"uid": uid},
        "spec": {"containers": [container]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


CASES = {
    "given room, then granted": ({"cpu": "2"}, {"cpu": "2"}, None),
    "given more than there is beside the others, then deferred": (
        {"cpu": "3"},
        {"cpu": "2"},
        "Deferred",
    ),
    "given more than there is at all, then infeasible": ({"memory": "9Gi"}, {}, "Infeasible"),
    "given both, then infeasible wins": ({"cpu": "3", "memory": "9Gi"}, {"cpu": "2"}, "Infeasible"),
}


@pytest.mark.parametrize(("asked", "others", "reason"), CASES.values(), ids=CASES)
def test_decide(asked: Any, others: Any, reason: str | None) -> None:
    verdict = resize.decide(resize.amounts(asked), resize.amounts(others), ROOM)
    match verdict:
        case Granted():
            assert reason is None
        case Refused(said, message):
            assert said == reason
            assert "requested: " in message


OWN = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("selector", "cpu", "memory", "refused"),
    [
        ("true", "2", "1Gi", True),
        ("true", "1", "2Gi", False),
        ("false", "2", "1Gi", False),
    ],
    ids=["more CPUs of its own", "more memory", "more CPUs that it shares"],
)
def test_cpus_of_a_pod_s_own_stay_as_many(
    selector: str, cpu: str, memory: str, refused: bool
) -> None:
    pod = a_pod("1")
    wanted = {"cpu": cpu, "memory": memory}
    pod["spec"]["nodeSelector"] = {"kubevirt.io/cpumanager": selector}
    pod["spec"]["containers"][0]["resources"] = {"requests": wanted, "limits": wanted}
    found = resize.fixed(pod, {"requests": OWN, "limits": OWN})
    assert (found is not None and found.reason == "Infeasible") is refused


def test_resources_are_compared_by_amount() -> None:
    assert resize.same({"requests": {"memory": "1Gi"}}, {"requests": {"memory": "1024Mi"}})
    assert not resize.same({"limits": {"cpu": "1"}}, {})


def test_limits_are_set_where_the_pod_has_them() -> None:
    resources = {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}
    assert resize.limits(resources) == Limits(250, None, 1 << 30)
    assert resize.limits({"limits": {"cpu": "2"}}) == Limits(2000, 2000, None)
    assert resize.limits(None) == Limits()
