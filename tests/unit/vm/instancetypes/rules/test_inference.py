"""Fact sheet 6: which instance type or preference the origin of a volume recommends."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.core import CLAIM
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import matchers
from livevirt.vm.instancetypes.rules.inference import (
    DATA_SOURCE,
    SNAPSHOT,
    Inferred,
    NotInferred,
    infer,
)
from livevirt.vm.instancetypes.rules.matchers import Role
from livevirt.vm.kinds import DATA_VOLUME

from .instancetype_builders import Objects, a_vm, an_object

TYPE, KIND = (f"instancetype.kubevirt.io/default-instancetype{end}" for end in ("", "-kind"))
LABELS = {TYPE: "small"}
SMALL = Inferred("small")
OF_CLAIM: Object = {"source": {"pvc": {"name": "origin", "namespace": "images"}}}
OF_SNAPSHOT: Object = {"source": {"snapshot": {"name": "origin", "namespace": "images"}}}
OF_SOURCE: Object = {"sourceRef": {"kind": "DataSource", "name": "s"}}


def claim(labels: Any = None, name: str = "origin", namespace: str = "images") -> Object:
    return an_object(CLAIM, name, namespace=namespace, labels=labels or {})


def with_claim() -> Object:
    return {"name": "v", "persistentVolumeClaim": {"claimName": "origin"}}


def with_data() -> Object:
    return {"name": "v", "dataVolume": {"name": "data"}}


def a_vm_with(volume: Object, spec: Object | None = None) -> Object:
    templates = {} if spec is None else {
        "dataVolumeTemplates": [
            {"metadata": {"name": "data", "labels": {TYPE: "no"}}, "spec": spec}
        ]
    }  # fmt: skip
    return a_vm({"domain": {"devices": {}}, "volumes": [volume]}, **templates)


def data(spec: Object, labels: Any = None) -> Object:
    return an_object(DATA_VOLUME, "data", spec, labels=labels or {})


def source(spec: Object, labels: Any = None, namespace: str = "default") -> Object:
    return an_object(DATA_SOURCE, "s", spec, labels=labels or {}, namespace=namespace)


def a_vm_with_a_nameless_template() -> Object:
    vm = a_vm_with(with_data(), OF_CLAIM)
    vm["spec"]["dataVolumeTemplates"].insert(0, {"spec": OF_SNAPSHOT})
    return vm


FOUND: dict[str, tuple[Object, list[Object], Inferred]] = {
    "6.1 a claim": (a_vm_with(with_claim()), [claim(LABELS, namespace="default")], SMALL),
    "6 a claim that names a kind": (
        a_vm_with(with_claim()),
        [claim({**LABELS, KIND: "VirtualMachineInstancetype"}, namespace="default")],
        Inferred("small", "VirtualMachineInstancetype"),
    ),
    "6.2 a template, by its source, not its labels": (
        a_vm_with(with_data(), OF_CLAIM), [claim(LABELS)], SMALL,
    ),
    "6.2 a template after one without a name": (
        a_vm_with_a_nameless_template(), [claim(LABELS)], SMALL,
    ),
    "6.2 a template comes before the object": (
        a_vm_with(with_data(), OF_CLAIM), [claim(LABELS), data({}, {TYPE: "other"})], SMALL,
    ),
    "6.2 a DataVolume by its labels": (
        a_vm_with(with_data()), [data(OF_CLAIM, LABELS), claim({TYPE: "other"})], SMALL,
    ),
    "6.2 a DataVolume by its source": (
        a_vm_with(with_data()), [data(OF_CLAIM), claim(LABELS)], SMALL,
    ),
    "6.2 no DataVolume, but a claim of its name": (
        a_vm_with(with_data()), [claim(LABELS, "data", "default")], SMALL,
    ),
    "6.3 a snapshot": (
        a_vm_with(with_data(), OF_SNAPSHOT),
        [an_object(SNAPSHOT, "origin", namespace="images", labels=LABELS)], SMALL,
    ),
    "6.3 a DataSource by its labels": (
        a_vm_with(with_data(), OF_SOURCE), [source(OF_CLAIM, LABELS)], SMALL,
    ),
    "6.3 a DataSource of another namespace": (
        a_vm_with(with_data(), {"sourceRef": {**OF_SOURCE["sourceRef"], "namespace": "images"}}),
        [source({}, LABELS, "images")], SMALL,
    ),
    "6.3 a DataSource by its claim": (
        a_vm_with(with_data(), OF_SOURCE), [source(OF_CLAIM), claim(LABELS)], SMALL,
    ),
    "6.3 a DataSource by its snapshot": (
        a_vm_with(with_data(), OF_SOURCE),
        [source(OF_SNAPSHOT), an_object(SNAPSHOT, "origin", namespace="images", labels=LABELS)],
        SMALL,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "objects", "inferred"), FOUND.values(), ids=FOUND)
def test_inferred(vm: Object, objects: list[Object], inferred: Inferred) -> None:
    assert infer(matchers.INSTANCETYPE, "v", vm, Objects(*objects)) == inferred


UNLABELLED = f"unable to find required {TYPE} label on the volume"
REFUSED: dict[str, tuple[Object, list[Object], str, bool]] = {
    "6 no such volume": (
        a_vm(), [], "unable to find volume v to infer defaults", False,
    ),
    "6 no such claim": (
        a_vm_with(with_claim()), [], 'persistentvolumeclaims "origin" not found', False,
    ),
    "6 no such DataSource": (
        a_vm_with(with_data(), OF_SOURCE), [], 'datasources.cdi.kubevirt.io "s" not found', False,
    ),
    "6 neither a DataVolume nor a claim of its name": (
        a_vm_with(with_data()), [], 'persistentvolumeclaims "data" not found', False,
    ),
    "6 a volume of another type": (
        a_vm_with({"name": "v", "containerDisk": {"image": "i"}}), [],
        "unable to infer defaults from volume v as type is not supported", True,
    ),
    "6 a claim without labels": (
        a_vm_with(with_claim()), [claim(namespace="default")], UNLABELLED, True,
    ),
    "6 a source of another type": (
        a_vm_with(with_data(), {"source": {"http": {"url": "u"}}}), [],
        "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported", True,
    ),
    "6 a reference to another kind": (
        a_vm_with(with_data(), {"sourceRef": {"kind": "Image", "name": "s"}}), [],
        "unable to infer defaults from DataVolumeSourceRef as Kind Image is not supported", True,
    ),
    "6 a DataSource of another source": (
        a_vm_with(with_data(), OF_SOURCE), [source({"source": {}})],
        "unable to infer defaults from DataSource that doesn't provide DataVolumeSourcePVC or"
        " DataVolumeSourceSnapshot", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vm", "objects", "text", "ignorable"), REFUSED.values(), ids=REFUSED)
def test_not_inferred(vm: Object, objects: list[Object], text: str, ignorable: bool) -> None:
    with pytest.raises(NotInferred) as refusal:
        infer(matchers.INSTANCETYPE, "v", vm, Objects(*objects))
    assert (str(refusal.value), refusal.value.ignorable) == (text, ignorable)


@pytest.mark.parametrize("role", matchers.ROLES, ids=lambda role: role.field)
def test_each_role_has_labels_of_its_own(role: Role) -> None:
    labels = {
        f"instancetype.kubevirt.io/default-{each.field}": each.field for each in matchers.ROLES
    }
    found = infer(role, "v", a_vm_with(with_claim()), Objects(claim(labels, namespace="default")))
    assert found == Inferred(role.field)
