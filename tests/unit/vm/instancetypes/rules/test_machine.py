"""A whole VM, expanded."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.core import REVISION
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.machine import (
    detached,
    expand_vm,
    instance_annotations,
    sized_by,
    unmet_requirements,
)
from livevirt.vm.kinds import INSTANCETYPE, KUBEVIRT, VMI
from livevirt.vm.verdict.gather import gather_now
from livevirt.vm.verdict.judgement import Verdict
from livevirt.vm.verdict.verdict import judge

from ...cases import NOON, Surroundings
from .instancetype_builders import Objects, a_preference, a_type, a_vm, reference, taken

SMALL, LARGE = a_type("small", 1, "512Mi"), a_type("large", 2, "1Gi")
CUSTOM = a_type("custom")
CUSTOM["spec"] = {"cpu": {}, "memory": {}}
STORAGE = a_preference("p", {"volumes": {"preferredStorageClassName": "fast"}})
BOTH = {"instancetype": {"name": "small"}, "preference": {"name": "p"}}
OBJECTS = Objects(SMALL, LARGE, CUSTOM, STORAGE, taken(SMALL), taken(LARGE), taken(CUSTOM))
LIVE = {
    "developerConfiguration": {"featureGates": ["VMLiveUpdateFeatures"]},
    "vmRolloutStrategy": "LiveUpdate",
}


def test_template_and_data_volumes_are_expanded_and_the_vm_is_left_alone() -> None:
    vm = a_vm(dataVolumeTemplates=[{"metadata": {"name": "d"}, "spec": {"storage": {}}}], **BOTH)
    before = copy.deepcopy(vm)
    found = expand_vm(vm, OBJECTS)
    assert found.usable
    spec = found.vm["spec"]
    assert spec["template"]["spec"]["domain"]["memory"] == {"guest": "512Mi"}
    assert spec["dataVolumeTemplates"][0]["spec"]["storage"] == {"storageClassName": "fast"}
    assert vm == before


def test_a_detached_vm_names_nothing() -> None:
    vm = a_vm(status={"instancetypeRef": reference(taken(SMALL)), "ready": True}, **BOTH)
    made = detached(expand_vm(vm, OBJECTS).vm)
    assert "instancetype" not in made["spec"]
    assert "preference" not in made["spec"]
    assert made["status"] == {"ready": True}
    assert expand_vm(made, Objects()).vm["spec"] == made["spec"]


def test_an_instance_says_what_it_was_made_from() -> None:
    """4.1"""
    own = taken(a_type("own", kind=INSTANCETYPE))
    status = {"instancetypeRef": reference(own), "preferenceRef": reference(taken(STORAGE))}
    assert instance_annotations(a_vm()) == {}
    assert instance_annotations(a_vm(status=status)) == {
        "kubevirt.io/instancetype-name": "own",
        "kubevirt.io/cluster-preference-name": "p",
    }


def test_a_vm_is_held_to_what_its_preference_requires() -> None:
    needy = a_preference("p", {"requirements": {"memory": {"guest": "1Gi"}}})
    vm = a_vm(**BOTH)
    (error,) = unmet_requirements(vm, expand_vm(vm, Objects(SMALL, needy)))
    assert error.field == "spec.instancetype"


# ---------------------------------------------------------------- switching


def judged(vm: Object, record: Object) -> list[tuple[str, object, Verdict]]:
    """What becomes of a VM whose guest was started as recorded."""
    first = copy.deepcopy(record["data"]["spec"]["template"]["spec"])
    vmi = {
        "kind": VMI.kind,
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "vmi-uid",
            "ownerReferences": [{"controller": True, "uid": vm["metadata"]["uid"]}],
        },
        "spec": {**first, "architecture": "amd64"},
        "status": {"phase": "Running", "virtualMachineRevisionName": "start-1"},
    }
    vmi["spec"]["domain"]["cpu"].update(maxSockets=4, model="host-model")
    vmi["spec"]["domain"]["memory"].update(maxGuest="4Gi")
    settings = {"metadata": {}, "spec": {"configuration": LIVE}}
    known = ((VMI, vmi), (REVISION, record), (KUBEVIRT, settings))
    inputs = gather_now(vm, Surroundings(named=known), NOON)
    return [(c.path, c.wanted, c.verdict) for c in judge(inputs).changes]


def record_of(vm: Object) -> Object:
    """The record of a start, which says everything itself."""
    return {"metadata": {}, "data": {"spec": detached(expand_vm(vm, OBJECTS).vm)["spec"]}}


def by_hand(cpu: int, memory: str) -> Object:
    topology = {"sockets": cpu, "cores": 1, "threads": 1}
    return {"domain": {"devices": {}, "cpu": topology, "memory": {"guest": memory}}}


def test_switching_is_judged_exactly_as_editing_by_hand() -> None:
    was = a_vm(instancetype={"name": "small"}, status={"instancetypeRef": reference(taken(SMALL))})
    switched = {**was, "spec": {**was["spec"], "instancetype": {"name": "large"}}}
    by_name = judged(expand_vm(switched, OBJECTS).vm, record_of(was))
    edited = judged(a_vm(by_hand(2, "1Gi")), record_of(a_vm(by_hand(1, "512Mi"))))
    assert sorted(by_name) == sorted(edited)
    assert {path.rpartition(".")[2] for path, _, _ in by_name} == {"sockets", "guest"}


def test_given_a_switch_when_switched_back_then_there_is_nothing_to_judge() -> None:
    was = a_vm(instancetype={"name": "small"}, status={"instancetypeRef": reference(taken(LARGE))})
    assert judged(expand_vm(was, OBJECTS).vm, record_of(was)) == []


def test_the_revisions_a_vm_goes_by_are_one_text() -> None:
    both = {"instancetypeRef": reference(taken(SMALL)), "preferenceRef": reference(taken(STORAGE))}
    names = [taken(each)["metadata"]["name"] for each in (SMALL, STORAGE)]
    assert sized_by(a_vm(status=both)) == ",".join(names)
    assert sized_by(a_vm()) == ""


@given(st.integers(1, 64), st.integers(1, 4096))
def test_given_any_size_when_a_custom_type_gets_it_from_the_vm_then_it_is_as_by_hand(
    vcpus: int, megabytes: int
) -> None:
    memory = f"{megabytes}Mi"
    template = {"domain": {"devices": {}, "cpu": {"guest": vcpus}, "memory": {"guest": memory}}}
    found = expand_vm(a_vm(template, instancetype={"name": "custom"}), OBJECTS)
    assert found.vm["spec"]["template"]["spec"] == by_hand(vcpus, memory)
