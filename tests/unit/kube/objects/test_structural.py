"""Custom kinds are pruned and checked, and otherwise kept as they were written."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects import structural
from livevirt.vm import kinds

VM = kinds.VM.schema()


def a_vm(**domain: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"domain": {"devices": {}, **domain}}}}}


WRONG = {
    "a quantity that is none": (a_vm(memory={"guest": "lots"}), "FieldValueInvalid"),
    "a value out of its list": (a_vm(rebootPolicy="Never"), "FieldValueNotSupported"),
    "half a core": (a_vm(cpu={"cores": 1.5}), "FieldValueTypeInvalid"),
    "a text for a number": (a_vm(cpu={"cores": "2"}), "FieldValueTypeInvalid"),
    "an exponent that is not whole": (a_vm(memory={"guest": "1e1.5"}), "FieldValueInvalid"),
    "a number beyond 64 bits": (a_vm(cpu={"sockets": 2**63}), "FieldValueInvalid"),
    "a number as far below zero": (a_vm(cpu={"sockets": -(2**64)}), "FieldValueInvalid"),
    "a number as large, with a point": (a_vm(cpu={"sockets": 1e300}), "FieldValueInvalid"),
    "no devices": ({"spec": {"template": {"spec": {"domain": {}}}}}, "FieldValueRequired"),
    "no spec": ({}, "FieldValueRequired"),
}


@pytest.mark.parametrize(("vm", "reason"), WRONG.values(), ids=WRONG)
def test_what_breaks_the_schema_is_named(vm: dict[str, Any], reason: str) -> None:
    assert [error.reason for error in structural.validate(VM, vm)] == [reason]


def test_a_number_out_of_bounds_is_named_with_its_place_and_format() -> None:
    vm, at = a_vm(), "spec.template.spec.topologySpreadConstraints[0].maxSkew"
    spread = {"maxSkew": 2**31, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    vm["spec"]["template"]["spec"]["topologySpreadConstraints"] = [spread]
    [error] = structural.validate(VM, vm)
    assert str(error) == (
        f"{at}: Invalid value: 2147483648: Checked value must be of type integer with format int32"
        f" in {at}"
    )
    spread["maxSkew"] = 2**31 - 1
    assert structural.validate(VM, vm) == []


def test_a_spec_that_was_wrong_before_is_refused_only_if_it_changes() -> None:
    old = a_vm(cpu={"sockets": 10**30})
    assert structural.validate_update(VM, {**old, "status": {"ready": True}}, old) == []
    [error] = structural.validate_update(VM, {**old, "status": {"ready": "yes"}}, old)
    assert error.field == "status.ready"
    edited = a_vm(cpu={"sockets": 10**30}, memory={"guest": "1Gi"})
    [error] = structural.validate_update(VM, edited, old)
    assert error.field == "spec.template.spec.domain.cpu.sockets"


def test_values_are_kept_as_they_were_written() -> None:
    vm = a_vm(memory={"guest": 134217728}, resources={"requests": {"memory": "0.125Gi"}})
    assert structural.prune(VM, vm, []) == vm
    assert structural.validate(VM, vm) == []


def test_unknown_fields_and_meaningless_nulls_vanish() -> None:
    unknown: list[str] = []
    vm = a_vm(cpu=None, colour="red")
    assert structural.prune(VM, vm, unknown) == a_vm()
    assert unknown == ["spec.template.spec.domain.colour"]


def test_template_metadata_is_left_alone() -> None:
    vm = a_vm()
    vm["spec"]["template"]["metadata"] = {"creationTimestamp": None, "anything": {"x": 1}}
    assert structural.prune(VM, vm, []) == vm


METADATA: dict[str, tuple[Any, str]] = {
    "a number for a label": ({"labels": {"version": 5}}, "labels.version"),
    "a text for labels": ({"labels": "abc"}, "labels"),
    "a list for annotations": ({"annotations": ["a"]}, "annotations"),
    "a map for an annotation": ({"annotations": {"a": {}}}, "annotations.a"),
    "a number for a name": ({"name": 5}, "name"),
}


@pytest.mark.parametrize(("metadata", "field"), METADATA.values(), ids=METADATA)
def test_what_is_known_of_template_metadata_has_its_type(metadata: Any, field: str) -> None:
    vm = a_vm()
    vm["spec"]["template"]["metadata"] = metadata
    vm["spec"]["dataVolumeTemplates"] = [{"metadata": metadata, "spec": {}}]
    assert {(error.field, error.reason) for error in structural.validate(VM, vm)} == {
        (f"spec.template.metadata.{field}", "FieldValueTypeInvalid"),
        (f"spec.dataVolumeTemplates[0].metadata.{field}", "FieldValueTypeInvalid"),
    }


def test_nulls_in_template_metadata_mean_nothing() -> None:
    vm = a_vm()
    for metadata in ({"creationTimestamp": None, "labels": None}, {"labels": {"app": None}}, None):
        vm["spec"]["template"]["metadata"] = metadata
        assert structural.validate(VM, structural.prune(VM, vm, [])) == []
