"""Metadata is accepted and refused exactly as for every Kubernetes kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects import metadata, names
from livevirt.kube.objects.field_error import FieldError

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "metadata.json").read_text()
)["cases"]
GOOD = {
    "name": "web",
    "namespace": "default",
    "uid": "6b2e",
    "resourceVersion": "7",
    "creationTimestamp": "2026-01-02T03:04:05Z",
}


def created(**changes: Any) -> list[FieldError]:
    return metadata.validate(
        GOOD | changes, namespaced=True, name_rule=names.validate_dns1123_subdomain
    )


def updated(**changes: Any) -> list[str]:
    return [str(error) for error in metadata.validate_update(GOOD | changes, GOOD)]


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
def test_metadata_is_judged_as_kubernetes_judges_it(case: dict[str, Any]) -> None:
    if case["kind"] == "create":
        found = metadata.validate(
            case["new"],
            namespaced=case["namespaced"],
            name_rule=getattr(names, f"validate_{case['rule']}"),
        )
    else:
        found = metadata.validate_update(case["new"], case["old"])
    assert [[error.field, error.reason, error.message] for error in found] == case["errors"]


def test_good_metadata_is_accepted() -> None:
    assert created() == []
    assert updated() == []


REFUSED = {
    "given another uid": ({"uid": "x"}, 'metadata.uid: Invalid value: "x": field is immutable'),
    "given a deletion time": (
        {"deletionTimestamp": "2026-01-02T03:04:05Z"},
        'metadata.deletionTimestamp: Invalid value: "2026-01-02T03:04:05Z": field is immutable',
    ),
    "given no creation time": (
        {"creationTimestamp": None},
        "metadata.creationTimestamp: Invalid value: null: field is immutable",
    ),
    "given no resource version": (
        {"resourceVersion": ""},
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_update_is_refused(changes: dict[str, Any], message: str) -> None:
    assert updated(**changes) == [message]


def test_given_the_same_moment_in_another_zone_when_updated_then_nothing_changed() -> None:
    assert updated(creationTimestamp="2026-01-02T05:04:05+02:00") == []


def test_given_a_deletion_under_way_when_finalizers_come_then_refused_and_may_only_go() -> None:
    old = GOOD | {"deletionTimestamp": "2026-01-03T00:00:00Z", "finalizers": ["a.io/x"]}
    more = metadata.validate_update(old | {"finalizers": ["c.io/z", "b.io/y", "a.io/x"]}, old)
    assert [error.message for error in more] == [
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"b.io/y", "c.io/z"}'
    ]
    assert metadata.validate_update(old | {"finalizers": []}, old) == []


def test_two_controllers_are_refused_naming_both() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": True}
    (error,) = created(ownerReferences=[owner, owner | {"name": "b", "uid": "2"}])
    assert error == FieldError(
        "metadata.ownerReferences",
        "FieldValueInvalid",
        'Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1","controller":true},'
        '{"apiVersion":"v1","kind":"Pod","name":"b","uid":"2","controller":true}]: '
        "Only one reference can have Controller set to true. "
        'Found "true" in references for Pod/a and Pod/b',
    )


def test_annotations_may_hold_256_kib_in_all() -> None:
    assert created(annotations={"k": "x" * (256 * 1024 - 1)}) == []
    assert created(annotations={"k": "x" * (256 * 1024)}) == [
        FieldError(
            "metadata.annotations",
            "FieldValueTooLong",
            "Too long: may not be more than 262144 bytes",
        )
    ]
    assert created(annotations={"k": "é" * (128 * 1024)}) != []


def test_dependents_cannot_be_both_orphaned_and_deleted() -> None:
    (error,) = created(finalizers=["orphan", "foregroundDeletion"])
    assert error.message == (
        'Invalid value: ["orphan","foregroundDeletion"]: '
        "finalizer orphan and foregroundDeletion cannot be both set"
    )


def test_finalizers_of_a_built_in_kind_are_standard_or_qualified() -> None:
    found = metadata.validate_core_finalizers(
        {"finalizers": ["kubernetes", "example.com/x", "golden.test", "orphan"]}
    )
    assert [str(error) for error in found] == [
        'metadata.finalizers[2]: Invalid value: "golden.test": '
        "name is neither a standard finalizer name nor is it fully qualified"
    ]
    assert metadata.validate_core_finalizers({}) == []


@pytest.mark.parametrize("manager", ["", "kubectl", "é" * 64])
def test_a_field_manager_may_hold_128_bytes(manager: str) -> None:
    assert metadata.validate_field_manager(manager, "fieldManager") == []
    assert metadata.validate_field_manager(manager + "x" * 129, "fieldManager") != []


def test_a_field_manager_is_printable() -> None:
    (error,) = metadata.validate_field_manager("é\n", "fieldManager")
    assert error.message == 'Invalid value: "é\\n": invalid character U+000A (at position 2)'


keys = st.sampled_from(["k", "bad key", "example.com/k", "-"])
values = st.sampled_from(["", "v", "bad!", "v" * 64])
metas = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "A"]),
        "generateName": st.sampled_from(["a-", "A-"]),
        "namespace": st.sampled_from(["ns", "n.s"]),
        "labels": st.dictionaries(keys, values),
        "annotations": st.dictionaries(keys, values),
        "finalizers": st.lists(keys),
    },
)


@given(metas)
def test_an_unchanged_object_is_refused_at_most_for_what_creating_it_was(
    meta: dict[str, Any],
) -> None:
    stored = meta | {"resourceVersion": "1"}
    at_creation = metadata.validate(
        stored, namespaced=True, name_rule=names.validate_dns1123_subdomain
    )
    assert set(metadata.validate_update(stored, stored)) <= set(at_creation)
