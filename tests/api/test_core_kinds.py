"""Core kinds that manifests bring along and that do less here than in a cluster."""

from __future__ import annotations

import json

import pytest

from livevirt.node.network import namespace as namespaces

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


SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]},
}


def test_a_service_is_stored_with_a_warning_where_it_does_nothing(
    server: ServerProcess, namespace: str
) -> None:
    alone = bool(namespaces.problem())
    assert ("Warning:" in applied(server, namespace, SERVICE)) == alone
    assert "Warning:" not in applied(server, namespace, SERVICE)
    port = '{"spec":{"ports":[{"port":80,"name":"http","targetPort":8080}]}}'
    server.kubectl("patch", "service", "web", "-n", namespace, "-p", port)
    [name, kind, _, outside, ports, *_] = server.kubectl(
        "get", "svc", "-n", namespace, "--no-headers"
    ).split()
    assert (name, kind, outside, ports.partition(":")[0][:2]) == ("web", "NodePort", "<none>", "80")
    assert "8080/TCP" in server.kubectl("describe", "service", "web", "-n", namespace)
    assert "service/web" in server.kubectl("get", "all", "-n", namespace)
    server.kubectl("delete", "service", "web", "-n", namespace)


def test_kubectl_makes_services_in_its_own_ways(server: ServerProcess, namespace: str) -> None:
    server.kubectl("create", "service", "clusterip", "a", "--tcp=80:8080", "-n", namespace)
    server.kubectl(
        "create", "service", "externalname", "b", "--external-name=c.example", "-n", namespace
    )
    found = json.loads(server.kubectl("get", "service", "a", "-n", namespace, "-o", "json"))
    [port] = found["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (80, 8080)
    server.kubectl("cluster-info")


def test_kubectl_makes_and_shows_priority_classes(server: ServerProcess) -> None:
    server.kubectl("create", "priorityclass", "urgent", "--value=1000", "--description=first")
    try:
        rows = server.kubectl("get", "pc", "--no-headers").splitlines()
        shown = {name: rest for name, *rest in (row.split() for row in rows)}
        assert shown.keys() >= {"system-node-critical", "system-cluster-critical", "urgent"}
        assert (shown["urgent"][:2], shown["urgent"][-1]) == (
            ["1000", "false"],
            "PreemptLowerPriority",
        )
        change = ("patch", "pc", "urgent", "--type=merge", "-p", '{"value":2000}')
        assert server.run_kubectl(*change).returncode != 0
        assert server.run_kubectl("delete", "pc", "system-node-critical").returncode != 0
    finally:
        server.kubectl("delete", "pc", "urgent")


def test_a_service_gets_addresses_and_slices_where_guests_share_a_network(
    server: ServerProcess, namespace: str
) -> None:
    if problem := namespaces.problem():
        pytest.skip(f"no node network: {problem}")
    ports = [{"name": "http", "port": 80}]
    families = {"ipFamilyPolicy": "RequireDualStack"}
    spec = {"type": "NodePort", "selector": {"app": "web"}, "ports": ports, **families}
    warnings = applied(server, namespace, SERVICE | {"spec": spec})
    assert warnings == ""
    wait = ("--for=jsonpath={.spec.clusterIPs[1]}", "service/web", "--timeout=50s")
    server.kubectl("wait", "-n", namespace, *wait)
    found = json.loads(server.kubectl("get", "service", "web", "-n", namespace, "-o", "json"))
    v4, v6 = found["spec"]["clusterIPs"]
    assert found["spec"]["clusterIP"] == v4
    assert ":" in v6
    assert 30000 <= found["spec"]["ports"][0]["nodePort"] <= 32767
    wait = ("--for=create", "endpointslice/web-ipv6", "--timeout=50s")
    server.kubectl("wait", "-n", namespace, *wait)
    # A manifest that names none of them leaves them alone.
    applied(server, namespace, SERVICE | {"spec": spec})
    again = json.loads(server.kubectl("get", "service", "web", "-n", namespace, "-o", "json"))
    assert again["spec"] == found["spec"]
    server.kubectl("delete", "service", "web", "-n", namespace)
    wait = ("--for=delete", "endpointslice/web-ipv6", "--timeout=50s")
    server.kubectl("wait", "-n", namespace, *wait)
