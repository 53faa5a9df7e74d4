from __future__ import annotations

import copy

import pytest

from livevirt.errors import Forbidden
from livevirt.kube.objects.core import CLAIM, STORAGE_CLASS, VOLUME
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import default_class

from .in_memory_server import InMemoryServer, Refused


def a_claim(size: str = "1Gi", **spec: object) -> Object:
    return {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        }
    }


def a_volume(**spec: object) -> Object:
    return {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/v"},
            **spec,
        }
    }


def bound_claim(server: InMemoryServer, size: str = "1Gi", *, expandable: bool = True) -> Object:
    server.create(
        STORAGE_CLASS, "fast", provisioner="example.com/disk", allowVolumeExpansion=expandable
    )
    claim = server.create(CLAIM, "c", **a_claim(size, storageClassName="fast"))
    claim["status"] = {"phase": "Bound", "capacity": {"storage": size}}
    return claim


def sized(claim: Object, size: str) -> Object:
    changed = copy.deepcopy(claim)
    changed["spec"]["resources"]["requests"]["storage"] = size
    return changed


def test_a_claim_asks_for_a_filesystem_and_waits() -> None:
    claim = InMemoryServer().create(CLAIM, "c", **a_claim(), status={"phase": "Bound"})
    assert claim["spec"]["volumeMode"] == "Filesystem"
    assert claim["status"] == {"phase": "Pending"}


def test_a_claim_that_names_no_class_gets_the_default_one() -> None:
    server = InMemoryServer()
    marked = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    server.put(STORAGE_CLASS, "plain")
    server.put(STORAGE_CLASS, "fast")["metadata"] |= marked
    assert server.create(CLAIM, "c", **a_claim())["spec"]["storageClassName"] == "fast"
    none = server.create(CLAIM, "d", **a_claim(storageClassName=""))
    assert none["spec"]["storageClassName"] == ""


def test_of_several_default_classes_the_newest_counts() -> None:
    def marked(name: str, created: str) -> Object:
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        meta = {"name": name, "creationTimestamp": created, "annotations": annotations}
        return {"metadata": meta}

    old, new = marked("a", "2029-01-01T00:00:00Z"), marked("b", "2030-01-01T00:00:00Z")
    assert default_class([old, new]) == default_class([new, old]) == new
    assert default_class([]) is None


def test_where_data_comes_from_is_told_in_both_ways() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "other"}
    claim = InMemoryServer().create(CLAIM, "c", **a_claim(dataSource=source))
    assert claim["spec"]["dataSourceRef"] == source


BAD: dict[str, tuple[Kind, Object, set[tuple[str, str]]]] = {
    "claim without mode or size": (
        CLAIM,
        {"spec": {}},
        {("Required", "spec.accessModes"), ("Required", "spec.resources[storage]")},
    ),
    "claim of nothing": (CLAIM, a_claim("0"), {("Invalid", "spec.resources[storage]")}),
    "claim with an unknown mode": (
        CLAIM,
        a_claim(accessModes=["WriteOnly"]),
        {("NotSupported", "spec.accessModes")},
    ),
    "claim with modes that exclude each other": (
        CLAIM,
        a_claim(accessModes=["ReadWriteOncePod", "ReadWriteMany"]),
        {("Forbidden", "spec.accessModes")},
    ),
    "claim of an unknown form": (
        CLAIM,
        a_claim(volumeMode="Tape"),
        {("NotSupported", "spec.volumeMode")},
    ),
    "volume without a place": (VOLUME, a_volume(hostPath=None), {("Required", "spec")}),
    "volume with two": (
        VOLUME,
        a_volume(nfs={"server": "s", "path": "/"}),
        {("Forbidden", "spec.nfs")},
    ),
    "volume without a size": (VOLUME, a_volume(capacity=None), {("Required", "spec.capacity")}),
    "local volume that is anywhere": (
        VOLUME,
        a_volume(hostPath=None, local={"path": "/v"}),
        {("Required", "spec.nodeAffinity")},
    ),
    "class without a provisioner": (STORAGE_CLASS, {}, {("Required", "provisioner")}),
    "class that recycles": (
        STORAGE_CLASS,
        {"provisioner": "p", "reclaimPolicy": "Recycle"},
        {("NotSupported", "reclaimPolicy")},
    ),
}


@pytest.mark.parametrize(("kind", "fields", "causes"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_named_by_its_path(
    kind: Kind, fields: Object, causes: set[tuple[str, str]]
) -> None:
    with pytest.raises(Refused) as refusal:
        InMemoryServer().create(kind, "a", **fields)
    assert refusal.value.causes == causes


def test_a_bound_claim_may_grow() -> None:
    server = InMemoryServer()
    grown = server.update(CLAIM, sized(bound_claim(server), "2Gi"))
    assert grown["spec"]["resources"]["requests"] == {"storage": "2Gi"}


def test_a_claim_grows_only_if_its_class_allows_it() -> None:
    server = InMemoryServer()
    claim = bound_claim(server, expandable=False)
    with pytest.raises(Forbidden, match="must support resize"):
        server.update(CLAIM, sized(claim, "2Gi"))


def test_a_claim_shrinks_at_most_to_what_it_has() -> None:
    server = InMemoryServer()
    claim = bound_claim(server, "2Gi")
    claim["spec"]["resources"]["requests"]["storage"] = "5Gi"  # a growth that failed
    server.update(CLAIM, sized(claim, "3Gi"))
    with pytest.raises(Refused) as refusal:
        server.update(CLAIM, sized(claim, "1Gi"))
    assert refusal.value.causes == {("Forbidden", "spec.resources.requests.storage")}


CHANGES: dict[str, tuple[Object, bool]] = {
    "the volume is found": ({"volumeName": "v"}, True),
    "another class": ({"storageClassName": "slow"}, False),
    "another mode": ({"accessModes": ["ReadWriteMany"]}, False),
    "more, before it is bound": ({"resources": {"requests": {"storage": "2Gi"}}}, False),
}


@pytest.mark.parametrize(("change", "allowed"), CHANGES.values(), ids=CHANGES)
def test_a_waiting_claim_only_gets_its_volume(change: Object, allowed: bool) -> None:
    server = InMemoryServer()
    claim = server.create(CLAIM, "c", **a_claim(storageClassName="fast"))
    changed = {**claim, "spec": {**claim["spec"], **change}}
    if allowed:
        server.update(CLAIM, changed)
        return
    with pytest.raises(Refused) as refusal:
        server.update(CLAIM, changed)
    assert refusal.value.causes == {("Forbidden", "spec")}


def test_a_volume_keeps_its_data_and_its_place() -> None:
    server = InMemoryServer()
    volume = server.create(VOLUME, "v", **a_volume())
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["status"] == {
        "phase": "Pending",
        "lastPhaseTransitionTime": "2030-01-01T12:00:00Z",
    }
    moved = {**volume, "spec": {**volume["spec"], "hostPath": {"path": "/w"}}}
    with pytest.raises(Refused) as refusal:
        server.update(VOLUME, moved)
    assert refusal.value.causes == {("Forbidden", "spec.persistentvolumesource")}


def test_a_class_deletes_and_binds_at_once_unless_told_otherwise() -> None:
    server = InMemoryServer()
    made = server.create(STORAGE_CLASS, "s", provisioner="example.com/disk")
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    server.update(STORAGE_CLASS, {**made, "allowVolumeExpansion": True})
    with pytest.raises(Refused) as refusal:
        server.update(STORAGE_CLASS, {**made, "reclaimPolicy": "Retain"})
    assert refusal.value.causes == {("Forbidden", "reclaimPolicy")}
