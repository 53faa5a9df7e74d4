"""Guests in real pods of a real kubelet: boot, console, guest agent, resize, restart, end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from livevirt.kube.objects import quantity
from livevirt.kube.objects.request import Object

from .cluster import KubernetesCluster, a_pod, eventually
from .component import virtctl
from .guest_cluster import (
    CHANGE_SECONDS,
    GUEST,
    NODE,
    GuestCluster,
    a_vm,
    requested_cpus,
    running_guest_cluster,
)

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
    pytest.mark.skipif(not GUEST.exists(), reason="the test guest is not built: make setup"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing"),
]


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestCluster]:
    """A cluster of one node that runs guests."""
    folder = tmp_path_factory.mktemp("guests")
    with running_guest_cluster(f"guests-{os.getpid()}", folder) as started:
        yield started


@pytest.fixture(scope="module")
def web(guests: GuestCluster) -> Iterator[str]:
    """A running VM, and its pod stays the same and is never restarted."""
    guests.boot(a_vm("web"))
    uid = guests.pod("web")["metadata"]["uid"]
    yield "web"
    pod = guests.pod("web")
    assert pod["metadata"]["uid"] == uid
    assert {each["restartCount"] for each in pod["status"]["containerStatuses"]} == {0}


@pytest.fixture
def cluster(guests: GuestCluster) -> KubernetesCluster:
    return guests.kubernetes


def memory_of(guests: GuestCluster, vm: str) -> int:
    """Return the memory that the kernel of a guest has, in KiB."""
    text = guests.execute(vm, "cat", "/proc/meminfo")
    return int(text.split("MemTotal:")[1].split()[0])


def requests(pod: Object) -> tuple[str, int]:
    """Return the CPU and memory that the kubelet reports to be in force for QEMU's container."""
    [compute] = [c for c in pod["status"]["containerStatuses"] if c["name"] == "compute"]
    found = compute["resources"]["requests"]
    return found["cpu"], quantity.parse(found["memory"]).bytes


def test_given_a_vm_then_its_guest_runs_in_a_pod_of_the_kubelet(
    guests: GuestCluster, cluster: KubernetesCluster, web: str
) -> None:
    assert guests.execute(web, "nproc") == "1"
    assert guests.execute(web, "cat", "/tmp/user-data") == "from-user-data"
    pod = guests.pod(web)
    assert pod["spec"]["nodeName"] == NODE
    ready = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    assert ready["Ready"] == ready["kubevirt.io/virtual-machine-unpaused"] == "True"
    labels = cluster.get("node", NODE)["metadata"]["labels"]
    assert labels["kubevirt.io/schedulable"] == "true"
    # The container runtime shows whole lines only, so the login prompt is not among them.
    guests.execute(web, "sh", "-c", "echo from-the-guest > /dev/ttyS0")
    log = ("logs", pod["metadata"]["name"], "-c", "guest-console-log")
    assert eventually(lambda: "from-the-guest" in cluster.kubectl(*log)), cluster.kubectl(*log)


def test_given_a_running_guest_then_its_subresources_reach_it(
    guests: GuestCluster, cluster: KubernetesCluster, web: str
) -> None:
    info = virtctl(cluster.kubeconfig, "guestosinfo", web)
    assert info.returncode == 0, info.stderr
    assert "guestAgentVersion" in info.stdout
    for verb, status in (("pause", "False"), ("unpause", "True")):
        done = virtctl(cluster.kubeconfig, verb, "vmi", web)
        assert done.returncode == 0, done.stderr

        def gate(status: str = status) -> bool:
            conditions = guests.pod(web)["status"]["conditions"]
            return {"kubevirt.io/virtual-machine-unpaused": status}.items() <= {
                each["type"]: each["status"] for each in conditions
            }.items()

        assert eventually(gate), "the readiness gate follows the guest"


