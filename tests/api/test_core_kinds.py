"""Core kinds that manifests bring along and that do less here than in a cluster."""

from __future__ import annotations

import json

from ..server_process import ServerProcess
from .manifests import Object, a_pod


def applied(server: ServerProcess, namespace: str, *objects: Object) -> str:
    """Apply objects, which must be accepted; return the warnings."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    done = server.run_kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(listed))
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_an_ordinary_pod_is_accepted_with_a_warning_and_stays_pending(
    server: ServerProcess, namespace: str
) -> None:
    server.kubectl("wait", "--for=create", "node", "--all", "--timeout=50s")
    server.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=50s")
    pod = a_pod("p", schedulerName="default-scheduler")
    assert "Warning:" in applied(server, namespace, pod)
    wait = ("--for=condition=PodScheduled=false", "pod/p", "--timeout=50s")
    server.kubectl("wait", "-n", namespace, *wait)
    found = json.loads(server.kubectl("get", "pod", "p", "-n", namespace, "-o", "json"))
    assert found["status"]["phase"] == "Pending"
    assert "nodeName" not in found["spec"]
    [scheduled] = found["status"]["conditions"]
    assert scheduled["reason"] == "Unschedulable"
    assert scheduled["message"]
    server.kubectl("delete", "pod", "p", "-n", namespace, "--timeout=50s")


def test_an_ordinary_pod_bound_to_a_node_is_refused_by_the_node(
    server: ServerProcess, namespace: str
) -> None:
    server.kubectl("wait", "--for=create", "node", "--all", "--timeout=50s")
    [node, *_] = server.kubectl("get", "nodes", "-o", "name").split()
    pod = a_pod("p", nodeName=node.removeprefix("node/"))
    assert "Warning:" in applied(server, namespace, pod)
    wait = ("--for=jsonpath={.status.reason}=NotAVirtualMachine", "pod/p", "--timeout=50s")
    server.kubectl("wait", "-n", namespace, *wait)
