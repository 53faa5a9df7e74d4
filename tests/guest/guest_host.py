"""A real `livevirt up` whose guests are looked into from outside and asked from inside."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from livevirt.node import process
from livevirt.node.images import ImageStore
from livevirt.paths import default_data_dir

from ..server_process import BIN, ServerProcess, short_directory

IMAGE = "livevirt/guest:latest"
SECONDS = 240.0  # an emulated CPU on a busy machine
SOON = 5.0  # how soon an event must show in the API; it takes far less where nothing else runs

GONE = (OSError, http.client.HTTPException)  # what a client meets whose server has died

Object = dict[str, Any]


def image_missing() -> bool:
    """Tell whether the test guest has still to be imported."""
    return ImageStore(default_data_dir() / "images").find(IMAGE) is None


class GuestHost:
    """One server and its guests, all in the namespace `default`."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._connection: http.client.HTTPSConnection | None = None

    # ------------------------------------------------------------ commands

    def attempt(self, *command: str, input: str = "") -> subprocess.CompletedProcess[str]:
        """Run one of our commands and return what came of it."""
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]], env=self.server.environment(),
            cwd=self.server.home, input=input, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip

    def run(self, *command: str) -> str:
        """Run one of our commands, which must succeed; return what it printed."""
        done = self.attempt(*command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def apply(self, *objects: Object) -> None:
        """Apply manifests with kubectl."""
        self.server.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))

    def delete(self, *names: str, kind: str = "vm") -> None:
        """Delete VMs, or others, and return once they are gone."""
        self.server.kubectl("delete", kind, *names, "--wait=false")
        gone = [(kind, name) for name in names]
        until(f"{gone} to be gone", lambda: not any(self.get(*each) for each in gone))

    def discard(self, *names: str, kind: str = "vm") -> None:
        """Delete VMs that are done with: their guests are not given the time to shut down."""
        self.server.kubectl("delete", kind, *names, "--wait=false")

        def gone() -> bool:
            for name in names:
                kill(self.qemus(name))
            return not any(self.get(kind, name) or self.pods(name) for name in names)

        until(f"{names} to be gone", gone)

    # ------------------------------------------------------------ the API

    @cached_property
    def context(self) -> ssl.SSLContext:
        return self.server.admin()

    def read(self, path: str) -> Object:
        """Return what the API has at a path, {} if nothing."""
        connection = self._connection
        if connection is None or connection.port != urlsplit(self.server.url).port:
            connection = self._connected()  # the server has started again
        try:
            status, found = _asked(connection, path)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            status, found = _asked(self._connected(), path)  # the old one was idle for too long
        assert status in (200, 404), found
        return found if status == 200 else {}

    def _connected(self) -> http.client.HTTPSConnection:
        if self._connection is not None:
            self._connection.close()
        url = urlsplit(self.server.url)
        self._connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=self.context, timeout=SECONDS
        )
        return self._connection

    def get(self, kind: str, name: str = "") -> Object:
        """Return an object of the namespace, or the list of them all."""
        group, plural = {
            "vm": ("apis/kubevirt.io/v1", "virtualmachines"),
            "vmi": ("apis/kubevirt.io/v1", "virtualmachineinstances"),
            "dv": ("apis/cdi.kubevirt.io/v1beta1", "datavolumes"),
            "pvc": ("api/v1", "persistentvolumeclaims"),
            "pod": ("api/v1", "pods"),
        }[kind]
        return self.read(f"{group}/namespaces/default/{plural}/{name}".rstrip("/"))

    def phase(self, name: str) -> str:
        """Return the phase of an instance, "" while there is none."""
        return str((self.get("vmi", name).get("status") or {}).get("phase", ""))

    def uid(self, name: str) -> str:
        """Return the uid of an instance, "" while there is none."""
        return str((self.get("vmi", name).get("metadata") or {}).get("uid", ""))

    def word(self, name: str) -> str:
        """Return the one word that people are shown of a VM."""
        return str((self.get("vm", name).get("status") or {}).get("printableStatus", ""))

    def condition(self, kind: str, name: str, type_: str) -> Object:
        """Return a condition, {} if there is none."""
        listed = (self.get(kind, name).get("status") or {}).get("conditions") or []
        found: list[Object] = [each for each in listed if each["type"] == type_]
        return found[0] if found else {}

    def holds(self, kind: str, name: str, type_: str) -> bool:
        """Tell whether a condition is True."""
        return bool(self.condition(kind, name, type_).get("status") == "True")

    def pods(self, name: str) -> list[Object]:
        """Return the pods of an instance."""
        prefix = f"virt-launcher-{name}-"
        found = self.get("pod")["items"]
        return [pod for pod in found if pod["metadata"]["name"].startswith(prefix)]

    # ------------------------------------------------------------ guests

    def shell(self, name: str, script: str) -> str:
        """Run a script in a guest, which must succeed; return what it printed."""
        return self.run("livevirt", "exec", name, "--", "sh", "-c", script).strip()

    def answers(self, name: str, uid: str = "") -> None:
        """Return once the agent of a guest answers; of that instance, if it is named."""

        def answering() -> bool:
            found = self.get("vmi", name)
            if not found or (uid and found["metadata"]["uid"] != uid):
                return False
            return self.holds("vmi", name, "AgentConnected")

        until(f"the agent of {name}", answering)

    def found(self, name: str) -> None:
        """Return once a guest can be asked again.

        A server that has just started answers before its node has found its guests.
        """
        asked = ("livevirt", "exec", name, "--", "true")
        until(f"{name} to be found", lambda: self.attempt(*asked).returncode == 0)

    def boot_id(self, name: str) -> str:
        """Return what the kernel of a guest calls its boot."""
        return self.shell(name, "cat /proc/sys/kernel/random/boot_id")

    def booted_anew(self, name: str, before: str) -> bool:
        """Tell whether a guest answers and its boot is another one."""
        asked = ("livevirt", "exec", name, "--", "cat", "/proc/sys/kernel/random/boot_id")
        done = self.attempt(*asked)
        return done.returncode == 0 and done.stdout.strip() not in ("", before)

    def qemus(self, name: str = "") -> list[int]:
        """Return the QEMU processes of a guest, or of all guests."""
        needle = f"guest=default_{name}{',' if name else ''}".encode()
        found = []
        for pid in process.all_pids():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                ours = os.fsencode(self.server.data) in line
                if line.startswith(b"qemu-system") and ours and needle in line:
                    found.append(pid)
        return found

    def qemu(self, name: str) -> int:
        """Return the one QEMU process of a guest."""
        (pid,) = self.qemus(name)
        return pid

    def disk_of(self, claim: str) -> Path:
        """Return the file behind a claim."""
        volume = self.get("pvc", claim)["spec"]["volumeName"]
        return self.server.data / "volumes" / volume / "disk.img"

    @staticmethod
    def request(size: str) -> str:
        """Return the patch of a claim that asks for so much."""
        return json.dumps({"spec": {"resources": {"requests": {"storage": size}}}})

    def warnings(self, name: str) -> set[tuple[str, str]]:
        """Return the reasons and messages of the warnings about an instance."""
        return self.events(name, "Warning")

    def events(self, name: str, type_: str = "Normal") -> set[tuple[str, str]]:
        """Return the reasons and messages of what is told about an instance."""
        listed = self.read("api/v1/namespaces/default/events")["items"]
        return {
            (each["reason"], each["message"])
            for each in listed
            if each["type"] == type_ and each["involvedObject"]["name"] == name
        }

    def grow(self, claim: str, size: str) -> None:
        """Ask for more storage, as a person does."""
        self.server.kubectl("patch", "pvc", claim, "-p", self.request(size))

    def end(self) -> None:
        """Kill every guest that is left, then the server."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired, *GONE):
            self.server.kubectl("delete", "vm,vmi", "--all", "--wait=false")
            until("guests to end", self._empty, 40)
        if self._connection is not None:
            self._connection.close()
        self.server.stop()
        kill(self.qemus())

    def _empty(self) -> bool:
        kill(self.qemus())
        return not any(self.get(kind)["items"] for kind in ("vm", "vmi", "pod"))


def kill(pids: Iterable[int]) -> None:
    """Kill processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _asked(connection: http.client.HTTPSConnection, path: str) -> tuple[int, Object]:
    connection.request("GET", f"/{path}")
    with connection.getresponse() as answer:
        return answer.status, json.load(answer)


