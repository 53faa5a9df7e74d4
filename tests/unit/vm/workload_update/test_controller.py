from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from livevirt.kube.client.interface import Client
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core, node_share
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


def a_pod(number: int) -> Object:
    """Return the pod that such an instance runs in."""
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    labels = {"kubevirt.io/created-by": f"u{number}"}
    return {
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": "default", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "compute", "resources": requests}]},
        "status": {"phase": "Running"},
    }


def test_each_pod_is_counted_once_for_all_guests_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, granted = 0, node_share.granted

    def count(pod: Object) -> node_share.Share:
        nonlocal counted
        counted += 1
        return granted(pod)

    monkeypatch.setattr(node_share, "granted", count)
    informers, nobody = Informers(cast(Client, None)), cast(Recorder, None)
    controller = WorkloadUpdateController(cast(Client, None), lambda: NOON, nobody, informers)
    for number in range(20):
        informers.of(kinds.VMI)._cache.put(a_waiting_guest(number))
        informers.of(core.POD)._cache.put(a_pod(number))
    for _ in range(2):
        guests = controller._snapshot(KUBEVIRT).guests
        assert sorted(guest.pod for guest in guests) == sorted(f"p{n}" for n in range(20))
    assert counted == 20
