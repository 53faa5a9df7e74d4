from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.migration import actions
from livevirt.vm.spec.resources import Namespace

PLAIN = Namespace()
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def a_vmi(status: Object | None = None, **spec: Any) -> Object:
    labels = {"app": "db", "kubevirt.io/nodeName": "n1"}
    meta = {"name": "web", "namespace": "default", "uid": "v1", "labels": labels}
    domain = {"devices": {}, "memory": {"guest": "1Gi"}, "cpu": {"sockets": 1}}
    return {"metadata": meta, "spec": {"domain": domain, **spec}, "status": status or {}}


def a_migration(uid: str = "m1", **spec: Any) -> Object:
    return {"metadata": {"name": "move", "uid": uid}, "spec": {"vmiName": "web", **spec}}


def test_it_is_a_launcher_pod_of_the_instance_with_a_name_of_its_own() -> None:
    vmi = a_vmi()
    pod = actions.pod_of(vmi, a_migration(), PLAIN)
    first = launcher.pod_of(vmi, PLAIN)
    assert pod["metadata"]["ownerReferences"] == first["metadata"]["ownerReferences"]
    own, other = (each["spec"]["containers"][0]["resources"] for each in (pod, first))
    assert own["requests"] == other["requests"]
    assert pod["metadata"]["name"] != first["metadata"]["name"]
    assert len(pod["metadata"]["name"]) == len(first["metadata"]["name"])
    assert pod["metadata"]["name"] == actions.pod_of(vmi, a_migration(), PLAIN)["metadata"]["name"]
    assert pod["metadata"]["name"] != actions.pod_name(vmi, a_migration("m2"))


def test_it_names_its_migration_and_not_the_node_it_leaves() -> None:
    meta = actions.pod_of(a_vmi(), a_migration(), PLAIN)["metadata"]
    assert meta["labels"]["kubevirt.io/migrationJobUID"] == "m1"
    assert meta["annotations"]["kubevirt.io/migrationJobName"] == "move"
    assert meta["labels"]["app"] == "db"
    assert "kubevirt.io/nodeName" not in meta["labels"]


def test_it_keeps_away_from_the_other_pods_of_the_guest() -> None:
    own = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
    vmi = a_vmi(affinity={"nodeAffinity": {}, "podAntiAffinity": {_REQUIRED: [own]}})
    affinity = actions.pod_of(vmi, a_migration(), PLAIN)["spec"]["affinity"]
    assert affinity["podAntiAffinity"][_REQUIRED] == [
        own,
        {
            "labelSelector": {"matchLabels": {"kubevirt.io/created-by": "v1"}},
            "topologyKey": "kubernetes.io/hostname",
        },
    ]
    assert vmi["spec"]["affinity"]["podAntiAffinity"][_REQUIRED] == [own]


def test_of_the_added_labels_the_guests_own_win() -> None:
    vmi = a_vmi(nodeSelector={"disk": "ssd"})
    added = {"disk": "any", "zone": "x", "kubevirt.io/schedulable": "false"}
    chosen = actions.pod_of(vmi, a_migration(addedNodeSelector=added), PLAIN)["spec"][
        "nodeSelector"
    ]
    assert (chosen["disk"], chosen["zone"]) == ("ssd", "x")
    assert chosen["kubevirt.io/schedulable"] == "true"


def test_it_holds_the_larger_of_what_the_guest_has_and_should_have() -> None:
    shrinking = a_vmi({"currentCPUTopology": {"sockets": 3}, "memory": {"guestCurrent": "2Gi"}})
    growing = a_vmi({"currentCPUTopology": {"sockets": 1}, "memory": {"guestCurrent": "512Mi"}})
    large, small = (
        actions.pod_of(vmi, a_migration(), PLAIN)["spec"]["containers"][0]["resources"]["requests"]
        for vmi in (shrinking, growing)
    )
    assert (small["cpu"], large["cpu"]) == ("100m", "300m")
    plain = launcher.pod_of(growing, PLAIN)["spec"]["containers"][0]["resources"]["requests"]
    assert small == plain
    assert large["memory"] != small["memory"]


LARGE = {"currentCPUTopology": {"sockets": 3}, "memory": {"guestCurrent": "2Gi"}}


@pytest.mark.parametrize("memory", [{}, {"hugepages": {"pageSize": "2Mi"}}])
def test_it_is_too_small_once_the_guest_has_or_should_have_more(memory: Object) -> None:
    guests = {"small": a_vmi(), "large": a_vmi(LARGE)}
    for vmi in guests.values():
        vmi["spec"]["domain"]["memory"] |= memory
    pods = {size: actions.pod_of(vmi, a_migration(), PLAIN) for size, vmi in guests.items()}
    assert actions.is_too_small(pods["small"], guests["large"], PLAIN)
    assert not actions.is_too_small(pods["large"], guests["small"], PLAIN)
    for size, pod in pods.items():
        assert not actions.is_too_small(pod, guests[size], PLAIN)  # or it would be made for ever
