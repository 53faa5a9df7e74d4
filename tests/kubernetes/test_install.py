"""`livevirt install`, `status` and `uninstall` on a real cluster, with pods of the image."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from livevirt.cluster import rbac
from livevirt.cluster.manifests import PART_OF, PRODUCT, WORKLOADS

from .cluster import ROOT, KubernetesCluster, eventually, running_cluster, tool
from .component import (
    NAMESPACE,
    environment,
    livevirt,
    requests_of,
    virtctl,
)

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
ARCHIVE = ROOT / ".cache" / "image" / "livevirt.tar"
OURS = f"{PART_OF}={PRODUCT}"
CLUSTER_KINDS = (
    "crd,clusterrole,clusterrolebinding,priorityclass,apiservice,namespace,"
    "mutatingwebhookconfiguration,validatingwebhookconfiguration"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """A cluster of its own: what it has installed at the end must be gone."""
    subprocess.run([ROOT / "tools" / "image" / "build.py"], check=True, timeout=900)
    name = f"install-{os.getpid()}"
    with running_cluster(name, "--nodes", "1", "--audit") as started:
        loaded = tool("load-image", str(ARCHIVE), "--name", name)
        assert loaded.returncode == 0, loaded.stderr
        yield started


@pytest.fixture(scope="module")
def installed(cluster: KubernetesCluster) -> KubernetesCluster:
    """The cluster with livevirt on it."""
    done = livevirt(cluster.kubeconfig, "install", "--replicas", "1", "--timeout", "120")
    assert done.returncode == 0, done.stderr + described(cluster)
    return cluster


def described(cluster: KubernetesCluster) -> str:
    """Return what pods of livevirt say about themselves."""
    more = [["get", "pods", "-o", "wide"], ["describe", "pods"]]
    more += [["logs", f"deployment/{each.name}", "--tail=30"] for each in WORKLOADS]
    more.append(["logs", "daemonset/livevirt-node", "--tail=30"])
    return "\n".join(cluster.run_kubectl("-n", NAMESPACE, *each).stdout for each in more)


def a_vm(name: str) -> dict[str, Any]:
    domain = {"memory": {"guest": "128Mi"}, "cpu": {"sockets": 1}, "devices": {}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": domain}}},
    }


def test_given_a_dry_run_then_everything_is_printed_and_nothing_is_applied(
    cluster: KubernetesCluster,
) -> None:
    before = cluster.kubectl("get", CLUSTER_KINDS, "-o", "name")
    done = livevirt(cluster.kubeconfig, "install", "--dry-run", "-o", "yaml")
    assert done.returncode == 0, done.stderr
    printed = list(yaml.load_all(done.stdout, yaml.CSafeLoader))
    found = {each["kind"] for each in printed}
    assert {"Namespace", "Deployment", "APIService", "KubeVirt", "NetworkPolicy"} <= found
    as_json = livevirt(cluster.kubeconfig, "install", "--dry-run", "-o", "json")
    assert json.loads(as_json.stdout)["items"] == printed
    assert cluster.kubectl("get", CLUSTER_KINDS, "-o", "name") == before


def a_definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """Return a definition as another product may have installed it."""
    schema = {"openAPIV3Schema": {"type": "object"}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [served],
        },
    }


def test_given_definitions_of_something_else_then_they_are_only_adopted_if_asked_for(
    cluster: KubernetesCluster,
) -> None:
    cluster.apply(
        a_definition("kubevirt.io", "v1", "KubeVirt", "kubevirts"),
        a_definition("cdi.kubevirt.io", "v1beta1", "DataVolume", "datavolumes"),
    )
    assert livevirt(cluster.kubeconfig, "install", "--no-wait").returncode == 1
    assert not cluster.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found")
    done = livevirt(cluster.kubeconfig, "install", "--no-wait", "--adopt", "--replicas", "0")
    assert done.returncode == 0, done.stderr
    adopted = {each["metadata"]["name"] for each in cluster.get("crd", "-l", OURS)["items"]}
    assert "kubevirts.kubevirt.io" in adopted
    assert "datavolumes.cdi.kubevirt.io" not in adopted  # CDI works with it
    assert livevirt(cluster.kubeconfig, "uninstall", "--timeout", "60").returncode == 0
    left = cluster.kubectl("get", "crd", "-o", "name").split()
    assert [each for each in left if "kubevirt.io" in each] == [
        "customresourcedefinition.apiextensions.k8s.io/datavolumes.cdi.kubevirt.io"
    ]
    cluster.kubectl("delete", "crd", "datavolumes.cdi.kubevirt.io")


def test_given_no_installation_then_status_says_so(cluster: KubernetesCluster) -> None:
    done = livevirt(cluster.kubeconfig, "status", "-o", "json")
    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert "livevirt install" in problem["fix"]


def test_given_an_installation_then_components_run_and_status_finds_no_problem(
    installed: KubernetesCluster,
) -> None:
    pods = installed.get("pods", "-n", NAMESPACE)["items"]
    assert {each["spec"]["serviceAccountName"] for each in pods} == {
        each.name for each in rbac.COMPONENTS
    }
    assert eventually(lambda: livevirt(installed.kubeconfig, "status").returncode == 0)
    shown = json.loads(livevirt(installed.kubeconfig, "status", "-o", "json").stdout)
    assert shown["problems"] == []
    assert set(shown["components"]) == {"node", *(each.component for each in WORKLOADS)}
    assert shown["components"]["node"]["ready"] == 1
    assert shown["leader"]["holder"].startswith("livevirt-controller-")
    assert all(shown["certificates"].values())


def test_given_an_installation_then_only_node_agents_are_privileged(
    installed: KubernetesCluster,
) -> None:
    level = "pod-security.kubernetes.io/enforce=restricted"
    command = ["label", "--dry-run=server", "--overwrite", "namespace", NAMESPACE, level]
    done = installed.run_kubectl(*command)
    assert done.returncode == 0
    violating = re.findall(r"(livevirt-[a-z]+)-[a-z0-9-]+: ", done.stderr)
    assert set(violating) == {rbac.NODE.name}


def test_given_an_installation_then_users_get_defaults_verdicts_and_subresources(
    installed: KubernetesCluster,
) -> None:
    wrong = a_vm("wrong")
    wrong["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "-1"}
    refused = installed.run_kubectl("apply", "-f", "-", text=json.dumps(wrong))
    assert refused.returncode == 1
    urgent = a_vm("urgent")
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "missing"
    refused = installed.run_kubectl("apply", "-f", "-", text=json.dumps(urgent))
    assert refused.returncode == 1  # which the webhook has to look up
    installed.apply(a_vm("web"))
    assert eventually(
        lambda: bool(installed.get("pods", "-l", "kubevirt.io=virt-launcher")["items"])
    )
    assert installed.get("vmi", "web")["spec"]["domain"]["cpu"]["maxSockets"] > 1
    done = virtctl(installed.kubeconfig, "stop", "web")
    assert done.returncode == 0, done.stderr
    assert eventually(lambda: not installed.get("vmi")["items"])
    assert installed.kubectl("get", "vmclusterinstancetype", "u1.small", "-o", "name")


def test_given_the_same_version_when_installed_again_then_nothing_changes(
    installed: KubernetesCluster,
) -> None:
    setting = '{"spec":{"configuration":{"vmRolloutStrategy":"Stage"}}}'
    installed.kubectl(
        "patch", "kubevirt", "kubevirt", "-n", NAMESPACE, "--type=merge", "-p", setting
    )
    before = generations(installed)
    stray = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "livevirt-former", "labels": {PART_OF: PRODUCT}},
        "rules": [],
    }
    installed.apply(stray)
    done = livevirt(installed.kubeconfig, "install", "--replicas", "1", "--timeout", "120")
    assert done.returncode == 0, done.stderr
    assert generations(installed) == before
    assert not installed.kubectl("get", "clusterrole", "livevirt-former", "--ignore-not-found")
    kubevirt = installed.get("kubevirt", "kubevirt", "-n", NAMESPACE)
    assert kubevirt["spec"]["configuration"]["vmRolloutStrategy"] == "Stage"


def generations(cluster: KubernetesCluster) -> dict[str, Any]:
    """Return the generation and CA bundle of what is installed."""
    names = f"{CLUSTER_KINDS},deployment,daemonset,pdb,networkpolicy"
    found = cluster.get(names, "-A", "-l", OURS)["items"]
    return {
        f"{each['kind']}/{each['metadata']['name']}": (
            each["metadata"].get("generation"),
            each.get("spec", {}).get("caBundle"),
        )
        for each in found
    }


@pytest.mark.parametrize("component", rbac.COMPONENTS, ids=[c.name for c in rbac.COMPONENTS])
def test_given_all_of_the_above_then_every_request_was_allowed(
    installed: KubernetesCluster, component: rbac.Component
) -> None:
    requests = requests_of(installed, component.user)
    assert requests
    assert not [each for each in requests if not each.allowed]


def test_given_vms_then_uninstall_refuses(installed: KubernetesCluster) -> None:
    done = livevirt(installed.kubeconfig, "uninstall")
    assert done.returncode == 1
    assert installed.get("vm", "web")
    assert livevirt(installed.kubeconfig, "status").returncode == 0


def test_given_force_then_nothing_is_left(installed: KubernetesCluster) -> None:
    installed.kubectl("patch", "vm", "web", "--type=merge", '-p={"spec":{"runStrategy":"Always"}}')
    assert eventually(lambda: bool(installed.get("vmi")["items"]))
    done = livevirt(installed.kubeconfig, "uninstall", "--force", "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert not installed.get(CLUSTER_KINDS, "-l", OURS)["items"]
    assert not installed.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found")
    assert not installed.kubectl("get", "crd", "-o", "name").count("kubevirt")
    assert not installed.get("role,rolebinding", "-A", "-l", OURS)["items"]
    assert eventually(lambda: not installed.get("pods", "-n", "default")["items"])


def blocks(*headings: str) -> str:
    """Return the commands below headings of docs/kubernetes.md."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    sections = [re.split(rf"^##+ {each}$", page, flags=re.M)[1] for each in headings]
    own = [re.split(r"^##", each, maxsplit=1, flags=re.M)[0] for each in sections]
    return "\n".join(re.findall(r"^```\n(.*?)^```", "".join(own), re.DOTALL | re.M))


def test_given_the_page_then_its_commands_work(cluster: KubernetesCluster, tmp_path: Path) -> None:
    script = blocks("Install", "Status", "Upgrade", "API server", "Of users", "Uninstall")
    assert script.count("livevirt install") == 4
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-exuo", "pipefail", "-c", script],
        capture_output=True, text=True, cwd=tmp_path, timeout=500,
        env=environment(PATH=path, KUBECONFIG=cluster.kubeconfig),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr + described(cluster)
    assert not cluster.get("crd", "-l", OURS)["items"]
