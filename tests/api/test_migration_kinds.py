"""Migrations and their policies as kubectl shows, takes and refuses them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ..server_process import ServerProcess
from .manifests import a_domain, a_vmi

pytestmark = pytest.mark.slow

#: There is no such node, so it waits forever.
VMI = a_vmi(spec={"nodeSelector": {"disk": "none"}, "domain": a_domain("64Mi")})
MIGRATION: dict[str, Any] = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceMigration",
    "metadata": {"name": "move"},
    "spec": {"vmiName": "web"},
}


def create(server: ServerProcess, namespace: str, obj: dict[str, Any]) -> tuple[int, str]:
    """Create an object; return kubectl's exit status and what it said."""
    done = server.run_kubectl("-n", namespace, "create", "-f", "-", input=yaml.safe_dump(obj))
    return done.returncode, done.stdout + done.stderr


def test_a_migration_of_an_unknown_instance_is_refused(
    server: ServerProcess, namespace: str
) -> None:
    status, said = create(server, namespace, MIGRATION)
    assert status == 1
    assert f'spec.vmiName: the VMI "{namespace}/web" does not exist' in said


def test_a_migration_is_labelled_held_and_shown_until_it_is_cancelled(
    server: ServerProcess, namespace: str
) -> None:
    assert create(server, namespace, VMI)[0] == 0
    assert create(server, namespace, MIGRATION)[0] == 0
    kubectl = ("-n", namespace)
    server.kubectl(*kubectl, "wait", "vmim/move", "--for=jsonpath={.status.phase}=Pending")
    head, row = server.kubectl(*kubectl, "get", "vmim").splitlines()
    assert head.split() == ["NAME", "PHASE", "VMI"]
    assert row.split()[:3] == ["move", "Pending", "web"]
    found = json.loads(server.kubectl(*kubectl, "get", "vmim", "move", "-o", "json"))
    assert found["metadata"]["labels"] == {"kubevirt.io/vmi-name": "web"}
    assert found["metadata"]["finalizers"] == ["kubevirt.io/migrationJobFinalize"]
    refused = server.run_kubectl(
        *kubectl, "patch", "vmim", "move", "--type=merge", "-p", '{"spec":{"vmiName":"other"}}'
    )
    assert "update of Migration object's spec is restricted" in refused.stderr
    server.kubectl(*kubectl, "delete", "vmim", "move", "--timeout=60s")
    server.kubectl(*kubectl, "delete", "vmi", "web", "--wait=false")


def test_a_policy_that_cannot_be_followed_is_refused(server: ServerProcess, namespace: str) -> None:
    policy = {
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": {"name": f"slow-{namespace}"},
        "spec": {"selectors": {}, "bandwidthPerMigration": "-1Mi"},
    }
    status, said = create(server, namespace, policy)
    assert status == 1
    assert "spec.bandwidthPerMigration: Invalid value" in said
    policy["spec"] = {"selectors": {"namespaceSelector": {"team": "a"}}, "maxDowntimeMs": 200}
    assert create(server, namespace, policy)[0] == 0
    server.kubectl("delete", "migrationpolicy", f"slow-{namespace}")
