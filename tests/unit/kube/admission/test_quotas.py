from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import Forbidden
from livevirt.kube.admission.quotas import recount
from livevirt.kube.objects.core import CLAIM, CONFIG_MAP, POD, QUOTA, SECRET
from livevirt.kube.objects.quota_usage import usage
from livevirt.kube.objects.request import Object

from .in_memory_server import NOON, InMemoryServer, Refused, a_container, a_pod


def set_quota(
    server: InMemoryServer, hard: dict[str, str], name: str = "q", **spec: object
) -> None:
    quota = server.create(QUOTA, name, spec={"hard": hard, **spec})
    quota["status"] = recount(quota, objects_of(server), NOON)


def objects_of(server: InMemoryServer) -> dict[object, list[Object]]:
    return {kind: server.list(kind) for kind in (POD, SECRET, CLAIM, CONFIG_MAP)}


def status_of(server: InMemoryServer, name: str = "q") -> Object:
    found = server.get(QUOTA, name)
    assert found is not None
    status: Object = found["status"]
    return status


def pod(cpu: str, memory: str) -> Object:
    return a_pod(a_container(requests={"cpu": cpu}, limits={"memory": memory}))


def test_a_quota_counts_at_once_and_refuses_with_the_sums() -> None:
    server = InMemoryServer()
    set_quota(server, {"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"})
    server.create(POD, "a", **pod("600m", "256Mi"))
    assert status_of(server) == {
        "hard": {"limits.memory": "1Gi", "pods": "2", "requests.cpu": "1"},
        "used": {"limits.memory": "256Mi", "pods": "1", "requests.cpu": "600m"},
    }
    with pytest.raises(Forbidden) as refusal:
        server.create(POD, "b", **pod("600m", "256Mi"))
    assert refusal.value.message == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=600m, '
        "used: requests.cpu=600m, limited: requests.cpu=1"
    )
    with pytest.raises(Forbidden, match=r"limits\.memory=900Mi, used: limits\.memory=256Mi"):
        server.create(POD, "b", **pod("400m", "900Mi"))
    server.create(POD, "b", **pod("400m", "256Mi"))
    with pytest.raises(Forbidden, match="requested: pods=1, used: pods=2, limited: pods=2"):
        server.create(POD, "c", **pod("0", "0"))


def test_under_a_quota_every_container_must_state_its_needs() -> None:
    server = InMemoryServer()
    set_quota(server, {"requests.cpu": "1", "limits.memory": "1Gi"})
    with pytest.raises(Forbidden) as refusal:
        server.create(POD, "a", **a_pod())
    assert refusal.value.message == (
        'pods "a" is forbidden: failed quota: q: '
        "must specify limits.memory for: c; requests.cpu for: c"
    )


def test_a_resize_is_charged_the_difference_only() -> None:
    server = InMemoryServer()
    set_quota(server, {"requests.cpu": "1"})
    created = server.create(POD, "a", **a_pod(a_container(requests={"cpu": "500m"})))
    with pytest.raises(Forbidden) as refusal:
        server.resize(created, requests={"cpu": "1100m"})
    assert refusal.value.message == (
        'pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=600m, '
        "used: requests.cpu=500m, limited: requests.cpu=1"
    )
    server.resize(created, requests={"cpu": "900m"})
    assert status_of(server)["used"] == {"requests.cpu": "900m"}


def test_given_a_quota_over_its_limit_then_pods_may_still_change_and_shrink() -> None:
    server = InMemoryServer()
    created = server.create(POD, "a", **a_pod(a_container(requests={"cpu": "2"})))
    set_quota(server, {"requests.cpu": "1"})
    server.update(POD, {**created, "metadata": {**created["metadata"], "labels": {"x": "1"}}})
    server.resize(created, requests={"cpu": "1500m"})
    assert status_of(server)["used"] == {"requests.cpu": "2"}  # until the controller counts again


def test_objects_are_counted_by_either_name_and_given_back_by_a_recount() -> None:
    server = InMemoryServer()
    set_quota(server, {"count/secrets": "1", "secrets": "5"})
    server.create(SECRET, "a")
    with pytest.raises(Forbidden) as refusal:
        server.create(SECRET, "b")
    assert refusal.value.message == (
        'secrets "b" is forbidden: exceeded quota: q, requested: count/secrets=1, '
        "used: count/secrets=1, limited: count/secrets=1"
    )
    del server.objects[SECRET.resource, "a"]
    quota = server.get(QUOTA, "q")
    assert quota is not None
    quota["status"] = recount(quota, objects_of(server), NOON)
    server.create(SECRET, "b")
    assert status_of(server)["used"] == {"count/secrets": "1", "secrets": "1"}


def test_claims_are_counted_by_storage_and_by_class() -> None:
    claim = {
        "metadata": {"name": "c"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }
    counted = {name: str(value) for name, value in usage(CLAIM, claim, NOON).items()}
    assert counted == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }


def test_given_a_growing_claim_then_the_growth_is_charged() -> None:
    server = InMemoryServer()
    set_quota(server, {"requests.storage": "3Gi"})
    claim = server.create(CLAIM, "c", **a_claim("1Gi"))
    server.put(CLAIM, "c", spec=claim["spec"], status={"phase": "Bound"})
    server.objects["storageclasses.storage.k8s.io", "fast"] = {
        "metadata": {"name": "fast"},
        "allowVolumeExpansion": True,
    }
    grown = {**claim, "spec": {**claim["spec"], "resources": {"requests": {"storage": "4Gi"}}}}
    with pytest.raises(Forbidden, match=r"requested: requests\.storage=3Gi"):
        server.update(CLAIM, grown)
    grown["spec"]["resources"]["requests"]["storage"] = "2Gi"
    server.update(CLAIM, grown)
    assert status_of(server)["used"] == {"requests.storage": "2Gi"}


