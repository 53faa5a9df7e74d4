"""Server-side apply and managedFields, with the real kubectl and as kube-apiserver answers."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import Any

import pytest

from .. import apply_requests
from ..server_process import ServerProcess
from .manifests import a_halted_vm

pytestmark = pytest.mark.slow

Object = dict[str, Any]


class Maps:
    """A ConfigMap that is applied with kubectl."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self._server, self._namespace = server, namespace

    def run(self, *options: str, verb: str = "apply", **data: str) -> tuple[int, str]:
        """Run `kubectl apply --server-side`; return its status and output."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": self._namespace},
            "data": data,
        }
        done = self._server.run_kubectl(
            verb, "--server-side", "-f", "-", *options, input=json.dumps(body)
        )
        return done.returncode, done.stdout + done.stderr

    def get(self) -> Object:
        """Return the object with its managedFields."""
        shown = self._server.kubectl(
            "-n", self._namespace, "get", "cm", "a", "-o", "json", "--show-managed-fields"
        )
        found: Object = json.loads(shown)
        return found

    def managers(self) -> dict[str, str]:
        """Return each manager and its operation."""
        entries = self.get()["metadata"].get("managedFields", [])
        return {entry["manager"]: entry["operation"] for entry in entries}


@pytest.fixture
def maps(server: ServerProcess, namespace: str) -> Maps:
    """A ConfigMap of a namespace of its own."""
    return Maps(server, namespace)


@pytest.mark.parametrize("name", apply_requests.SEQUENCES)
def test_sequences_are_answered_as_by_kube_apiserver(server: ServerProcess, name: str) -> None:
    api = apply_requests.Api.of_kubeconfig(server.kubeconfig)
    answers = apply_requests.play(api, apply_requests.SEQUENCES[name])
    for number, expected in enumerate(apply_requests.recorded()[name]):
        assert answers[number] == expected, apply_requests.SEQUENCES[name][number]


def test_given_another_owner_when_applied_then_it_conflicts_unless_forced(maps: Maps) -> None:
    assert maps.run("--field-manager=git", k="1", l="1")[0] == 0
    code, shown = maps.run(k="2")
    assert code != 0
    assert ".data.k" in shown
    assert maps.get()["data"] == {"k": "1", "l": "1"}
    assert maps.run("--force-conflicts", k="2")[0] == 0
    assert maps.get()["data"] == {"k": "2", "l": "1"}
    assert maps.managers() == {"git": "Apply", "kubectl": "Apply"}


def test_given_the_same_configuration_when_applied_again_then_nothing_is_written(
    maps: Maps,
) -> None:
    maps.run(k="1")
    before = maps.get()
    maps.run(k="1")
    assert maps.get() == before


def test_a_dry_run_writes_nothing_and_diff_shows_the_change(maps: Maps) -> None:
    maps.run(k="1")
    before = maps.get()
    assert maps.run("--dry-run=server", k="2")[0] == 0
    assert maps.get() == before
    assert maps.run(verb="diff", k="1")[0] == 0
    code, shown = maps.run(verb="diff", k="2")
    assert code == 1
    assert "+  k: " in shown


def test_given_client_side_apply_when_applied_server_side_then_it_is_taken_over(
    server: ServerProcess, namespace: str, maps: Maps
) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": namespace},
        "data": {"k": "1", "l": "1"},
    }
    server.kubectl("apply", "-f", "-", input=json.dumps(body))
    assert maps.run(k="2")[0] == 0
    assert maps.run(k="2")[0] == 0
    assert maps.get()["data"] == {"k": "2"}
    body["data"] = {"k": "3"}
    server.kubectl("apply", "-f", "-", input=json.dumps(body))
    assert maps.get()["data"] == {"k": "3"}


def test_every_component_is_recorded_under_its_name(server: ServerProcess, namespace: str) -> None:
    vm = a_halted_vm("web")
    server.kubectl("-n", namespace, "apply", "--server-side", "-f", "-", input=json.dumps(vm))
    server.kubectl(
        "-n", namespace, "wait", "vm/web", "--for=jsonpath={.status.observedGeneration}",
        "--timeout=30s",
    )  # fmt: skip
    shown = server.kubectl(
        "-n", namespace, "get", "vm", "web", "-o", "json", "--show-managed-fields"
    )
    entries = {
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in json.loads(shown)["metadata"]["managedFields"]
    }
    assert entries >= {
        ("kubectl", "Apply", ""),
        ("virtualmachine-controller", "Update", "status"),
    }
    assert server.run_kubectl(
        "-n", namespace, "diff", "--server-side", "-f", "-", input=json.dumps(vm)
    ).returncode == 0  # fmt: skip


def test_a_watch_with_a_selector_shows_managed_fields(
    server: ServerProcess, namespace: str, maps: Maps
) -> None:
    maps.run(k="1")
    version = maps.get()["metadata"]["resourceVersion"]
    maps.run(k="2")
    query = f"watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Da&timeoutSeconds=5"
    request = urllib.request.Request(
        f"{server.url}/api/v1/namespaces/{namespace}/configmaps?{query}",
        headers={"Authorization": f"Bearer {server.token}"},
    )
    trust: ssl.SSLContext = server.trust()
    with urllib.request.urlopen(request, context=trust, timeout=30) as stream:
        event = json.loads(stream.readline())
    assert event["object"]["metadata"]["managedFields"][0]["manager"] == "kubectl"
