"""Our CustomResourceDefinitions on a real kube-apiserver, without any of our components."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
import yaml

from livevirt.cluster.crds import CONVERTED
from livevirt.vm import kinds

from . import examples
from .cluster import KubernetesCluster
from .webhook_process import livevirt

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="clusters need root for their namespaces"),
]


@pytest.fixture(scope="module")
def defined(control_plane: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """A cluster with our definitions, applied as the docs show it."""
    control_plane.kubectl("apply", "--server-side", "-f", "-", text=livevirt("crds"))
    control_plane.kubectl("create", "namespace", "crds")
    for kind in kinds.KINDS:
        control_plane.wait(f"crd/{kind.resource}", "condition=Established")
    yield control_plane
    control_plane.kubectl("delete", "namespace", "crds", "--wait=false")


def apply(cluster: KubernetesCluster, manifest: examples.Object, *options: str) -> None:
    cluster.kubectl("apply", "-n", "crds", "-f", "-", *options, text=json.dumps(manifest))


def test_given_our_definitions_then_all_are_established_and_structural(
    defined: KubernetesCluster,
) -> None:
    for kind in kinds.KINDS:
        conditions = defined.get("crd", kind.resource)["status"]["conditions"]
        found = {condition["type"]: condition["status"] for condition in conditions}
        assert found.pop("Established") == "True"
        assert found.pop("NamesAccepted") == "True"
        assert found == {}, kind.resource  # NonStructuralSchema would be here


def test_given_our_definitions_when_applied_again_then_nothing_changes(
    defined: KubernetesCluster,
) -> None:
    before = [each["metadata"]["generation"] for each in defined.get("crds")["items"]]
    defined.kubectl("apply", "--server-side", "-f", "-", text=livevirt("crds"))
    assert [each["metadata"]["generation"] for each in defined.get("crds")["items"]] == before


def test_given_kubevirts_examples_then_they_are_accepted_without_unknown_fields(
    defined: KubernetesCluster,
) -> None:
    # Instance types in their older version need the webhook; see test_webhook.py.
    sizes = tuple(kind.kind for kind in CONVERTED)
    manifests = [each for each in examples.MANIFESTS if each["kind"] not in sizes]
    options = ("--dry-run=server", "--validate=strict", "-n", "crds", "-f", "-")
    accepted = defined.kubectl("create", *options, text=yaml.safe_dump_all(manifests))
    assert len(accepted.splitlines()) == len(manifests)


def test_given_short_names_categories_and_columns_then_kubectl_shows_them(
    defined: KubernetesCluster,
) -> None:
    apply(defined, examples.a_vm("shown", examples.a_spec()))
    status = {"status": {"printableStatus": "Stopped"}}
    change = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
    defined.kubectl("patch", "vm", "shown", "-n", "crds", *change)
    header, row = defined.kubectl("get", "vms", "-n", "crds").splitlines()
    assert header.split() == ["NAME", "AGE", "STATUS", "READY"]
    assert row.split()[0::2] == ["shown", "Stopped"]
    assert "virtualmachine.kubevirt.io/shown" in defined.kubectl("get", "all", "-n", "crds")
    explained = defined.kubectl("explain", "vm.spec.template.spec.domain.cpu.sockets")
    assert "integer" in explained


def test_given_the_status_subresource_then_a_spec_write_leaves_the_status_alone(
    defined: KubernetesCluster,
) -> None:
    apply(defined, examples.a_vm("owned", examples.a_spec()))
    patch = json.dumps({"spec": {"runStrategy": "Always"}, "status": {"ready": True}})
    defined.kubectl("patch", "vm", "owned", "-n", "crds", "--type=merge", "-p", patch)
    vm = defined.get("vm", "owned", "-n", "crds")
    assert vm["spec"]["runStrategy"] == "Always"
    assert "status" not in vm


def test_given_selectable_fields_then_instances_are_selected_by_them(
    defined: KubernetesCluster,
) -> None:
    for name, node in (("here", "hollow-1"), ("there", "hollow-2")):
        vmi = examples.a_vmi(name, examples.a_spec())
        apply(defined, {**vmi, "status": {"nodeName": node, "phase": "Running"}})
    select = "--field-selector=status.nodeName=hollow-2,status.phase=Running"
    items = defined.get("vmi", "-n", "crds", select)["items"]
    assert [each["metadata"]["name"] for each in items] == ["there"]


def test_given_two_managers_then_lists_are_owned_as_a_whole(defined: KubernetesCluster) -> None:
    def manifest(name: str) -> str:
        volume = {"name": name, "emptyDisk": {"capacity": "1Gi"}}
        return json.dumps(examples.a_vm("shared", examples.a_spec((volume,))))

    def run(manager: str, *options: str) -> int:
        command = ("apply", "-n", "crds", "-f", "-", "--server-side", f"--field-manager={manager}")
        return defined.run_kubectl(*command, *options, text=manifest(manager)).returncode

    assert run("git") == 0
    assert run("backup") != 0
    assert disks(defined) == {"git"}
    assert run("backup", "--force-conflicts") == 0
    assert disks(defined) == {"backup"}


def disks(cluster: KubernetesCluster) -> set[str]:
    spec = cluster.get("vm", "shared", "-n", "crds")["spec"]["template"]["spec"]
    names = [{each["name"] for each in part} for part in (spec["volumes"], devices(spec))]
    assert names[0] == names[1]
    return names[0]


def devices(spec: examples.Object) -> list[examples.Object]:
    found: list[examples.Object] = spec["domain"]["devices"]["disks"]
    return found


def test_given_a_template_written_by_a_tool_then_its_empty_metadata_is_accepted(
    defined: KubernetesCluster,
) -> None:
    vm = examples.a_vm("generated", examples.a_spec())
    vm["spec"]["template"]["metadata"]["creationTimestamp"] = None
    apply(defined, vm)
    differing = defined.run_kubectl("diff", "-n", "crds", "-f", "-", text=json.dumps(vm))
    assert (differing.returncode, differing.stdout) == (0, "")
