"""A cluster with all components of livevirt, whose node runs real guests in real pods."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livevirt.cluster import api_manifests, rbac
from livevirt.kube.objects.request import Object

from .cluster import CGROUPS, ROOT, TOOL, KubernetesCluster, eventually, running_cluster, tool
from .component import at_hub, environment, hub_address, livevirt, program, running
from .controller_process import EMULATING
from .test_cluster import load_module
from .webhook_process import GROUPS, WebhookProcess

LAUNCHER_IMAGE = "localhost/launcher:test"
GUEST_IMAGE = "docker.io/livevirt/guest:latest"
GUEST = ROOT / ".cache" / "guest" / "guest.qcow2"
QEMU = "/usr/bin/qemu-system-x86_64"
NODE = "node-1"
WEBHOOK_PORT, API_PORT = 9443, 9444
BOOT_SECONDS = 240.0  # an emulated guest on a busy machine
CHANGE_SECONDS = 120.0


def write_images(folder: Path) -> Path:
    """Write an archive with the test guest as a container disk and an image of launcher pods.

    The latter has what `make image` puts into livevirt's own image for launcher pods, taken from
    this machine: QEMU, its libraries and firmware, and our launcher.
    """
    image = load_module(ROOT / "tools" / "kubernetes" / "image.py")
    launcher, empty = folder / "launcher", folder / "empty"
    source = ROOT / "launcher" / "launcher.c"
    subprocess.run(["gcc", "-static", "-O2", "-o", launcher, source], check=True, timeout=120)
    empty.touch()
    files = {"usr/libexec/livevirt/launcher": launcher, QEMU.lstrip("/"): Path(QEMU)}
    linked = subprocess.run(["ldd", QEMU], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+) \(", linked):
        files[library.lstrip("/")] = Path(library).resolve()
    firmware = (
        path
        for directory in ("/usr/share/qemu", "/usr/share/seabios")
        for path in Path(directory).rglob("*")
        if path.is_file() and path.stat().st_size < 8 << 20
    )
    for path in (*firmware, *Path("/usr/lib").glob("*/qemu/accel-*.so")):
        files[str(path).lstrip("/")] = path.resolve()
    files |= {f"{name}/.keep": empty for name in ("dev", "proc", "run")}
    archive = folder / "images.tar"
    image.write_archive(
        archive,
        [
            image.Image(LAUNCHER_IMAGE, files, {"var/run": "/run"}),
            image.Image(GUEST_IMAGE, {"disk/guest.qcow2": GUEST}),
        ],
    )
    return archive


@dataclass
class NodeAgent:
    """`livevirt node` as a process of a node, which can be killed and started again."""

    cluster: KubernetesCluster
    folder: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    def start(self) -> None:
        """Start it, and wait until it follows the node's guests."""
        kubeconfig = tool("kubeconfig", "--name", self.cluster.name, "--internal").stdout.strip()
        command = [
            TOOL, "exec", "--name", self.cluster.name, "--node", NODE, "--",
            *program("livevirt"), "node", "--kubeconfig", kubeconfig, "--node-name", NODE,
            "--data-dir", self.folder / "data", "--metrics-listen", "127.0.0.1:0",
            "--listen", f"{self.address}:8445", "--as", rbac.NODE.user,
            *(word for group in GROUPS for word in ("--as-group", group)),
        ]  # fmt: skip
        with self.log.open("ab") as output:
            begins = output.tell()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment(PYTHONUNBUFFERED="1"),
            )  # fmt: skip
        ready = eventually(lambda: b"ready:" in self.log.read_bytes()[begins:])
        assert ready, self.log.read_text()[-4000:]

    @property
    def address(self) -> str:
        """The address of the node."""
        addresses = self.cluster.get("node", NODE)["status"]["addresses"]
        return next(str(each["address"]) for each in addresses if each["type"] == "InternalIP")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it with a signal; its guests run on."""
        assert self.process is not None
        # The tool becomes nsenter, which waits for the agent as its child.
        for child in _children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        self.process.wait(30)
        self.process = None


def _children(pid: int) -> list[int]:
    """Return all processes below one, the lowest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [*_children(child), child]
    return found


