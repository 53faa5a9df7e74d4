"""Replicas of `livevirt controller` as processes beside a real cluster, and what they requested."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livevirt.cluster import rbac
from livevirt.vm import controllers
from livevirt.vm.config.controller import KUBEVIRT, NAMESPACE

from .cluster import KubernetesCluster, eventually, running_cluster

#: The user agents of the controllers, with that of the replica itself.
COMPONENTS = (
    "livevirt-controller", "kubevirt-controller", controllers.VIRTUAL_MACHINE,
    controllers.INSTANCE, controllers.MIGRATION, controllers.WORKLOAD_UPDATE,
    controllers.EVACUATION,
)  # fmt: skip
WRITES = ("create", "update", "patch", "delete")
#: Hollow nodes have no devices for guests.
EMULATING = copy.deepcopy(KUBEVIRT)
EMULATING["spec"]["configuration"]["developerConfiguration"]["useEmulation"] = True
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Request", "verbs": [*WRITES]}, {"level": "Metadata"}],
}
_READY = re.compile(r"^ready: (http://\S+), identity (\S+)$", re.MULTILINE)
_REQUESTS = re.compile(
    r'^livevirt_api_requests_total\{component="([^"]*)",verb="([^"]*)",resource="([^"]*)",'
    r'code="([^"]*)"\} (\d+)$',
    re.MULTILINE,
)


def livevirt(*arguments: str) -> list[str]:
    """Return the command line of `livevirt`."""
    return [sys.executable, "-m", "livevirt", *arguments]


@contextlib.contextmanager
def prepared_cluster(name: str, directory: Path) -> Iterator[KubernetesCluster]:
    """Start a cluster of hollow nodes with our definitions, and with requests in its audit log."""
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    options = ("--nodes", "0", "--hollow", "2", "--audit-policy", str(policy))
    with running_cluster(name, *options) as cluster:
        crds = subprocess.run(livevirt("crds"), capture_output=True, text=True, check=True).stdout
        cluster.kubectl("apply", "--server-side", "-f", "-", text=crds)
        # kubectl fails on a definition that has no conditions yet.
        established = ("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        assert eventually(lambda: cluster.run_kubectl(*established).returncode == 0)
        cluster.apply(NAMESPACE, EMULATING, *rbac.component_manifests(rbac.CONTROLLER))
        cluster.kubectl("label", "node", "--all", "kubevirt.io/schedulable=true")
        yield cluster


@dataclass(frozen=True)
class Replica:
    """A replica that runs, or that ran."""

    name: str  # under which the audit log has its requests
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def identity(self) -> str:
        """The name under which it stands for election."""
        found = _READY.search(self.log.read_text())
        return found[2] if found else ""

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of an answer of its endpoints."""
        found = _READY.search(self.log.read_text())
        assert found, self.log.read_text()
        try:
            with urllib.request.urlopen(found[1] + path, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def requests(self) -> dict[tuple[str, str, str, str], int]:
        """Return its requests by component, verb, resource and status code."""
        found = _REQUESTS.findall(self.get("/metrics")[1])
        return {(a, b, c, d): int(count) for a, b, c, d, count in found}

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """Wait for its end and return its exit status."""
        return self.process.wait(seconds)


@contextlib.contextmanager
def running_replica(
    cluster: KubernetesCluster, directory: Path, name: str = "first"
) -> Iterator[Replica]:
    """Run a replica until the block ends, with the permissions of its service account only."""
    log = directory / f"{name}.log"
    command = livevirt(
        "controller", "--listen", "127.0.0.1:0", "--kubeconfig", cluster.kubeconfig,
        "--as", rbac.CONTROLLER.user, "--as-group", "system:authenticated", "--as-uid", name,
    )  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    replica = Replica(name, process, log)
    try:
        assert eventually(lambda: process.poll() is not None or bool(replica.identity))
        assert process.poll() is None, log.read_text()
        yield replica
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print(log.read_text()[-3000:])


def holder(cluster: KubernetesCluster) -> str:
    """Return the identity in the Lease, nothing if there is none."""
    arguments = ("get", "lease", "livevirt-controller", "-n", "kubevirt", "-o", "json")
    found = cluster.run_kubectl(*arguments)
    if found.returncode:
        return ""
    return str((json.loads(found.stdout).get("spec") or {}).get("holderIdentity") or "")


# ---------------------------------------------------------------- the audit log


@dataclass(frozen=True)
class Write:
    """A write of a controller in the audit log."""

    time: str
    replica: str
    component: str
    verb: str
    resource: str  # with its subresource
    key: tuple[str, str]
    code: int
    body: Any

    @property
    def done(self) -> bool:
        """Whether the API server performed it."""
        return self.code < 300


def _requests(cluster: KubernetesCluster) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the component and the event of each request of all replicas, in any order."""
    with Path(cluster.kubeconfig).with_name("audit.log").open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                return  # it is being written
            event = json.loads(line)
            component = event.get("userAgent", "").partition("/")[0]
            if component in COMPONENTS:
                yield component, event


def denied(cluster: KubernetesCluster) -> list[str]:
    """Return the requests of all replicas that no role allows."""
    return [
        f"{component}: {event['verb']} {event['requestURI']}"
        for component, event in _requests(cluster)
        if (event.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid"
    ]


def request_count(cluster: KubernetesCluster) -> int:
    """Return the number of requests of all replicas; a watch counts when it ends."""
    return sum(event["stage"] == "ResponseComplete" for _, event in _requests(cluster))


def writes(cluster: KubernetesCluster) -> list[Write]:
    """Return the writes of all replicas, other than of leases, in the order of their arrival."""
    found = []
    for component, event in _requests(cluster):
        target = event.get("objectRef") or {}
        if event["verb"] not in WRITES or target.get("resource") == "leases":
            continue
        body = event.get("requestObject") or {}
        name = target.get("name") or (body.get("metadata") or {}).get("name", "")
        subresource = f"/{target['subresource']}" if target.get("subresource") else ""
        found.append(
            Write(
                event["requestReceivedTimestamp"],
                (event.get("impersonatedUser") or {}).get("uid", ""),
                component,
                event["verb"],
                target.get("resource", "") + subresource,
                (target.get("namespace", ""), name),
                event["responseStatus"]["code"],
                body,
            )
        )
    return sorted(found, key=lambda each: each.time)


def has_precondition(write: Write) -> bool:
    """Return whether a write can only be performed once, and only on the object that was read."""
    meta = write.body.get("metadata") or {}
    match write.verb:
        case "create" if write.resource.endswith("/eviction"):
            return bool(write.body["deleteOptions"]["preconditions"]["uid"])
        case "create":
            return bool(meta.get("name"))
        case "delete":
            return bool((write.body.get("preconditions") or {}).get("uid"))
        case _:
            return bool(meta.get("resourceVersion"))
