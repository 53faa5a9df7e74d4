"""Discovery: what clients learn about the server before they use it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from livevirt.kube.server import discovery
from livevirt.kube.server.responses import PLAIN, Form
from livevirt.vm.kinds import REGISTRY

ALL = Form(as_="APIGroupDiscoveryList", version="v2", group="apidiscovery.k8s.io")


def read(path: str, form: Form = PLAIN) -> Any:
    document = discovery.answer(REGISTRY, path, form, "127.0.0.1:6443")
    assert document is not None
    return json.loads(document.body)


def resources(path: str) -> dict[str, Any]:
    return {entry["name"]: entry for entry in read(path)["resources"]}


def test_the_core_group_is_v1_at_our_address() -> None:
    assert read("/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}
        ],
    }


def test_the_root_lists_paths_that_all_can_be_read() -> None:
    paths = read("/")["paths"]
    assert {"/api/v1", "/apis/kubevirt.io/v1", "/version"} <= set(paths)
    for path in paths:
        if path.startswith("/api"):
            assert read(path)["kind"].startswith("API")


def test_every_group_of_the_registry_is_listed_and_can_be_read_alone() -> None:
    listed = {group["name"]: group for group in read("/apis")["groups"]}
    assert set(listed) == {k.group for k in REGISTRY.kinds if k.group} | {
        "subresources.kubevirt.io"
    }
    for name, group in listed.items():
        assert read(f"/apis/{name}") == {"kind": "APIGroup", "apiVersion": "v1", **group}
        for version in group["versions"]:
            assert read(f"/apis/{version['groupVersion']}")["resources"]


def test_instance_types_are_served_in_two_versions_the_newer_preferred() -> None:
    group = read("/apis/instancetype.kubevirt.io")
    assert [v["version"] for v in group["versions"]] == ["v1beta2", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1beta2"


def test_pods_with_their_subresources() -> None:
    found = resources("/api/v1")
    assert found["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": [
            "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
        ],
        "shortNames": ["po"],
        "categories": ["all"],
        "storageVersionHash": "xPOwRZ+Yhw8=",
    }  # fmt: skip
    assert found["pods/resize"]["kind"] == "Pod"
    assert "group" not in found["pods/binding"]
    eviction = found["pods/eviction"]
    assert (eviction["kind"], eviction["group"], eviction["version"]) == (
        "Eviction", "policy", "v1",
    )  # fmt: skip


def test_a_kind_and_its_subresources_are_of_one_scope() -> None:
    found = resources("/api/v1")
    names = ("nodes", "nodes/status", "pods", "pods/status")
    assert [found[name]["namespaced"] for name in names] == [False, False, True, True]


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
def test_what_a_vm_can_be_asked_is_listed(version: str) -> None:
    found = resources(f"/apis/subresources.kubevirt.io/{version}")
    assert found["virtualmachines/start"]["verbs"] == ["update"]
    assert found["virtualmachines/plan"]["verbs"] == ["create"]
    assert found["virtualmachineinstances/console"]["verbs"] == ["get"]


@pytest.mark.parametrize(
    "path", ["/api/v2", "/apis/nope", "/apis/apps/v9", "/apis//v1", "/healthz", "/apis/apps/v1/x"]
)
def test_given_a_path_we_do_not_serve_then_there_is_no_document(path: str) -> None:
    assert discovery.answer(REGISTRY, path) is None


@pytest.mark.parametrize("form", [Form(as_="Table", version="v1"), ALL._replace(version="v9")])
def test_given_a_form_we_cannot_make_then_the_plain_one_is_sent(form: Form) -> None:
    assert read("/apis", form)["kind"] == "APIGroupList"


def test_given_a_client_that_takes_all_at_once_then_it_gets_everything_with_an_etag() -> None:
    document = discovery.answer(REGISTRY, "/apis", ALL)
    assert document is not None
    assert document.content_type == (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    assert re.fullmatch(r'"[0-9A-F]{128}"', document.etag)
    body = json.loads(document.body)
    assert (body["kind"], body["apiVersion"]) == (
        "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2",
    )  # fmt: skip
    groups = {item["metadata"]["name"]: item["versions"] for item in body["items"]}
    (version,) = groups["kubevirt.io"]
    (vm,) = [r for r in version["resources"] if r["resource"] == "virtualmachines"]
    assert vm["responseKind"] == {
        "group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine",
    }  # fmt: skip
    assert (vm["scope"], vm["shortNames"]) == ("Namespaced", ["vm", "vms"])
    assert [s["subresource"] for s in vm["subresources"]] == ["status"]


def test_the_core_group_has_no_name_in_the_aggregated_form() -> None:
    (core,) = read("/api", ALL)["items"]
    assert core["metadata"] == {}
    pods = next(r for r in core["versions"][0]["resources"] if r["resource"] == "pods")
    eviction = next(s for s in pods["subresources"] if s["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_given_both_forms_then_they_list_the_same_resources() -> None:
    plain = {
        (group, version, entry["name"])
        for group, versions in {"": ("v1",), **discovery.groups(REGISTRY)}.items()
        for version in versions
        for entry in resources(f"/apis/{group}/{version}" if group else f"/api/{version}").values()
    }
    nested = set()
    for item in read("/api", ALL)["items"] + read("/apis", ALL)["items"]:
        for version in item["versions"]:
            at = (item["metadata"].get("name", ""), version["version"])
            for resource in version["resources"]:
                if resource["responseKind"]["kind"]:
                    nested.add((*at, resource["resource"]))
                for sub in resource.get("subresources", ()):
                    nested.add((*at, f"{resource['resource']}/{sub['subresource']}"))
    assert nested == plain


def test_the_version_is_one_that_semver_libraries_read() -> None:
    version = read("/version")
    assert version["major"] == "1"
    assert re.fullmatch(r"v1\.\d+\.\d+\+livevirt\.[0-9A-Za-z.-]+", version["gitVersion"])
    assert all(isinstance(value, str) for value in version.values())
    assert "/" in version["platform"]
