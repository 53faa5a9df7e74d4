"""What `livevirt status` finds wrong in a cluster."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from livevirt import __version__, x509
from livevirt.cluster import manifests, status
from livevirt.cluster.manifests import WORKLOADS, InstallOptions
from livevirt.cluster.status import ClusterSnapshot
from livevirt.kube.objects import crds
from livevirt.vm import kinds
from livevirt.x509 import Subject

NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)
AUTHORITY = x509.new_authority("ca", NOON, timedelta(days=365))
Change = Callable[[ClusterSnapshot], ClusterSnapshot]


def a_secret(lifetime: timedelta) -> dict[str, Any]:
    subject = Subject("server", x509.SERVER, addresses=("server",))
    pair = x509.issue(AUTHORITY, subject, NOON, lifetime)
    return {"data": {"tls.crt": base64.b64encode(pair.certificate).decode()}}


def with_condition(obj: dict[str, Any], type_: str, value: str = "True") -> dict[str, Any]:
    return {**obj, "status": {"conditions": [{"type": type_, "status": value}]}}


def deployments(version: str = __version__, ready: int = 2) -> dict[str, Any]:
    applied = {
        each["metadata"]["name"]: json.loads(json.dumps(each))
        for each in manifests.control_plane(InstallOptions())
        if each["kind"] == "Deployment"
    }
    found = {}
    for workload in WORKLOADS:
        deployment = applied[workload.name]
        deployment["status"] = {"readyReplicas": ready}
        deployment["spec"]["template"]["metadata"]["labels"][manifests.VERSION] = version
        found[workload.component] = deployment
    return found


def agents(version: str = __version__, ready: int = 3) -> dict[str, Any]:
    """Return the DaemonSet of node agents on three nodes."""
    applied = manifests.control_plane(InstallOptions())
    [found] = (each for each in applied if each["kind"] == "DaemonSet")
    found["status"] = {"desiredNumberScheduled": 3, "numberReady": ready}
    found["spec"]["template"]["metadata"]["labels"][manifests.VERSION] = version
    return found


def a_lease(renewed: datetime, holder: str = "pod-1") -> dict[str, Any]:
    text = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "renewTime": text, "leaseDurationSeconds": 15}
    return {"spec": spec}


def stored_as_both() -> dict[str, Any]:
    found = with_condition(crds.definition(kinds.INSTANCETYPE), "Established")
    found["status"]["storedVersions"] = ["v1beta1", "v1beta2"]
    return found


WEBHOOKS: dict[str, Any] = {"webhooks": [{"clientConfig": {"caBundle": "eA=="}}]}
HEALTHY = ClusterSnapshot(
    NOON,
    "v1.37.1",
    deployments(),
    {name: a_secret(timedelta(days=60)) for name in status.SECRETS},
    {version: with_condition({}, "Available") for version in ("v1", "v1alpha3")},
    {kind: WEBHOOKS for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")},
    {kind.resource: with_condition({}, "Established") for kind in kinds.KINDS},
    agents(),
    a_lease(NOON - timedelta(seconds=2)),
    {"kind": "KubeVirt"},
    {"virtual machines": 3, "instances": 2, "nodes for guests": 0},
)
NONE = ClusterSnapshot(NOON, "v1.37.1")

#: A change of a healthy cluster, and a part of each problem that follows, in order.
WRONG: dict[str, tuple[Change, list[str]]] = {
    "nothing is wrong": (lambda found: found, []),
    "nothing is installed": (lambda found: NONE, ["not installed"]),
    "a component is not ready": (
        lambda found: replace(
            found, deployments={**found.deployments, "api": deployments(ready=1)["api"]}
        ),
        ["component api"],
    ),
    "a component is missing": (
        lambda found: replace(found, deployments={**found.deployments, "webhook": None}),
        ["component webhook"],
    ),
    "another version": (
        lambda found: replace(
            found, deployments={**found.deployments, "api": deployments("0.0.1")["api"]}
        ),
        ["component api"],
    ),
    "a node agent is not ready": (
        lambda found: replace(found, agents=agents(ready=2)),
        ["node agents"],
    ),
    "no node agents": (lambda found: replace(found, agents=None), ["node agents"]),
    "node agents of another version": (
        lambda found: replace(found, agents=agents("0.0.1")),
        ["component node"],
    ),
    "a certificate expires soon": (
        lambda found: replace(found, secrets={**found.secrets, "api": a_secret(timedelta(days=3))}),
        ["certificate of component api"],
    ),
    "no certificate": (
        lambda found: replace(found, secrets={**found.secrets, "webhook": None}),
        ["component webhook"],
    ),
    "nobody leads": (lambda found: replace(found, lease=None), ["no controller leads"]),
    "the leader let go": (
        lambda found: replace(found, lease=a_lease(NOON, "")),
        ["no controller leads"],
    ),
    "the leader is gone": (
        lambda found: replace(found, lease=a_lease(NOON - timedelta(minutes=3))),
        ["pod-1"],
    ),
    "the API is not available": (
        lambda found: replace(
            found,
            registrations={**found.registrations, "v1": with_condition({}, "Available", "False")},
        ),
        ["v1.subresources.kubevirt.io"],
    ),
    "no CA bundle": (
        lambda found: replace(
            found,
            configurations={
                **found.configurations,
                "ValidatingWebhookConfiguration": {"webhooks": [{"clientConfig": {}}]},
            },
        ),
        ["ValidatingWebhookConfiguration"],
    ),
    "a definition is missing": (
        lambda found: replace(found, definitions={**found.definitions, kinds.VM.resource: None}),
        [kinds.VM.resource],
    ),
    "objects in an older stored version": (
        lambda found: replace(
            found, definitions={**found.definitions, kinds.INSTANCETYPE.resource: stored_as_both()}
        ),
        [kinds.INSTANCETYPE.resource],
    ),
    "no settings": (lambda found: replace(found, kubevirt=None), ["KubeVirt object"]),
    "a user who may not read Secrets": (
        lambda found: replace(found, secrets=dict.fromkeys(found.secrets), hidden=("secrets",)),
        ["you may not read secrets"],
    ),
}


@pytest.mark.wording
@pytest.mark.parametrize(("change", "expected"), WRONG.values(), ids=WRONG)
def test_problems(change: Change, expected: list[str]) -> None:
    found = status.problems(change(HEALTHY))
    assert len(found) == len(expected)
    for problem, part in zip(found, expected, strict=True):
        assert part in problem.what
        assert problem.fix


def test_given_any_state_then_it_can_be_shown() -> None:
    for change, expected in WRONG.values():
        snapshot = change(HEALTHY)
        shown = json.loads(json.dumps(status.document(snapshot)))
        assert len(shown["problems"]) == len(expected)
        assert len(list(status.lines(snapshot))) >= 2
