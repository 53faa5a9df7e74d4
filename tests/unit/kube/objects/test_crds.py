"""CRDs: definitions that a real kube-apiserver takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from livevirt.kube.objects import crds, jsonpath
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.schema import Definitions
from livevirt.vm import kinds
from livevirt.vm.kinds import REGISTRY

CUSTOM = [kind for kind in REGISTRY.kinds if kind.custom]

Schema = dict[str, Any]


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from walk(schema[name], f"{path}.{name}")


def roots(kind: Kind) -> list[Schema]:
    versions = crds.definition(kind)["spec"]["versions"]
    return [version["schema"]["openAPIV3Schema"] for version in versions]


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.resource)
def test_a_schema_is_structural(kind: Kind) -> None:
    for root in roots(kind):
        for path, schema in walk(root):
            int_or_string = schema.get("x-kubernetes-int-or-string")
            loose = int_or_string or schema.get("x-kubernetes-preserve-unknown-fields")
            assert loose or schema.get("type"), path
            assert not (int_or_string and "type" in schema), path
            assert not {"$ref", "allOf", "oneOf", "uniqueItems"} & set(schema), path
            assert not {"properties", "additionalProperties"} <= set(schema), path
            assert schema.get("type") != "array" or "items" in schema, path
            assert set(schema.get("required", ())) <= set(schema.get("properties", ())), path


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.resource)
def test_lists_of_maps_have_keys_that_are_always_there(kind: Kind) -> None:
    for root in roots(kind):
        for path, schema in walk(root):
            keys = schema.get("x-kubernetes-list-map-keys", ())
            assert set(keys) <= set(schema.get("items", {}).get("required", ())), path


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.resource)
def test_the_root_leaves_metadata_to_the_server(kind: Kind) -> None:
    for root in roots(kind):
        assert root["properties"]["metadata"] == {"type": "object"}
        assert root["properties"]["kind"] == {"type": "string"}


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.resource)
def test_a_definition_fits_into_the_annotation_of_kubectl_apply(kind: Kind) -> None:
    assert len(json.dumps(crds.definition(kind))) < 262_144


def test_names_scope_columns_and_status_of_vms() -> None:
    spec = crds.definition(kinds.VM)["spec"]
    assert spec["names"] == {
        "plural": "virtualmachines",
        "singular": "virtualmachine",
        "kind": "VirtualMachine",
        "listKind": "VirtualMachineList",
        "shortNames": ["vm", "vms"],
        "categories": ["all"],
    }
    assert spec["scope"] == "Namespaced"
    (version,) = spec["versions"]
    assert version["subresources"] == {"status": {}}
    assert [c["name"] for c in version["additionalPrinterColumns"]] == ["Age", "Status", "Ready"]


def test_instance_types_are_served_in_both_versions_and_stored_in_one() -> None:
    spec = crds.definition(kinds.INSTANCETYPE)["spec"]
    assert {v["name"]: (v["served"], v["storage"]) for v in spec["versions"]} == {
        "v1beta2": (True, True),
        "v1beta1": (True, False),
    }
    newer, older = (v["schema"]["openAPIV3Schema"] for v in spec["versions"])
    assert jsonpath.find(".properties.spec.properties.cpu.required", older) == [["guest"]]
    assert jsonpath.find(".properties.spec.properties.cpu.required", newer) == []


def test_quantities_may_be_numbers_and_templates_may_have_metadata() -> None:
    (root,) = roots(kinds.VM)
    template = root["properties"]["spec"]["properties"]["template"]["properties"]
    assert template["metadata"] == {
        "type": "object",
        "nullable": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    memory = template["spec"]["properties"]["domain"]["properties"]["memory"]
    assert memory["properties"]["guest"]["x-kubernetes-int-or-string"] is True


def test_lists_are_replaced_as_a_whole_as_in_kubevirt() -> None:
    merged = {
        path: tuple(schema["x-kubernetes-list-map-keys"])
        for path, schema in walk(roots(kinds.VM)[0])
        if schema.get("x-kubernetes-list-type") == "map"
    }
    assert merged == {".spec.template.spec.resourceClaims": ("name",)}


def test_references_and_selectors_are_replaced_as_a_whole() -> None:
    atomic = {
        path
        for path, schema in walk(roots(kinds.VM)[0])
        if schema.get("x-kubernetes-map-type") == "atomic"
    }
    assert ".spec.template.spec.accessCredentials[].sshPublicKey.source.secret" not in atomic
    assert any(path.endswith(".labelSelector") for path in atomic)


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.resource)
def test_selectable_fields_are_scalars_of_the_schema(kind: Kind) -> None:
    for version in crds.definition(kind)["spec"]["versions"]:
        fields = dict(walk(version["schema"]["openAPIV3Schema"]))
        for selectable in version.get("selectableFields", ()):
            assert fields[selectable["jsonPath"]]["type"] in ("string", "boolean", "integer")


def test_instances_are_selected_by_node_and_phase() -> None:
    (version,) = crds.definition(kinds.VMI)["spec"]["versions"]
    paths = [each["jsonPath"] for each in version["selectableFields"]]
    assert paths == [".status.nodeName", ".status.phase"]


def test_given_a_kind_that_is_served_then_its_definition_is_established() -> None:
    shown = crds.established(kinds.VM, "2026-03-01T12:00:00Z", "7")
    assert shown == crds.established(kinds.VM, "2026-03-01T12:00:00Z", "7")
    assert shown["metadata"]["name"] == "virtualmachines.kubevirt.io"
    assert {c["type"]: c["status"] for c in shown["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert shown["status"]["storedVersions"] == ["v1"]
    assert shown["status"]["acceptedNames"] == shown["spec"]["names"]


def a_schema(table: str) -> Schema:
    return crds._root(Definitions({"t": f"package p\n{table}"})["t.Root"])


def test_given_a_list_whose_key_may_be_missing_then_it_is_not_merged_by_it() -> None:
    root = a_schema("Root\n  a [Item] key=k\n  b [Item] key=o\nItem\n  k string!\n  o string\n")
    assert root["properties"]["a"]["x-kubernetes-list-map-keys"] == ["k"]
    assert "x-kubernetes-list-type" not in root["properties"]["b"]


def test_given_a_type_that_contains_itself_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p\.Node contains itself"):
        a_schema("Root\n  spec Node\nNode\n  children [Node]\n")