def test_given_a_running_guest_when_it_is_resized_then_the_kubelet_and_the_guest_follow(
    guests: GuestCluster, cluster: KubernetesCluster, web: str
) -> None:
    memory, before = memory_of(guests, web), requests(guests.pod(web))
    assert before[0] == "100m"
    steps = ((3, "1Gi", 3, "300m", 512), (2, "768Mi", 2, "200m", 256))
    for sockets, amount, cpus, request, more in steps:
        guests.resize(web, sockets, amount)
        assert guests.resized(web, sockets, amount), guests.vmi(web)["status"]
        assert guests.execute(web, "nproc") == str(cpus)
        assert abs(memory_of(guests, web) - memory - more * 1024) < 32 * 1024
        pod = guests.pod(web)
        in_force = requests(pod)
        assert in_force[0] == request
        assert in_force[1] - before[1] >= more << 20
        assert requested_cpus(cluster, pod) == sockets * 1024 // 10


def test_given_an_agent_that_is_killed_then_the_guest_runs_on_and_the_next_one_changes_it(
    guests: GuestCluster, web: str
) -> None:
    booted = guests.execute(web, "cat", "/proc/sys/kernel/random/boot_id")
    guests.resize(web, 3, "1Gi")
    guests.agent.kill()
    guests.agent.start()
    assert guests.resized(web, 3, "1Gi"), guests.vmi(web)["status"]
    assert guests.execute(web, "nproc") == "3"
    assert guests.execute(web, "cat", "/proc/sys/kernel/random/boot_id") == booted


def test_given_a_full_node_then_a_resize_is_deferred_until_there_is_room(
    guests: GuestCluster, cluster: KubernetesCluster, web: str
) -> None:
    guests.resize(web, 2, "768Mi")
    assert guests.resized(web, 2, "768Mi"), guests.vmi(web)["status"]
    fill(guests, cluster)
    guests.resize(web, 2, "2Gi")

    def deferred() -> bool:
        listed = guests.vmi(web)["status"].get("conditions") or ()
        return any(
            each["type"] == "HotMemoryChange" and each.get("reason") == "Deferred"
            for each in listed
        )

    assert eventually(deferred, CHANGE_SECONDS), guests.vmi(web)["status"]
    assert guests.execute(web, "nproc") == "2", "the guest runs on meanwhile"
    cluster.kubectl("delete", "pod", "filler", "--wait=false")
    assert guests.resized(web, 2, "2Gi"), guests.vmi(web)["status"]


def fill(guests: GuestCluster, cluster: KubernetesCluster) -> None:
    """Start a pod that requests all memory of the node but 256Mi."""
    allocatable = cluster.get("node", NODE)["status"]["allocatable"]["memory"]
    free = quantity.parse(allocatable).bytes
    for pod in cluster.get("pods", "--all-namespaces")["items"]:
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            asked = container.get("resources", {}).get("requests", {}).get("memory", "0")
            free -= quantity.parse(asked).bytes
    amount = {"requests": {"memory": str(free - (256 << 20))}}
    filler = a_pod("filler")
    filler["spec"]["containers"][0]["resources"] = amount
    cluster.apply(filler)
    cluster.wait("pod/filler")


def test_given_a_guest_that_is_stopped_then_it_shuts_down_and_its_pod_goes(
    guests: GuestCluster, cluster: KubernetesCluster
) -> None:
    guests.boot(a_vm("short"))
    pod = guests.pod("short")["metadata"]["name"]
    stopped = virtctl(cluster.kubeconfig, "stop", "short")
    assert stopped.returncode == 0, stopped.stderr
    assert eventually(lambda: not guests.pods("short"), CHANGE_SECONDS)
    assert eventually(lambda: not guests.vmi("short"), CHANGE_SECONDS)
    log = guests.agent.log.read_text()
    ended = next(line for line in log.splitlines() if "guest ended" in line and pod in line)
    assert "because=Shutdown" in ended, "it was not killed"
    cluster.kubectl("delete", "vm", "short")