def until(what: str, holds: Callable[[], object], seconds: float = SECONDS) -> float:
    """Return once it holds, with how many seconds that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, f"waited {seconds} s in vain for {what}"
        time.sleep(0.05)  # what other processes do wakes nobody here
    return time.monotonic() - began


@contextlib.contextmanager
def running_host() -> Iterator[GuestHost]:
    """Run a server for as long as the block lasts; no guest is left afterwards."""
    with short_directory() as home:
        home.chmod(0o711)  # QEMU, which has a user of its own, must get through
        host = GuestHost(ServerProcess(home))
        try:
            host.server.start()
            yield host
        finally:
            host.end()


def a_vm(name: str, strategy: str = "Always", memory: str = "256Mi", **spec: Any) -> Object:
    """Return a VM that boots the test guest; `spec` adds to its instance's."""
    devices = {
        "autoattachGraphicsDevice": False,
        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
        "interfaces": [{"name": "default", "masquerade": {}}],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": strategy,
            "template": {
                "spec": {
                    "domain": {"memory": {"guest": memory}, "devices": devices},
                    "networks": [{"name": "default", "pod": {}}],
                    "terminationGracePeriodSeconds": 10,
                    "volumes": [{"name": "root", "containerDisk": {"image": IMAGE}}],
                    **spec,
                }
            },
        },
    }


def a_bare_vm(name: str, strategy: str = "Always", **spec: Any) -> Object:
    """Return a VM that never gets further than its firmware, and so hears no power button."""
    vm = a_vm(name, strategy, "64Mi", terminationGracePeriodSeconds=1, **spec)
    vm["spec"]["template"]["spec"]["volumes"] = [
        {"name": "root", "emptyDisk": {"capacity": "1Mi"}},
    ]
    return vm
