"""OpenAPI: what `kubectl explain`, apply and dry-run learn about the kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.schema import Type, definitions
from livevirt.kube.server.openapi import documents
from livevirt.kube.server.openapi.documents import Document, Moved
from livevirt.vm.kinds import REGISTRY

FACTS = Path(__file__).parents[6] / "shared" / "facts" / "kubevirt-api-fields.json"

ADDRESSES = {
    path: entry["serverRelativeURL"]
    for path, entry in json.loads(documents.index(REGISTRY).plain())["paths"].items()
}


def read(path: str) -> Any:
    found = documents.document(REGISTRY, path)
    assert isinstance(found, Document)
    return json.loads(found.plain())


def schemas(path: str) -> Any:
    return read(path)["components"]["schemas"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_index_names_a_document_for_every_group_and_version() -> None:
    served = {
        kind.path(version=version).removeprefix("/").removesuffix(f"/{kind.plural}")
        for kind in REGISTRY.kinds
        for version in kind.versions
    }
    assert served <= set(ADDRESSES)
    assert "apis/subresources.kubevirt.io/v1" in ADDRESSES


@pytest.mark.parametrize("path", ADDRESSES)
def test_given_a_hash_when_it_is_right_then_the_document_else_its_address(path: str) -> None:
    address, _, hash_ = ADDRESSES[path].partition("?hash=")
    assert address == f"/openapi/v3/{path}"
    found = documents.document(REGISTRY, path, hash_)
    assert isinstance(found, Document)
    assert found.etag == f'"{hash_}"'
    assert documents.document(REGISTRY, path) == found
    assert documents.document(REGISTRY, path, "wrong") == Moved(ADDRESSES[path])


def test_given_a_path_we_do_not_serve_then_there_is_no_document() -> None:
    assert documents.document(REGISTRY, "apis/nope/v1") is None


@pytest.mark.parametrize("path", ADDRESSES)
def test_every_reference_of_a_document_leads_somewhere(path: str) -> None:
    document = read(path)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        operation["operationId"]
        for path in ADDRESSES
        for item in read(path)["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", REGISTRY.kinds, ids=lambda kind: kind.resource)
def test_every_kind_is_described_with_its_list(kind: Kind) -> None:
    for version in kind.versions:
        found = schemas(kind.path(version=version)[1:].removesuffix(f"/{kind.plural}"))
        own = {"group": kind.group, "version": version, "kind": kind.kind}
        name = kind.schema(version).name
        assert found[name]["x-kubernetes-group-version-kind"] == [own]
        assert {"apiVersion", "kind", "metadata"} <= set(found[name]["properties"])
        if "list" in kind.verbs:
            listed = found[f"{name}List"]
            assert listed["x-kubernetes-group-version-kind"] == [
                {**own, "kind": f"{kind.kind}List"}
            ]
            assert listed["required"] == ["items"]


def test_lists_say_how_they_are_merged() -> None:
    pod = schemas("api/v1")["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["containers"] == {
        "description": pod["containers"]["description"],
        "type": "array",
        "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    }
    assert pod["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert pod["tolerations"]["x-kubernetes-list-type"] == "atomic"
    assert pod["nodeSelector"]["x-kubernetes-map-type"] == "atomic"
    meta = schemas("api/v1")["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    assert meta["finalizers"]["x-kubernetes-list-type"] == "set"
    assert meta["finalizers"]["x-kubernetes-patch-strategy"] == "merge"
    assert "x-kubernetes-patch-merge-key" not in meta["finalizers"]


def test_given_more_to_say_than_a_reference_then_the_reference_goes_below_allof() -> None:
    template = schemas("apis/kubevirt.io/v1")["io.kubevirt.v1.VirtualMachineInstanceTemplateSpec"]
    metadata = template["properties"]["metadata"]
    assert metadata["x-kubernetes-preserve-unknown-fields"] is True
    (reference,) = metadata["allOf"]
    assert reference["$ref"].endswith("meta.v1.ObjectMeta")


def test_scalars() -> None:
    vm = schemas("apis/kubevirt.io/v1")
    cpu = vm["io.kubevirt.v1.CPU"]["properties"]
    assert cpu["sockets"]["type"] == "integer"
    assert cpu["sockets"]["format"] == "int64"
    reboot = vm["io.kubevirt.v1.DomainSpec"]["properties"]["rebootPolicy"]
    assert reboot["enum"] == ["Reboot", "Terminate"]
    assert vm["io.kubevirt.v1.DomainSpec"]["required"] == ["devices"]
    quantity = vm["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["oneOf"] == [{"type": "string"}, {"type": "number"}]


VM_PATH = "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines"


def test_writes_declare_what_kubectl_looks_for() -> None:
    paths = read("apis/kubevirt.io/v1")["paths"]
    for path, method in ((VM_PATH, "post"), (f"{VM_PATH}/{{name}}", "patch")):
        operation = paths[path][method]
        named = {(p["name"], p["in"]) for p in operation["parameters"]}
        assert {(n, "query") for n in ("dryRun", "fieldManager", "fieldValidation")} <= named
        assert operation["x-kubernetes-action"] == method
        assert operation["x-kubernetes-group-version-kind"]["kind"] == "VirtualMachine"


def test_only_built_in_kinds_take_strategic_patches() -> None:
    strategic = "application/strategic-merge-patch+json"
    vm = read("apis/kubevirt.io/v1")["paths"][f"{VM_PATH}/{{name}}"]["patch"]
    config = read("api/v1")["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    assert strategic not in vm["requestBody"]["content"]
    assert strategic in config["requestBody"]["content"]


def test_given_a_read_only_kind_then_nothing_can_be_written() -> None:
    paths = read("apis/apiextensions.k8s.io/v1")["paths"]
    methods = {method for item in paths.values() for method in item if method != "parameters"}
    assert methods == {"get"}


def test_the_older_form_holds_every_schema_and_leads_somewhere() -> None:
    document = json.loads(documents.swagger(REGISTRY).plain())
    assert document["swagger"] == "2.0"
    for path in ADDRESSES:
        assert set(schemas(path)) <= set(document["definitions"])
        assert set(read(path)["paths"]) <= set(document["paths"])
    known = {f"#/definitions/{name}" for name in document["definitions"]}
    assert set(references(document)) <= known
    text = json.dumps(document)
    for word in ('"allOf"', '"oneOf"', '"nullable"', '"requestBody"', "components/schemas"):
        assert word not in text
    patch = document["paths"][f"{VM_PATH}/{{name}}"]["patch"]
    assert {p["name"] for p in patch["parameters"]} >= {"body", "dryRun", "fieldValidation"}
    assert "application/merge-patch+json" in patch["consumes"]


def test_given_a_field_that_keeps_what_is_unknown_then_the_older_form_gives_it_no_type() -> None:
    name = "io.kubevirt.v1.VirtualMachineInstanceTemplateSpec"
    metadata = json.loads(documents.swagger(REGISTRY).plain())["definitions"][name]["properties"][
        "metadata"
    ]
    assert set(metadata) == {"description", "x-kubernetes-preserve-unknown-fields"}


def test_what_is_kept_in_memory_is_small() -> None:
    documents.swagger(REGISTRY)
    kept = [documents.document(REGISTRY, path) for path in ADDRESSES]
    assert sum(len(d.compressed) for d in kept if isinstance(d, Document)) < 500_000


# ---------------------------------------------------------------- the tables against KubeVirt's API

_TABLES = {
    "v1": "kubevirt",
    "v1beta1": ("instancetype", "cdi"),
    "v1alpha1": "migrations",
    "k8s.io.api.core.v1": "core",
    "k8s.io.apimachinery.pkg.apis.meta.v1": "meta",
}


def our_type(name: str) -> Type | None:
    package, _, short = name.rpartition(".")
    tables = _TABLES.get(package, ())
    for table in (tables,) if isinstance(tables, str) else tables:
        if f"{table}.{short}" in definitions().names():
            return definitions()[f"{table}.{short}"]
    return None


def test_every_field_of_kubevirts_api_is_known() -> None:
    if not FACTS.exists():
        pytest.skip("the list of KubeVirt's fields is not on this machine")
    wrong = []
    for name, listed in json.loads(FACTS.read_text())["types"].items():
        if set(listed) == {"type"}:
            continue  # a scalar, or an object without fields
        type_ = our_type(name)
        if type_ is None:
            wrong.append(name)
            continue
        required = set(listed.pop("required", ())) - {"metadata"}
        known = {"apiVersion", "kind", *type_.fields}  # every object may have the first two
        wrong += [f"{name}.{field} is unknown" for field in listed if field not in known]
        ours = {field.name for field in type_.fields.values() if field.required}
        wrong += [f"{name}.{field} is required" for field in required - ours]
    assert wrong == []


DESCRIBED = [
    "kubevirt.VirtualMachine", "kubevirt.VirtualMachineSpec", "kubevirt.VirtualMachineStatus",
    "kubevirt.VirtualMachineInstance", "kubevirt.VirtualMachineInstanceSpec",
    "kubevirt.VirtualMachineInstanceStatus", "kubevirt.DomainSpec", "kubevirt.CPU",
    "kubevirt.Memory", "kubevirt.Devices", "kubevirt.Disk", "kubevirt.Volume", "kubevirt.Network",
    "kubevirt.Interface", "kubevirt.KubeVirt", "kubevirt.KubeVirtConfiguration",
    "kubevirt.LiveUpdateConfiguration", "kubevirt.KubeVirtWorkloadUpdateStrategy",
    "instancetype_v1beta2.VirtualMachineInstancetypeSpec",
    "instancetype.VirtualMachinePreferenceSpec", "cdi.DataVolume", "cdi.DataVolumeSpec",
    "migrations.MigrationPolicySpec", "meta.ObjectMeta", "core.Pod", "core.ConfigMap",
    "core.Secret", "core.Namespace", "core.Node", "core.Event", "core.ResourceQuota",
    "core.PersistentVolumeClaim",
]  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_people_read_about_is_described_field_by_field(name: str) -> None:
    type_ = definitions()[name]
    assert type_.description
    assert [f.name for f in type_.fields.values() if not f.description] == []
