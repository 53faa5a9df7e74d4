from __future__ import annotations

import copy
from typing import Any

import pytest

from livevirt.cluster.fields import transform
from livevirt.kube.objects import core
from livevirt.kube.objects.node_share import granted
from livevirt.kube.objects.pod_resources import held_limits, qos_class
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.launcher import CREATED_BY

AMOUNTS = {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}


def a_pod(labels: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "i", "env": [{"name": "A"}], "resources": AMOUNTS}
    status = {
        "name": "main", "image": "i", "imageID": "x", "state": {"running": {}},
        "allocatedResources": {"cpu": "500m", "memory": "96Mi"},
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "labels": labels or {"app": "web"}, "annotations": {"long": "text"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "n1", "containers": [container], "volumes": [{"name": "v"}], **spec},
        "status": {"phase": "Running", "containerStatuses": [status], "podIP": "10.0.0.1"},
    }  # fmt: skip


PODS: dict[str, Object] = {
    "one container": a_pod(),
    "a sidecar": a_pod(
        initContainers=[{"name": "s", "restartPolicy": "Always", "resources": AMOUNTS}]
    ),
    "overhead": a_pod(overhead={"cpu": "1", "memory": "1Gi"}),
    "resources of the pod": a_pod(resources={"requests": {"cpu": "3", "memory": "2Gi"}}),
    "nothing reported yet": {**a_pod(), "status": {"phase": "Pending"}},
    "ended": {**a_pod(), "status": {"phase": "Succeeded"}},
}


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_given_another_pod_then_it_takes_as_much_of_its_node_as_before(pod: Object) -> None:
    kept = transform(core.POD)(copy.deepcopy(pod))
    assert granted(kept) == granted(pod)
    assert held_limits(kept) == held_limits(pod)
    assert qos_class(kept) == qos_class(pod)
    for name in ("name", "namespace", "uid", "resourceVersion", "labels"):
        assert kept["metadata"][name] == pod["metadata"][name]


def test_given_another_pod_then_what_nobody_uses_is_dropped() -> None:
    kept = transform(core.POD)(a_pod())
    assert not {"annotations", "managedFields"} & set(kept["metadata"])
    assert "volumes" not in kept["spec"]
    assert set(kept["spec"]["containers"][0]) == {"name", "resources"}
    assert "podIP" not in kept["status"]


def test_given_a_launcher_pod_then_only_managed_fields_are_dropped() -> None:
    pod = a_pod({CREATED_BY: "uid"})
    kept = transform(core.POD)(copy.deepcopy(pod))
    del pod["metadata"]["managedFields"]
    assert kept == pod


def test_given_a_node_then_its_images_are_dropped() -> None:
    status = {"allocatable": {"cpu": "4"}, "images": [{"names": ["a"]}]}
    meta = {"name": "n1", "labels": {"a": "b"}, "managedFields": []}
    node = transform(core.NODE)({"metadata": meta, "spec": {"taints": []}, "status": status})
    assert node == {
        "metadata": {"name": "n1", "labels": {"a": "b"}},
        "spec": {"taints": []},
        "status": {"allocatable": {"cpu": "4"}},
    }


def test_given_a_vm_then_only_managed_fields_are_dropped() -> None:
    meta = {"name": "web", "annotations": {"kubectl": "applied"}, "managedFields": [{}]}
    vm = transform(kinds.VM)({"metadata": meta, "spec": {"a": 1}, "status": {"b": 2}})
    assert vm == {
        "metadata": {"name": "web", "annotations": {"kubectl": "applied"}},
        "spec": {"a": 1},
        "status": {"b": 2},
    }
