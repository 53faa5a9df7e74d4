from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from livevirt.kube.client.interface import Client
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import node_share
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.workload_update.controller import WorkloadUpdateController

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
GATES = ["VMLiveUpdateFeatures"]
KUBEVIRT: Object = {
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {
        "configuration": {"developerConfiguration": {"featureGates": GATES}},
        "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
    },
}


def a_waiting_guest(number: int) -> Object:
    """Return an instance whose node has no room for the size it should have."""
    waits = {"type": "HotVCPUChange", "status": "True", "reason": "Deferred"}
    movable = {"type": "LiveMigratable", "status": "True"}
    return {
        "kind": "VirtualMachineInstance",
        "metadata": {"name": f"g{number}", "namespace": "default", "uid": f"u{number}"},
        "spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}},
        "status": {"phase": "Running", "nodeName": "n1", "conditions": [waits, movable]},
    }


def test_what_the_nodes_have_given_out_is_added_up_once_for_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added, by_node = 0, node_share.by_node

    def counted(*given: Any) -> Any:
        nonlocal added
        added += 1
        return by_node(*given)

    monkeypatch.setattr(node_share, "by_node", counted)
    informers, nobody = Informers(cast(Client, None)), cast(Recorder, None)
    controller = WorkloadUpdateController(cast(Client, None), lambda: NOON, nobody, informers)
    for number in range(20):
        informers.of(kinds.VMI)._cache.put(a_waiting_guest(number))
    assert len(controller._snapshot(KUBEVIRT).guests) == 20
    assert added == 1
