from __future__ import annotations

from datetime import UTC, datetime

import pytest

from livevirt.kube.controllers.scheduler.controller import unschedulable
from livevirt.kube.controllers.scheduler.objects import wants_node
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object

from .scheduler_builders import a_pod_object

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DELETED = a_pod_object("p")
DELETED["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

WAITING = {
    "a new pod": (a_pod_object("p"), True),
    "one that names the default scheduler": (
        a_pod_object("p", schedulerName="default-scheduler"), True),
    "not one of another scheduler": (a_pod_object("p", schedulerName="other"), False),
    "not one that has a node": (a_pod_object("p", nodeName="n"), False),
    "not one behind a gate": (a_pod_object("p", schedulingGates=[{"name": "x/y"}]), False),
    "not one that is going": (DELETED, False),
    "not one that has ended": (a_pod_object("p") | {"status": {"phase": "Failed"}}, False),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "waits"), WAITING.values(), ids=WAITING)
def test_who_waits_for_us(pod: Object, waits: bool) -> None:
    assert wants_node(pod) == waits


def test_why_a_pod_waits_is_written_once_and_keeps_its_time() -> None:
    pod = a_pod_object("p")
    first = unschedulable(pod, "full", NOON)
    assert first == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": conditions.human_readable("full"),
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    told = pod | {"status": {"conditions": [first]}}
    assert unschedulable(told, "full", NOON) is None
    later = unschedulable(told, "closed", NOON.replace(hour=13))
    assert later == first | {"message": conditions.human_readable("closed")}
