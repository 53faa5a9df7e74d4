"""The cluster that `tools/cluster` starts is a real one, and it leaves nothing behind."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import (
    CGROUPS,
    ROOT,
    TOOL,
    KubernetesCluster,
    a_pod,
    eventually,
    memory_limit,
    running_cluster,
    tool,
)

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]

REAL_NODES = ("node-1", "node-2")
HOLLOW_NODES = ("hollow-1", "hollow-2")
# Settings of the machine that a kubelet or kube-proxy would change.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
)
OTHER = f"other-{os.getpid()}"


@pytest.fixture
def pod(cluster: KubernetesCluster) -> Iterator[str]:
    """A running pod of the first node."""
    cluster.apply(a_pod("subject", nodeName="node-1"))
    cluster.wait("pod/subject")
    yield "subject"
    cluster.kubectl("delete", "pod", "subject")


def on_real_nodes() -> dict[str, object]:
    return {"nodeSelector": {"kubernetes.io/hostname": "node-2"}}


def test_given_two_nodes_then_both_are_ready(cluster: KubernetesCluster) -> None:
    nodes = {node["metadata"]["name"]: node for node in cluster.get("nodes")["items"]}
    assert set(nodes) == {*REAL_NODES, *HOLLOW_NODES}
    for name in REAL_NODES:
        assert nodes[name]["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")
    assert tool("status", "--name", cluster.name).returncode == 0


def test_given_a_pod_when_scheduled_then_it_runs_and_answers(cluster: KubernetesCluster) -> None:
    cluster.apply(a_pod("hello", "echo hello from $(hostname); sleep 100000", **on_real_nodes()))
    cluster.wait("pod/hello")
    assert cluster.kubectl("logs", "hello") == "hello from hello\n"
    assert cluster.execute("hello", "echo", "executed") == "executed\n"
    assert cluster.get("pod", "hello")["spec"]["nodeName"] == "node-2"
    cluster.kubectl("delete", "pod", "hello")


def test_given_a_pod_when_resized_then_its_cgroup_follows_without_restart(
    cluster: KubernetesCluster, pod: str
) -> None:
    before = cluster.get("pod", pod)
    assert memory_limit(cluster, before) == 64 << 20
    container = {"name": "main", "resources": {"limits": {"memory": "96Mi"}}}
    patch = json.dumps({"spec": {"containers": [container]}})
    cluster.kubectl("patch", "pod", pod, "--subresource=resize", "--patch", patch)
    assert eventually(lambda: memory_limit(cluster, before) == 96 << 20)
    assert eventually(lambda: status_limit(cluster, pod) == "96Mi")
    after = cluster.get("pod", pod)["status"]["containerStatuses"][0]
    assert after["restartCount"] == 0
    assert after["containerID"] == before["status"]["containerStatuses"][0]["containerID"]


def status_limit(cluster: KubernetesCluster, pod: str) -> str:
    container = cluster.get("pod", pod)["status"]["containerStatuses"][0]
    limit: str = container["resources"]["limits"]["memory"]
    return limit


def test_given_a_service_then_pods_of_every_node_and_the_hub_reach_its_pod(
    cluster: KubernetesCluster,
) -> None:
    serve = "mkdir /www; echo served > /www/index.html; exec httpd -f -p 8080 -h /www"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    clients = {name: a_pod(f"client-{name}", nodeName=name) for name in REAL_NODES}
    cluster.apply(service, a_pod("web", serve, nodeName="node-1"), *clients.values())
    for name in ("web", *(f"client-{node}" for node in REAL_NODES)):
        cluster.wait(f"pod/{name}")
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    # kube-proxy may still be about to write its rules.
    request = rf"printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 2 {address} 80 | grep served"
    fetch = f"for i in $(seq 20); do {request} && exit; sleep 0.5; done"
    for node in REAL_NODES:
        command = ["exec", f"client-{node}", "--", "sh", "-c", fetch]
        answer = cluster.run_kubectl(*command)
        assert answer.stdout == "served\n", f"on {node}: {answer.stderr}"
    script = f"import urllib.request; print(urllib.request.urlopen('http://{address}').read())"
    inside = tool("exec", "--name", cluster.name, "--", sys.executable, "-c", script)
    assert "served" in inside.stdout, inside.stderr
    cluster.kubectl("delete", "service/web", "pod/web", *(f"pod/client-{n}" for n in REAL_NODES))


def test_given_a_quota_when_a_pod_exceeds_it_then_admission_refuses(
    cluster: KubernetesCluster,
) -> None:
    cluster.kubectl("create", "namespace", "limited")
    cluster.kubectl("create", "quota", "none", "--hard=pods=0", "--namespace=limited")
    wanted = json.dumps(a_pod("refused"))

    def refused() -> bool:
        done = cluster.run_kubectl("apply", "--namespace=limited", "-f", "-", text=wanted)
        return done.returncode != 0 and "exceeded quota" in done.stderr

    assert eventually(refused)
    cluster.kubectl("delete", "namespace", "limited")


def test_given_a_claim_then_it_is_bound_and_shared_between_nodes(
    cluster: KubernetesCluster,
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Mi"}},
        },
    }
    pods = [a_pod(f"claim-{node}", nodeName=node) for node in REAL_NODES]
    for manifest in pods:
        spec = manifest["spec"]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    cluster.apply(claim)
    cluster.wait("pvc/data", "jsonpath={.status.phase}=Bound")
    cluster.apply(*pods)
    for node in REAL_NODES:
        cluster.wait(f"pod/claim-{node}")
    cluster.execute("claim-node-1", "sh", "-c", "echo kept > /data/file")
    assert cluster.execute("claim-node-2", "cat", "/data/file") == "kept\n"
    cluster.kubectl("delete", *(f"pod/claim-{node}" for node in REAL_NODES), "pvc/data")


def test_given_a_hollow_node_then_pods_are_reported_resized_and_deleted(
    cluster: KubernetesCluster,
) -> None:
    cluster.apply(a_pod("hollow", nodeName="hollow-1"))
    cluster.wait("pod/hollow")
    container = {"name": "main", "resources": {"limits": {"memory": "96Mi"}}}
    patch = json.dumps({"spec": {"containers": [container]}})
    cluster.kubectl("patch", "pod", "hollow", "--subresource=resize", "--patch", patch)
    assert eventually(lambda: status_limit(cluster, "hollow") == "96Mi")
    cluster.kubectl("delete", "pod", "hollow", "--timeout=20s")


def test_given_an_archive_when_loaded_then_every_node_runs_its_image(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    image = load_module(ROOT / "tools" / "kubernetes" / "image.py")
    busybox = next((Path.home() / ".cache/livevirt/kubernetes/debian/bin").glob("busybox"), None)
    if busybox is None:
        pytest.skip("busybox comes from the machine, not from the cache")
    files = {"bin/busybox": busybox}
    archive = tmp_path / "image.tar"
    image.write_archive(archive, [image.Image("localhost/own:1", files, {"bin/sh": "busybox"})])
    loaded = tool("load-image", "--name", cluster.name, str(archive))
    assert loaded.returncode == 0, loaded.stderr
    for node in REAL_NODES:
        manifest = a_pod(f"own-{node}", "busybox sleep 100000", nodeName=node)
        manifest["spec"]["containers"][0]["image"] = "localhost/own:1"
        cluster.apply(manifest)
    for node in REAL_NODES:
        cluster.wait(f"pod/own-{node}")
    cluster.kubectl("delete", *(f"pod/own-{node}" for node in REAL_NODES))


def node_address(cluster: KubernetesCluster, node: str) -> str:
    address: str = cluster.get("node", node)["status"]["addresses"][0]["address"]
    return address


def load_module(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def test_given_audit_then_requests_are_logged_with_their_user(cluster: KubernetesCluster) -> None:
    cluster.kubectl("get", "configmaps", "--namespace=kube-system")
    log = Path(cluster.kubeconfig).with_name("audit.log")

    def logged() -> bool:
        events = (json.loads(line) for line in log.read_text().splitlines())
        return any(
            event["user"]["username"] == "admin"
            and event.get("objectRef", {}).get("resource") == "configmaps"
            for event in events
        )

    assert eventually(logged)


def test_given_etcd_when_stopped_and_started_then_the_cluster_recovers(
    cluster: KubernetesCluster,
) -> None:
    assert tool("stop", "--name", cluster.name, "etcd").returncode == 0
    assert tool("status", "--name", cluster.name).returncode != 0
    restarted = tool("start", "--name", cluster.name, "etcd")
    assert restarted.returncode == 0, restarted.stderr
    assert tool("status", "--name", cluster.name).returncode == 0


def test_given_two_clusters_then_they_do_not_meet_and_one_leaves_nothing(
    cluster: KubernetesCluster, tmp_path: Path
) -> None:
    before = traces(OTHER), settings()
    with running_cluster(OTHER, "--nodes", "1", "--data-dir", str(tmp_path)) as other:
        other.apply(a_pod("alone"))
        other.wait("pod/alone")
        assert cluster.run_kubectl("get", "pod", "alone").returncode != 0
        addresses = {node_address(each, "node-1") for each in (cluster, other)}
        assert len(addresses) == 2
        assert set(traces(OTHER)) > set(before[0])
    assert (traces(OTHER), settings()) == before
    assert list(tmp_path.iterdir()) == []
    assert tool("status", "--name", cluster.name).returncode == 0


@pytest.mark.parametrize("phase", ["etcd and kube-apiserver started", "kube-apiserver ready"])
def test_given_an_interrupt_during_up_then_nothing_is_left(phase: str, tmp_path: Path) -> None:
    before = traces(OTHER)
    starting = start_up(phase, tmp_path)
    starting.send_signal(signal.SIGINT)
    assert starting.wait(60) == 130, (tmp_path / "output").read_text()
    assert traces(OTHER) == before, (tmp_path / "output").read_text()


def test_given_up_was_killed_when_started_again_then_it_removes_the_remains(tmp_path: Path) -> None:
    before = traces(OTHER)
    starting = start_up("kube-apiserver ready", tmp_path)
    starting.kill()
    starting.wait()
    assert traces(OTHER) != before
    with running_cluster(OTHER, "--nodes", "1") as again:
        assert len(again.get("nodes")["items"]) == 1
    assert traces(OTHER) == before


def test_given_a_component_that_fails_then_up_names_it_and_shows_its_log() -> None:
    before = traces(OTHER)
    failed = tool("up", "--name", OTHER, "--nodes", "0", "--apiserver-arg=--no-such-flag")
    assert failed.returncode == 1
    assert "kube-apiserver ended" in failed.stderr
    assert "unknown flag: --no-such-flag" in failed.stderr
    assert traces(OTHER) == before


def test_given_an_existing_cluster_then_it_is_used_and_left_alone(
    cluster: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    with running_cluster(OTHER, "--existing") as existing:
        assert existing.kubeconfig == cluster.kubeconfig
        assert existing.get("nodes")["items"]
    assert tool("status", "--name", cluster.name).returncode == 0


def test_given_binaries_in_kubebuilder_assets_then_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Path(tool("build").stdout.splitlines()[-3])
    for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        (tmp_path / component).symlink_to(built / "kube")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with running_cluster(OTHER, "--nodes", "0") as other:
        [server] = pids_of(f"{tmp_path}/kube-apiserver")
        assert Path(f"/proc/{server}/exe").resolve() == (built / "kube").resolve()
        assert other.get("nodes")["items"] == []


def pids_of(program: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if command[0] == program.encode():
            found.append(int(process.parent.name))
    return found


def start_up(phase: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start `up` of another cluster and return once it has reported a phase."""
    output = directory / "output"
    with output.open("wb") as stream:
        command = [str(TOOL), "up", "--name", OTHER, "--nodes", "1"]
        # A job in the background of a script ignores interrupts, and so would its children.
        interruptible = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        starting = subprocess.Popen(command, stdout=stream, stderr=stream, preexec_fn=interruptible)
    assert eventually(lambda: phase in output.read_text()), output.read_text()
    return starting


def traces(name: str) -> list[str]:
    """Return what exists of a cluster: processes, mounts, interfaces, cgroups, records."""
    marks = (f"/{name}/", f"livevirt-{name}")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            groups = (process / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(mark in command or mark in groups for mark in marks):
            found.append(f"process {command}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if any(mark in line for mark in marks)]
    found += [f"interface {path.name}" for path in Path("/sys/class/net").iterdir()]
    found += [f"cgroup {path}" for path in CGROUPS.rglob(f"livevirt-{name}")]
    found += [f"record {path}" for path in Path("/run/livevirt/clusters").glob(f"{name}/*")]
    return sorted(found)


def settings() -> dict[str, str]:
    paths = {name: Path("/proc/sys", name) for name in SYSCTLS}
    return {name: path.read_text() for name, path in paths.items() if path.exists()}
