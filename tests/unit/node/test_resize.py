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


def test_what_is_granted_counts_and_not_what_is_asked_for() -> None:
    pods = [
        a_pod("1", cpu="1"),
        a_pod("2", cpu="2", status={"allocatedResources": {"cpu": "500m"}}),
        a_pod("3", cpu="3", phase="Succeeded"),
    ]
    assert resize.taken(pods, without="1")["cpu"].milli() == 500
    assert resize.taken(pods, without="2")["cpu"].milli() == 1000


def test_resources_are_compared_by_amount() -> None:
    assert resize.same({"requests": {"memory": "1Gi"}}, {"requests": {"memory": "1024Mi"}})
    assert not resize.same({"limits": {"cpu": "1"}}, {})


def test_limits_are_set_where_the_pod_has_them() -> None:
    resources = {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}
    assert resize.limits(resources) == Limits(250, None, 1 << 30)
    assert resize.limits({"limits": {"cpu": "2"}}) == Limits(2000, 2000, None)
    assert resize.limits(None) == Limits()
