"""Components of livevirt as processes beside a real cluster, each with its own service account."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from livevirt.cluster import rbac

from .cluster import ROOT, TOOL, KubernetesCluster, eventually, tool

NAMESPACE = "kubevirt"


def program(name: str) -> list[str]:
    """Return the command of `livevirt` or `virtctl` of this tree."""
    return [sys.executable, "-c", f"from livevirt.cli.{name} import main; main()"]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of our own programs: the code of this tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}


def internal_kubeconfig(cluster: KubernetesCluster) -> dict[str, Any]:
    """Return the administrator's kubeconfig for processes in the hub's network."""
    path = tool("kubeconfig", "--name", cluster.name, "--internal").stdout.strip()
    found: dict[str, Any] = yaml.safe_load(Path(path).read_text())
    return found


def hub_address(cluster: KubernetesCluster) -> str:
    """Return the address where the cluster reaches processes of the hub."""
    server = internal_kubeconfig(cluster)["clusters"][0]["cluster"]["server"]
    return str(urlsplit(server).hostname)


def account_kubeconfig(cluster: KubernetesCluster, account: str, path: Path) -> Path:
    """Write a kubeconfig with a token of a service account of livevirt."""
    token = cluster.kubectl("create", "token", account, "-n", NAMESPACE, "--duration=2h").strip()
    config = internal_kubeconfig(cluster)
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = account
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def user_kubeconfig(cluster: KubernetesCluster, account: str, path: Path) -> Path:
    """Write a kubeconfig for the host with a token of a service account in `default`."""
    token = cluster.kubectl("create", "token", account, "-n", "default", "--duration=2h").strip()
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = account
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


@dataclass(frozen=True)
class Process:
    """A component that runs."""

    process: subprocess.Popen[bytes]
    log: Path


@contextlib.contextmanager
def running(cluster: KubernetesCluster, log: Path, *arguments: str) -> Iterator[Process]:
    """Run `livevirt ARGUMENTS` in the hub's network until the block ends."""
    command = [TOOL, "exec", "--name", cluster.name, "--", *program("livevirt")]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(),
        )  # fmt: skip
    try:
        assert eventually(lambda: _is_ready(process, log)), log.read_text()
        yield Process(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print(log.read_text()[-4000:])


def _is_ready(process: subprocess.Popen[bytes], log: Path) -> bool:
    text = log.read_text()
    assert process.poll() is None, text
    return "ready:" in text


def virtctl(kubeconfig: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run our virtctl and return its result."""
    return subprocess.run(
        [*program("virtctl"), "--kubeconfig", kubeconfig, *arguments],
        capture_output=True, text=True, timeout=120, env=environment(),
    )  # fmt: skip


def livevirt(kubeconfig: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `livevirt COMMAND` on a cluster and return its result."""
    command, *rest = arguments
    return subprocess.run(
        [*program("livevirt"), command, "--kubeconfig", kubeconfig, *rest],
        capture_output=True, text=True, timeout=500, env=environment(),
    )  # fmt: skip


def install_definitions(cluster: KubernetesCluster) -> None:
    """Create our namespace and definitions, and wait until they are served."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    printed = subprocess.run(
        [*program("livevirt"), "crds"],
        capture_output=True, text=True, timeout=60, check=True, env=environment(),
    )  # fmt: skip
    cluster.kubectl("apply", "--server-side", "-f", "-", text=printed.stdout)
    cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")


# ---------------------------------------------------------------- how the cluster reaches them


def at_hub(cluster: KubernetesCluster, service: str, port: int) -> dict[str, Any]:
    """Return the EndpointSlice that leads a Service of livevirt to a process of the hub."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-hub",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [hub_address(cluster)], "conditions": {"ready": True}}],
    }


# ---------------------------------------------------------------- what they may do


@dataclass(frozen=True)
class AuditedRequest:
    """A request in the audit log of the cluster."""

    verb: str
    group: str
    resource: str  # with the subresource
    namespace: str
    name: str
    allowed: bool
    uri: str


def is_whole_module(config: pytest.Config) -> bool:
    """Return whether all tests of the modules run, so that unused permissions can be found."""
    return not config.option.keyword and not any("::" in each for each in config.args)


def requests_of(cluster: KubernetesCluster, user: str) -> list[AuditedRequest]:
    """Return the requests for resources that a user has sent to the cluster."""
    found = []
    with (Path(cluster.kubeconfig).parent / "audit.log").open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # it is being written
            event = json.loads(line)
            target = event.get("objectRef")
            sender = event.get("impersonatedUser") or event["user"]
            if sender.get("username") != user or target is None:
                continue
            subresource = target.get("subresource")
            decision = (event.get("annotations") or {}).get("authorization.k8s.io/decision")
            found.append(
                AuditedRequest(
                    event["verb"],
                    target.get("apiGroup", ""),
                    target["resource"] + (f"/{subresource}" if subresource else ""),
                    target.get("namespace", ""),
                    target.get("name", ""),
                    decision == "allow",
                    event["requestURI"],
                )
            )
    return found


def unused_permissions(
    component: rbac.Component, requests: Iterable[AuditedRequest]
) -> list[tuple[str, str, str]]:
    """Return the permissions of a component that none of its requests has used."""
    used = {(each.verb, each.group, each.resource) for each in requests}
    rules = [*component.cluster_rules]
    for more in component.namespace_rules.values():
        rules += more
    return [
        (verb, each.group, resource)
        for each in rules
        for resource in each.resources
        for verb in each.verbs
        if (verb, each.group, resource) not in used and not each.checked_indirectly
    ]
