from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.pod_resources import exclusive_cpus
from livevirt.kube.objects.request import Object

MANAGED = {"kubevirt.io/cpumanager": "true"}
TINY = {"cpu": "1m", "memory": "1Mi"}


def a_pod(cpu: str = "2", selector: Any = MANAGED, limit: str = "", **rest: Any) -> Object:
    requests, limits = {"cpu": cpu, "memory": "1Gi"}, {"cpu": limit or cpu, "memory": "1Gi"}
    log = {
        "name": "log", "restartPolicy": "Always", "resources": {"requests": TINY, "limits": TINY},
    }  # fmt: skip
    compute = {"name": "compute", "resources": {"requests": requests, "limits": limits}}
    spec = {"nodeSelector": selector, "containers": [compute], "initContainers": [log]}
    return {"spec": spec, **rest}


GRANTED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
INFEASIBLE = {
    "containerStatuses": [
        {"name": "compute", "allocatedResources": GRANTED["requests"], "resources": GRANTED}
    ],
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
}
RULES: dict[str, tuple[Object, int]] = {
    "given whole CPUs and exact limits, then as many; a sidecar has none": (a_pod(), 2),
    "given a part of a CPU, then none": (a_pod("1500m"), 0),
    "given it may use more than it asks for, then none": (a_pod("1", limit="2"), 0),
    "given any node will do, then none": (a_pod(selector=None), 0),
    "given a node without a manager, then none": (
        a_pod(selector={"kubevirt.io/cpumanager": "false"}), 0),
    "given a resize that will not be, then what it has": (a_pod("2", status=INFEASIBLE), 1),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "count"), RULES.values(), ids=RULES)
def test_exclusive_cpus(pod: Object, count: int) -> None:
    assert exclusive_cpus(pod) == count
