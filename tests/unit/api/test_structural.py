"""Custom kinds are pruned and checked, and otherwise kept as they were written."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.api import registry, structural

VM = registry.VM.schema()


def a_vm(**domain: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"domain": {"devices": {}, **domain}}}}}


WRONG = {
    "a quantity that is none": (a_vm(memory={"guest": "lots"}), "FieldValueInvalid"),
    "a value out of its list": (a_vm(rebootPolicy="Never"), "FieldValueNotSupported"),
    "half a core": (a_vm(cpu={"cores": 1.5}), "FieldValueTypeInvalid"),
    "a text for a number": (a_vm(cpu={"cores": "2"}), "FieldValueTypeInvalid"),
    "no devices": ({"spec": {"template": {"spec": {"domain": {}}}}}, "FieldValueRequired"),
    "no spec": ({}, "FieldValueRequired"),
}


@pytest.mark.parametrize(("vm", "reason"), WRONG.values(), ids=WRONG)
def test_what_breaks_the_schema_is_named(vm: dict[str, Any], reason: str) -> None:
    assert [error.reason for error in structural.validate(VM, vm)] == [reason]


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
