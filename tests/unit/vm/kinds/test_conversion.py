"""Instance types in either version: nothing is lost on the way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Type, definitions
from livevirt.kube.objects.structural import prune, validate
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, INSTANCETYPE, PREFERENCE
from livevirt.vm.kinds.conversion import is_open

TYPES = (INSTANCETYPE, CLUSTER_INSTANCETYPE)
PREFERENCES = (PREFERENCE, CLUSTER_PREFERENCE)

texts = st.text("abc", max_size=3)


def values(type_: Type, depth: int = 4) -> st.SearchStrategy[Any]:
    """Anything a field of a type can hold."""
    match type_.form:
        case "object" if depth:
            needed: dict[str, st.SearchStrategy[Any]] = {}
            may: dict[str, st.SearchStrategy[Any]] = {}
            for name, field in type_.fields.items():
                (needed if field.required else may)[name] = values(field.type, depth - 1)
            return st.fixed_dictionaries(needed, optional=may)
        case "list" if type_.element is not None and depth:
            return st.lists(values(type_.element, depth - 1), max_size=2)
        case "map" if type_.element is not None:
            return st.dictionaries(texts, values(type_.element, depth - 1), max_size=2)
        case "integer":
            return st.integers(1, 8)
        case "boolean":
            return st.booleans()
        case "quantity":
            return st.sampled_from(("512Mi", "1Gi", "1.5G", 1024))
        case "object" | "list":
            return st.just({} if type_.form == "object" else [])
        case _:
            return texts


def an_object(kind: Kind, version: str, spec: Object) -> Object:
    return {
        "apiVersion": kind.api_version_of(version), "kind": kind.kind,
        "metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": spec,
    }  # fmt: skip


SPEC = definitions()["instancetype_v1beta2.VirtualMachineInstancetypeSpec"]
PREFERENCE_SPEC = definitions()["instancetype.VirtualMachinePreferenceSpec"]
#: As stored: admission writes down parts that say nothing.
stored_specs = values(SPEC).map(lambda spec: {"cpu": {}, "memory": {}, **spec})


@given(st.sampled_from(TYPES), stored_specs)
def test_given_any_stored_type_when_read_and_written_in_v1beta1_then_it_is_the_same(
    kind: Kind, spec: Object
) -> None:
    stored = an_object(kind, "v1beta2", spec)
    before = copy.deepcopy(stored)
    shown = kind.as_version("v1beta1", stored)
    assert kind.as_version("v1beta2", shown) == stored == before
    assert validate(kind.schema("v1beta1"), prune(kind.schema("v1beta1"), shown, [])) == []


@given(st.sampled_from(TYPES), stored_specs, st.integers(1, 8), st.just("1Gi"))
def test_given_any_v1beta1_type_when_read_and_written_in_v1beta2_then_it_is_the_same(
    kind: Kind, spec: Object, vcpus: int, memory: str
) -> None:
    sized = {
        **spec,
        "cpu": {**spec["cpu"], "guest": vcpus},
        "memory": {**spec["memory"], "guest": memory},
    }
    written = an_object(kind, "v1beta1", sized)
    kept = kind.as_version("v1beta2", written)
    assert kept["spec"] == sized
    assert kind.as_version("v1beta1", kept) == written


@given(st.sampled_from(PREFERENCES), values(PREFERENCE_SPEC))
def test_given_any_preference_when_converted_then_only_its_version_differs(
    kind: Kind, spec: Object
) -> None:
    stored = an_object(kind, "v1beta2", spec)
    shown = kind.as_version("v1beta1", stored)
    assert shown == {**stored, "apiVersion": "instancetype.kubevirt.io/v1beta1"}
    assert kind.as_version("v1beta2", shown) == stored


SHOWN: dict[str, tuple[Object, Object]] = {
    "open sizes are zero": (
        {"cpu": {}, "memory": {}}, {"cpu": {"guest": 0}, "memory": {"guest": "0"}},
    ),
    "beside other settings": (
        {"cpu": {"model": "m"}, "memory": {"hugepages": {"pageSize": "2Mi"}}},
        {"cpu": {"guest": 0, "model": "m"},
         "memory": {"guest": "0", "hugepages": {"pageSize": "2Mi"}}},
    ),
    "one open size": (
        {"cpu": {"guest": 2}, "memory": {}}, {"cpu": {"guest": 2}, "memory": {"guest": "0"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("stored", "shown"), SHOWN.values(), ids=SHOWN)
def test_what_v1beta1_shows(stored: Object, shown: Object) -> None:
    kind = CLUSTER_INSTANCETYPE
    assert kind.as_version("v1beta1", an_object(kind, "v1beta2", stored))["spec"] == shown


def test_an_object_of_the_wanted_version_is_handed_back() -> None:
    obj = an_object(INSTANCETYPE, "v1beta2", {"cpu": {}})
    assert INSTANCETYPE.as_version("v1beta2", obj) is obj


OPEN = {
    "left out": ("cpu", None, True), "zero": ("cpu", 0, True), "some": ("cpu", 1, False),
    "zero of memory": ("memory", "0", True), "in other words": ("memory", "0Gi", True),
    "as a number": ("memory", 0, True), "memory": ("memory", "1Gi", False),
    "no amount at all": ("memory", "lots", False),
}  # fmt: skip


@pytest.mark.parametrize(("part", "value", "open_"), OPEN.values(), ids=OPEN)
def test_is_open(part: str, value: Any, open_: bool) -> None:
    assert is_open(part, value) is open_


@pytest.mark.parametrize(
    "name", ["VirtualMachineInstancetypeSpec", "CPUInstancetype", "MemoryInstancetype"]
)
def test_both_versions_have_the_same_fields_and_v1beta2_requires_none_of_them(name: str) -> None:
    older = definitions()[f"instancetype.{name}"].fields
    newer = definitions()[f"instancetype_v1beta2.{name}"].fields
    assert set(older) == set(newer)
    assert {field for field, of in older.items() if of.required} == (
        {"cpu", "memory"} if name.endswith("Spec") else {"guest"}
    )
    assert not any(of.required for of in newer.values())
