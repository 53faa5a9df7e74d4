"""Fact sheets 2.3 and 3: what a VM goes by, and what becomes of it when the VM changes."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.core import CLAIM
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import matchers
from livevirt.vm.instancetypes.rules.resolution import Choice, Resolved, newer, references, resolve
from livevirt.vm.kinds import INSTANCETYPE

from .instancetype_builders import (
    Objects,
    a_preference,
    a_revision,
    a_type,
    a_vm,
    an_object,
    reference,
    taken,
)

SMALL, LARGE = a_type("small", 1), a_type("large", 4)
OWN = a_type("small", 8, kind=INSTANCETYPE, uid="own")
OF_SMALL, OF_LARGE = taken(SMALL), taken(LARGE)
EDITED = a_type("small", 2, generation=2)
ALL = (SMALL, LARGE, OWN, OF_SMALL, OF_LARGE)
USES_SMALL = {"instancetypeRef": reference(OF_SMALL)}
USES_LARGE = {"instancetypeRef": reference(OF_LARGE)}
RS, RL, ROWN = (each["metadata"]["name"] for each in (OF_SMALL, OF_LARGE, taken(OWN)))
OLD = a_revision(
    "old", {**OF_SMALL["data"], "apiVersion": "instancetype.kubevirt.io/v1beta1"}
)  # fmt: skip


def the_type(vm: Object, *objects: Object) -> Choice:
    found = resolve(vm, Objects(*objects))
    assert found.problems == ()
    assert found.instancetype is not None
    return found.instancetype


def vm_with(status: Object | None = None, **matcher: Any) -> Object:
    return a_vm(status=status, instancetype=matcher)


#: A VM, what there is, the vCPUs it gets, the revision it uses, and whether one is to be taken.
RULES: dict[str, tuple[Object, tuple[Object, ...], int, str, bool]] = {
    "2.3 a name alone is the cluster's object": (vm_with(name="small"), ALL, 1, "", True),
    "2.3 the namespace's object": (
        vm_with(name="small", kind="VirtualMachineInstancetype"), ALL, 8, "", True,
    ),
    "2.3 what is recorded comes before the object": (
        vm_with(USES_SMALL, name="small"), (EDITED, OF_SMALL), 1, RS, False,
    ),
    "2.3 what is recorded needs no object": (
        vm_with(USES_SMALL, name="small"), (OF_SMALL,), 1, RS, False,
    ),
    "3 a new name": (vm_with(USES_SMALL, name="large"), ALL, 4, "", True),
    "3 a new name and an empty pin": (
        vm_with(USES_SMALL, name="large", revisionName=""), ALL, 4, "", True,
    ),
    "3 a new name and a pin left behind": (
        vm_with(USES_SMALL, name="large", revisionName=RS), ALL, 4, "", True,
    ),
    "3 a pin left behind, after the new one is recorded": (
        vm_with({"instancetypeRef": reference(OF_LARGE)}, name="large", revisionName=RS), ALL, 4,
        RL, False,
    ),
    "3 a new name and a pin left behind to a revision that is gone": (
        vm_with(USES_SMALL, name="large", revisionName=RS), (LARGE,), 4, "", True,
    ),
    "3 the same, after the new one is recorded": (
        vm_with(USES_LARGE, name="large", revisionName=RS), (LARGE, OF_LARGE), 4, RL, False,
    ),
    "3 a new name and a pin left behind, whose name says nothing": (
        vm_with({"instancetypeRef": reference(OLD)}, name="large", revisionName="old"), (LARGE,),
        4, "", True,
    ),
    "10.1 a pin to the cluster's and the kind of the namespace's": (
        vm_with(USES_SMALL, name="small", kind="virtualmachineinstancetype", revisionName=RS), ALL,
        8, "", True,
    ),
    "10.1 a pin to the cluster's and its kind": (
        vm_with(name="small", kind="VirtualMachineClusterInstancetype", revisionName=RS), ALL, 1,
        RS, False,
    ),
    "10.1 a pin to the namespace's and no kind": (
        vm_with(name="small", revisionName=ROWN), (*ALL, taken(OWN)), 8, ROWN, False,
    ),
    "3 a new name and its pin": (
        vm_with(USES_SMALL, name="large", revisionName=RL), ALL, 4, RL, False,
    ),
    "3 the same name and a pin": (
        vm_with({"instancetypeRef": reference(taken(EDITED))}, name="small", revisionName=RS),
        (EDITED, OF_SMALL, taken(EDITED)), 1, RS, False,
    ),
    "3 the same name, pin cleared": (
        vm_with(USES_SMALL, name="small", revisionName=""), (EDITED, OF_SMALL), 1, RS, False,
    ),
    "10.2 the reference cleared, then the newest": (
        vm_with(name="small"), (EDITED, OF_SMALL), 2, "", True,
    ),
    "3 another spelling of the kind is the same kind": (
        vm_with(USES_SMALL, name="small", kind="virtualmachineclusterinstancetypes"),
        (EDITED, OF_SMALL), 1, RS, False,
    ),
    "3 kind set to the namespace's": (
        vm_with(USES_SMALL, name="small", kind="virtualmachineinstancetype"), ALL, 8, "", True,
    ),
    "10.1 kind cleared": (
        vm_with({"instancetypeRef": reference(taken(OWN))}, name="small"), (*ALL, taken(OWN)), 1,
        "", True,
    ),
    "3 upgraded from an older version": (
        vm_with({"instancetypeRef": reference(OLD)}, name="small"), (OLD,), 1, "old", True,
    ),
    "3 a pin to an older version is used as it is": (
        vm_with(name="small", revisionName="old"), (OLD,), 1, "old", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("vm", "objects", "vcpus", "revision", "captured"), RULES.values(), ids=RULES
)
def test_resolve(
    vm: Object, objects: tuple[Object, ...], vcpus: int, revision: str, captured: bool
) -> None:
    found = the_type(vm, *objects)
    assert found.object["spec"]["cpu"]["guest"] == vcpus
    assert found.object["apiVersion"] == "instancetype.kubevirt.io/v1beta2"
    assert (found.revision, found.capture is not None) == (revision, captured)


def test_an_upgraded_revision_is_recorded_under_its_new_name() -> None:
    vm = vm_with({"instancetypeRef": reference(OLD)}, name="small")
    resolved = resolve(vm, Objects(OLD))
    assert references(vm, resolved)["instancetypeRef"] == reference(OF_SMALL)


NOT_FOUND = "FailedFindInstancetype"
LOST = (
    f'controllerrevisions.apps "{RS}" not found: it holds what this VM was given of instance type'
    " small; `virtctl vm update-instance-type web virtualmachineclusterinstancetype/small` takes it"
    " as it is now"
)
PROBLEMS: dict[str, tuple[Object, tuple[Object, ...], str, str, bool]] = {
    "2.3 no such object": (
        vm_with(name="small"), (), "spec.instancetype.name",
        'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "small" not found', True,
    ),
    "2.3 no such object in the namespace": (
        vm_with(name="large", kind="virtualmachineinstancetype"), ALL, "spec.instancetype.name",
        'virtualmachineinstancetypes.instancetype.kubevirt.io "large" not found', True,
    ),
    "2.1 an unknown kind": (
        vm_with(name="small", kind="Flavor"), ALL, "spec.instancetype.kind",
        "got unexpected kind in InstancetypeMatcher: flavor", False,
    ),
    "no such pin": (
        vm_with(name="small", revisionName="gone"), ALL, "spec.instancetype.revisionName",
        'controllerrevisions.apps "gone" not found', True,
    ),
    "no such pin, by its name one of what is named": (
        vm_with(USES_SMALL, name="large", revisionName=RL), (LARGE, OF_SMALL),
        "spec.instancetype.revisionName", f'controllerrevisions.apps "{RL}" not found', True,
    ),
    "the revision in use was removed, and is pinned": (
        vm_with({"instancetypeRef": reference(OLD)}, name="small", revisionName="old"), (SMALL,),
        "spec.instancetype.revisionName", 'controllerrevisions.apps "old" not found', True,
    ),
    "the revision in use was removed": (
        vm_with(USES_SMALL, name="small"), (SMALL,), "spec.instancetype", LOST, True,
    ),
    "a revision of something else": (
        vm_with(name="small", revisionName="r"), (a_revision("r", taken(a_preference())["data"]),),
        "spec.instancetype",
        "unexpected type in ControllerRevision: VirtualMachineClusterPreference in r", False,
    ),
    "6 nothing to infer from": (
        vm_with(inferFromVolume="v"), (), "spec.instancetype.inferFromVolume",
        "unable to find volume v to infer defaults", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("vm", "objects", "field", "message", "passing"), PROBLEMS.values(), ids=PROBLEMS
)
def test_problems(
    vm: Object, objects: tuple[Object, ...], field: str, message: str, passing: bool
) -> None:
    (found,) = resolve(vm, Objects(*objects)).problems
    assert (found.field, found.message, found.passing) == (field, message, passing)
    assert found.reason == NOT_FOUND


def test_both_matchers_are_resolved_whatever_the_other_comes_to() -> None:
    vm = a_vm(instancetype={"name": "gone"}, preference={"name": "linux"})
    found = resolve(vm, Objects(a_preference()))
    assert found.instancetype is None
    assert found.preference is not None
    assert [problem.reason for problem in found.problems] == [NOT_FOUND]


def test_a_missing_preference_has_a_reason_of_its_own() -> None:
    found = resolve(a_vm(preference={"name": "gone"}), Objects())
    assert [problem.reason for problem in found.problems] == ["FailedFindPreference"]


def test_a_vm_without_matchers_looks_nothing_up() -> None:
    objects = Objects()
    assert resolve(a_vm(), objects) == Resolved()
    assert objects.asked == []


# ---------------------------------------------------------------- inferring

LABEL = "instancetype.kubevirt.io/default-instancetype"
BARE = {"domain": {"devices": {}}}
VOLUME = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
LABELLED = an_object(CLAIM, "c", labels={LABEL: "small"})


def inferring(status: Object | None = None, **matcher: Any) -> Object:
    spec = {**BARE, "volumes": [VOLUME]}
    return a_vm(spec, status, instancetype={"inferFromVolume": "v", **matcher})


def test_given_a_labelled_volume_when_inferred_then_the_status_says_what_and_from_where() -> None:
    vm = inferring(inferFromVolumeFailurePolicy="Ignore")
    resolved = resolve(vm, Objects(LABELLED, *ALL))
    assert resolved.sizing.drops_memory
    assert references(vm, resolved)["instancetypeRef"] == reference(
        OF_SMALL, inferFromVolume="v", inferFromVolumeFailurePolicy="Ignore"
    )


def test_the_policy_reject_keeps_the_memory_of_the_vm() -> None:
    assert not resolve(inferring(), Objects(LABELLED, *ALL)).sizing.drops_memory


def test_given_what_was_inferred_is_recorded_when_labels_change_then_it_stays() -> None:
    status = {"instancetypeRef": reference(OF_SMALL, inferFromVolume="v")}
    other = an_object(CLAIM, "c", labels={LABEL: "large"})
    assert the_type(inferring(status), other, *ALL).name == "small"


def test_given_another_volume_when_inferred_then_it_is_asked() -> None:
    status = {"instancetypeRef": reference(OF_LARGE, inferFromVolume="other")}
    assert the_type(inferring(status), LABELLED, *ALL).name == "small"


def test_given_ignore_and_no_label_when_inferred_then_there_is_no_type_and_never_will_be() -> None:
    vm = inferring(inferFromVolumeFailurePolicy="Ignore")
    resolved = resolve(vm, Objects(an_object(CLAIM, "c")))
    recorded = references(vm, resolved)
    assert resolved == Resolved()
    assert recorded == {
        "instancetypeRef": {"inferFromVolume": "v", "inferFromVolumeFailurePolicy": "Ignore"},
        "preferenceRef": None,
    }
    again = inferring(recorded, inferFromVolumeFailurePolicy="Ignore")
    assert resolve(again, Objects(LABELLED, *ALL)) == Resolved()


def test_given_reject_and_no_label_when_inferred_then_it_is_a_problem() -> None:
    (problem,) = resolve(inferring(), Objects(an_object(CLAIM, "c"))).problems
    assert problem.message == f"unable to find required {LABEL} label on the volume"


def test_given_ignore_when_the_claim_is_missing_then_it_is_a_problem_all_the_same() -> None:
    (problem,) = resolve(inferring(inferFromVolumeFailurePolicy="Ignore"), Objects()).problems
    assert problem.message == 'persistentvolumeclaims "c" not found'


# ---------------------------------------------------------------- what is recorded


def test_10_3_a_removed_matcher_takes_its_reference_along() -> None:
    vm = a_vm(status=USES_SMALL)
    assert references(vm, resolve(vm, Objects(*ALL)))["instancetypeRef"] is None


def test_what_is_recorded_stays_while_there_is_a_problem() -> None:
    vm = vm_with(USES_SMALL, name="gone")
    assert "instancetypeRef" not in references(vm, resolve(vm, Objects(*ALL)))


NEWER: dict[str, tuple[tuple[Object, ...], bool]] = {
    "the same": ((SMALL,), False),
    "edited": ((EDITED,), True),
    "made anew": ((a_type("small", uid="another"),), True),
    "gone": ((), False),
}


@pytest.mark.parametrize(("objects", "found"), NEWER.values(), ids=NEWER)
def test_newer(objects: tuple[Object, ...], found: bool) -> None:
    choice = the_type(vm_with(USES_SMALL, name="small"), OF_SMALL)
    assert (newer(choice, "default", Objects(*objects)) is not None) is found


@pytest.mark.parametrize("role", matchers.ROLES, ids=lambda role: role.field)
def test_each_role_is_found_under_its_own_name(role: matchers.Role) -> None:
    obj = a_type() if role is matchers.INSTANCETYPE else a_preference("small")
    found = resolve(a_vm(**{role.field: {"name": "small"}}), Objects(obj)).of(role)
    assert found is not None
    assert found.kind is role.cluster