@dataclass(frozen=True)
class GuestCluster:
    """A cluster that runs guests."""

    kubernetes: KubernetesCluster
    agent: NodeAgent

    def vmi(self, name: str) -> Object:
        """Return an instance, an empty object if there is none."""
        found = self.kubernetes.run_kubectl("get", "vmi", name, "-o", "json")
        return dict(json.loads(found.stdout)) if not found.returncode else {}

    def pods(self, name: str) -> list[Object]:
        """Return the launcher pods of a VM."""
        label = f"vm.kubevirt.io/name={name}"
        return list(self.kubernetes.get("pods", "-l", label)["items"])

    def pod(self, name: str) -> Object:
        """Return the only launcher pod of a VM."""
        [found] = self.pods(name)
        return found

    def has_agent(self, name: str) -> bool:
        """Return whether the guest agent of a VM answers."""
        listed = (self.vmi(name).get("status") or {}).get("conditions") or ()
        return any(each["type"] == "AgentConnected" for each in listed)

    def boot(self, vm: Object) -> None:
        """Start a VM and wait for its guest agent."""
        name = vm["metadata"]["name"]
        self.kubernetes.apply(vm)
        booted = eventually(lambda: self.has_agent(name), BOOT_SECONDS)
        assert booted, json.dumps([self.vmi(name).get("status"), self.pods(name)], indent=1)

    def execute(self, name: str, *command: str) -> str:
        """Run a command in a guest, through API server, node agent and guest agent."""
        done = livevirt(self.kubernetes.kubeconfig, "exec", name, "--", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def sizes(self, name: str) -> tuple[int, str]:
        """Return the sockets and the memory that the guest of a VM has confirmed."""
        status = self.vmi(name).get("status") or {}
        cpu, memory = status.get("currentCPUTopology") or {}, status.get("memory") or {}
        if not (cpu.get("confirmed") and memory.get("confirmed")):
            return 0, ""
        return cpu.get("sockets", 0), memory.get("guestCurrent", "")

    def resize(self, name: str, sockets: int, memory: str) -> None:
        """Ask for another size of a running VM."""
        domain = {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}
        patch = {"spec": {"template": {"spec": {"domain": domain}}}}
        self.kubernetes.kubectl("patch", "vm", name, "--type=merge", "-p", json.dumps(patch))

    def resized(self, name: str, sockets: int, memory: str) -> bool:
        """Return whether a VM came to have that size in time, with nothing left to do."""

        def done() -> bool:
            status = self.vmi(name).get("status") or {}
            changing = {"HotVCPUChange", "HotMemoryChange"} & {
                each["type"] for each in status.get("conditions") or ()
            }
            return self.sizes(name) == (sockets, memory) and not changing

        return eventually(done, CHANGE_SECONDS)


def requested_cpus(cluster: KubernetesCluster, pod: Object) -> int:
    """Return the CPU weight that the kernel gives to QEMU's container, in shares of version 1."""
    [compute] = [c for c in pod["status"]["containerStatuses"] if c["name"] == "compute"]
    container = compute["containerID"].rpartition("/")[2]
    for directory in (CGROUPS / "cpu" / f"livevirt-{cluster.name}").rglob(container):
        return int((directory / "cpu.shares").read_text())
    for directory in (CGROUPS / f"livevirt-{cluster.name}").rglob(container):
        weight = int((directory / "cpu.weight").read_text())
        return 2 + (weight - 1) * 262142 // 9999
    raise AssertionError(f"no cpu cgroup of container {container}")


def a_vm(name: str, **spec: Any) -> Object:
    """Return a VM of the test guest with one socket and 512Mi, which can grow."""
    devices = {
        "disks": [
            {"name": "root", "disk": {"bus": "virtio"}},
            {"name": "init", "disk": {"bus": "virtio"}},
        ],
        "interfaces": [{"name": "default", "masquerade": {}}],
    }
    domain = {
        "cpu": {"sockets": 1, "maxSockets": 4},
        "memory": {"guest": "512Mi", "maxGuest": "2Gi"},
        "devices": devices,
    }
    user_data = "#!/bin/sh\necho from-user-data > /tmp/user-data\n"
    template = {
        "terminationGracePeriodSeconds": 60,
        "domain": domain,
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": GUEST_IMAGE, "imagePullPolicy": "Never"}},
            {"name": "init", "cloudInitNoCloud": {"userData": user_data}},
        ],
        **spec,
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": template}},
    }


@contextlib.contextmanager
def running_guest_cluster(name: str, folder: Path) -> Iterator[GuestCluster]:
    """Start a cluster of one node with all components of livevirt, until the block ends."""
    with running_cluster(name, "--nodes", "1") as cluster:
        loaded = tool("load-image", str(write_images(folder)), "--name", name)
        assert loaded.returncode == 0, loaded.stderr
        cluster.kubectl("create", "namespace", "kubevirt")
        webhook = WebhookProcess(cluster, folder / "unused", WEBHOOK_PORT)
        webhook.install()
        cluster.apply(
            *rbac.component_manifests(rbac.API),
            *rbac.component_manifests(rbac.NODE),
            *api_manifests.manifests(),
            at_hub(cluster, api_manifests.NAME, API_PORT),
        )
        kubeconfig = tool("kubeconfig", "--name", name, "--internal").stdout.strip()
        log = folder / "components.log"
        arguments = (
            "controller", "--all", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:9442",
            "--webhook-listen", f"127.0.0.1:{WEBHOOK_PORT}", "--webhook-url", webhook.url,
            "--api-listen", f"{hub_address(cluster)}:{API_PORT}",
            "--launcher-image", LAUNCHER_IMAGE,
            "--as", rbac.CONTROLLER.user, "--as-group", "system:masters",
        )  # fmt: skip
        agent = NodeAgent(cluster, folder)
        with running(cluster, log, *arguments):
            assert eventually(lambda: log.read_text().count("ready: http") == 3), log.read_text()
            cluster.wait("apiservice/v1.subresources.kubevirt.io", "condition=Available")
            cluster.apply(EMULATING)
            agent.start()
            try:
                yield GuestCluster(cluster, agent)
            finally:
                if agent.process is not None:
                    agent.kill(signal.SIGTERM)
                print(agent.log.read_text()[-4000:])
