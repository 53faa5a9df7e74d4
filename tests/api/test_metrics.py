"""`/metrics` and the resource metrics API, through the real kubectl and Prometheus' own parser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from livevirt.background import FAMILIES

from ..server_process import ServerProcess

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
METRICS = "/apis/metrics.k8s.io/v1beta1"
HALTED = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "web"},
    "spec": {
        "runStrategy": "Halted",
        "template": {
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "cpu": {"sockets": 2}, "devices": {}}}
        },
    },
}


def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return what holds, once it does."""
    deadline = monotonic() + seconds
    while not (found := holds()):
        assert monotonic() < deadline
        sleep(0.1)
    return found


def read(server: ServerProcess, path: str) -> Any:
    return json.loads(server.kubectl("get", "--raw", path))


def samples(server: ServerProcess, metric: str, /, **labels: str) -> list[float]:
    """Return the values of a metric, of those whose labels are these among others."""
    text = server.kubectl("get", "--raw", "/metrics")
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and labels.items() <= sample.labels.items()
    ]


@pytest.fixture
def node(server: ServerProcess) -> str:
    """The name of the node, once it is there."""
    names = until(lambda: server.kubectl("get", "nodes", "-o", "name").split())
    return str(names[0].removeprefix("node/"))


def test_given_a_vm_then_metrics_describe_it(server: ServerProcess, namespace: str) -> None:
    server.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(HALTED))
    group = {"namespace": namespace, "name": "web"}

    def told() -> list[float]:
        return samples(server, "kubevirt_vm_info", **group, status="stopped")

    assert until(told) == [1]
    assert samples(server, "kubevirt_number_of_vms", namespace=namespace) == [1]
    memory = samples(server, "kubevirt_vm_resource_requests", **group, source="guest")
    assert memory == [64 << 20]
    server.kubectl("delete", "vm", "web", "-n", namespace)
    until(lambda: not samples(server, "kubevirt_vm_info", **group))


def test_given_a_scrape_then_it_shows_only_what_the_page_lists(server: ServerProcess) -> None:
    until(lambda: samples(server, "livevirt_node_ready"))
    text = server.kubectl("get", "--raw", "/metrics")
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    ours = {name: kind for name, kind in shown.items() if name.startswith(("kube", "live"))}
    known = {family.name: family.type for family in FAMILIES}
    assert ours
    assert ours.items() <= known.items()
    page = PAGE.read_text()
    assert [name for name in shown if f"`{name}`" not in page] == []


def test_given_a_node_then_its_heartbeat_and_storage_are_told(
    server: ServerProcess, node: str
) -> None:
    assert until(lambda: samples(server, "livevirt_node_ready", node=node)) == [1]
    (beat,) = until(lambda: samples(server, "livevirt_node_heartbeat_timestamp_seconds", node=node))
    assert beat > 1.7e9
    (free,) = samples(server, "livevirt_storage_available_bytes", directory="data")
    (size,) = samples(server, "livevirt_storage_capacity_bytes", directory="data")
    assert 0 < free < size


def test_given_kubectl_top_node_then_it_shows_the_node(server: ServerProcess, node: str) -> None:
    shown = until(lambda: server.run_kubectl("top", "node", "--no-headers").stdout).split()
    assert shown[0] == node
    assert re.fullmatch(r"\d+m \d+% \d+Mi \d+%", " ".join(shown[1:]))


def test_given_kubectl_top_pod_without_pods_then_it_says_so(
    server: ServerProcess, namespace: str
) -> None:
    done = server.run_kubectl("top", "pod", "-n", namespace)
    assert (done.returncode, done.stdout) == (0, "")
    assert "No resources found" in done.stderr


def test_given_the_resource_metrics_api_then_objects_have_its_form(
    server: ServerProcess, node: str
) -> None:
    listed = until(lambda: read(server, f"{METRICS}/nodes")["items"])
    assert [each["metadata"]["name"] for each in listed] == [node]
    one = read(server, f"{METRICS}/nodes/{node}")
    assert (one["kind"], one["apiVersion"]) == ("NodeMetrics", "metrics.k8s.io/v1beta1")
    assert set(one["usage"]) == {"cpu", "memory"}
    assert re.fullmatch(r"[\d.]+s", one["window"])
    selected = read(server, f"{METRICS}/nodes?labelSelector=kubernetes.io/os%3Dplan9")
    assert (selected["kind"], selected["items"]) == ("NodeMetricsList", [])
    assert read(server, f"{METRICS}/pods")["kind"] == "PodMetricsList"


REFUSALS = {
    "a node that is not there": (("get", "--raw", f"{METRICS}/nodes/none"), "NotFound"),
    "a pod that is not there": (
        ("get", "--raw", f"{METRICS}/namespaces/default/pods/none"), "NotFound"
    ),
    "a write": (("delete", "--raw", f"{METRICS}/nodes/none"), "MethodNotAllowed"),
    "a watch": (("get", "--raw", f"{METRICS}/nodes?watch=true"), "MethodNotAllowed"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_given_what_cannot_be_answered(
    server: ServerProcess, command: tuple[str, ...], reason: str
) -> None:
    done = server.run_kubectl(*command)
    assert done.returncode == 1
    assert reason in done.stderr


def test_given_discovery_and_openapi_then_both_know_the_kinds(server: ServerProcess) -> None:
    listed = server.kubectl("api-resources", "--api-group=metrics.k8s.io", "--no-headers")
    assert [line.split()[-1] for line in listed.splitlines()] == ["NodeMetrics", "PodMetrics"]
    assert server.kubectl("get", "nodes", "-o", "name").startswith("node/")  # not the metrics
    shown = server.kubectl("explain", "podmetrics.containers.usage")
    assert "CPU and memory" in shown


def test_given_the_commands_of_the_page_then_they_work(server: ServerProcess, node: str) -> None:
    until(lambda: server.run_kubectl("top", "node").returncode == 0)
    (block,) = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`(kubectl create [^`]+)`", PAGE.read_text())
    for line in [*block.splitlines(), *(" ".join(each.split()) for each in inline)]:
        program, *words = line.split()
        assert program == "kubectl"
        server.kubectl(*words)