def a_claim(size: str) -> Object:
    return {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": size}},
        }
    }


def test_a_pod_that_ended_or_overstayed_is_not_counted() -> None:
    server = InMemoryServer()
    created = server.create(POD, "a", **pod("1", "1Gi"))
    assert "requests.cpu" in usage(POD, created, NOON)
    created["metadata"] |= {
        "deletionTimestamp": "2030-01-01T12:00:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    assert "requests.cpu" in usage(POD, created, NOON + timedelta(seconds=29))
    assert usage(POD, created, NOON + timedelta(seconds=31)).keys() == {"count/pods"}
    created["status"]["phase"] = "Succeeded"
    assert usage(POD, created, NOON).keys() == {"count/pods"}


def test_during_a_resize_the_larger_of_wanted_granted_and_in_force_counts() -> None:
    created = InMemoryServer().create(POD, "a", **a_pod(a_container(requests={"cpu": "1"})))
    created["status"]["containerStatuses"] = [
        {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}}
    ]
    assert str(usage(POD, created, NOON)["requests.cpu"]) == "3"
    created["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "8"
    assert str(usage(POD, created, NOON)["requests.cpu"]) == "8"
    created["status"]["conditions"] = [
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    ]
    assert str(usage(POD, created, NOON)["requests.cpu"]) == "3"


SCOPES: dict[str, tuple[Object, Object, bool]] = {
    "Terminating, with a deadline": (
        {"scopes": ["Terminating"]},
        a_pod(activeDeadlineSeconds=5),
        True,
    ),
    "Terminating, without": ({"scopes": ["Terminating"]}, a_pod(), False),
    "NotTerminating, without": ({"scopes": ["NotTerminating"]}, a_pod(), True),
    "BestEffort, asking nothing": ({"scopes": ["BestEffort"]}, a_pod(), True),
    "BestEffort, asking something": ({"scopes": ["BestEffort"]}, pod("1", "1Gi"), False),
    "NotBestEffort, asking something": ({"scopes": ["NotBestEffort"]}, pod("1", "1Gi"), True),
    "PriorityClass, of that class": (
        {
            "scopeSelector": {
                "matchExpressions": [
                    {
                        "scopeName": "PriorityClass",
                        "operator": "In",
                        "values": ["system-node-critical"],
                    }
                ]
            }
        },
        a_pod(priorityClassName="system-node-critical"),
        True,
    ),
    "PriorityClass, of none": (
        {
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
            }
        },
        a_pod(),
        False,
    ),
}


@pytest.mark.parametrize(("scope", "fields", "counted"), SCOPES.values(), ids=SCOPES)
def test_scopes(scope: Object, fields: Object, counted: bool) -> None:
    server = InMemoryServer()
    set_quota(server, {"pods": "5"}, **scope)
    server.create(POD, "a", **fields)
    assert status_of(server)["used"]["pods"] == ("1" if counted else "0")


def test_given_a_quota_nobody_counted_yet_then_it_refuses_nothing() -> None:
    server = InMemoryServer()
    server.create(QUOTA, "q", spec={"hard": {"pods": "0"}})
    server.create(POD, "a", **a_pod())


BAD: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "negative": ({"hard": {"pods": "-1"}}, {("Invalid", "spec.hard[pods]")}),
    "unknown": ({"hard": {"bananas": "1"}}, {("Invalid", "spec.hard[bananas]")}),
    "half a pod": ({"hard": {"pods": "1.5"}}, {("Invalid", "spec.hard[pods]")}),
    "unknown scope": ({"scopes": ["Moon"]}, {("Invalid", "spec.scopes")}),
    "contradicting scopes": (
        {"scopes": ["Terminating", "NotTerminating"]},
        {("Invalid", "spec.scopes")},
    ),
    "secrets with a pod's scope": (
        {"hard": {"secrets": "1"}, "scopes": ["BestEffort"]},
        {("Invalid", "spec.scopes")},
    ),
}


@pytest.mark.parametrize(("spec", "causes"), BAD.values(), ids=BAD)
def test_a_bad_quota_is_refused(spec: Object, causes: set[tuple[str, str]]) -> None:
    with pytest.raises(Refused) as refusal:
        InMemoryServer().create(QUOTA, "q", spec=spec)
    assert refusal.value.causes == causes


@given(
    st.lists(st.tuples(st.sampled_from(["100m", "250m", "1"]), st.sampled_from(["64Mi", "1Gi"])))
)
def test_given_any_writes_then_what_was_charged_is_what_a_recount_finds(
    sizes: list[tuple[str, str]],
) -> None:
    server = InMemoryServer()
    set_quota(server, {"pods": "4", "requests.cpu": "2", "limits.memory": "2Gi", "count/pods": "9"})
    for at, (cpu, memory) in enumerate(sizes):
        try:
            server.create(POD, f"p{at}", **pod(cpu, memory))
        except Forbidden:
            continue
    quota = server.get(QUOTA, "q")
    assert quota is not None
    assert recount(quota, objects_of(server), NOON) == quota["status"]
