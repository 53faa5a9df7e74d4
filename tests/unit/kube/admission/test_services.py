"""Services: what is filled in, what is refused, and that their creators may be warned."""

from __future__ import annotations

import copy

import pytest

from livevirt.kube.admission.services import ServiceRules
from livevirt.kube.objects import typed
from livevirt.kube.objects.core import SERVICE
from livevirt.kube.objects.quota_usage import usage
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review

from .in_memory_server import NOON, InMemoryServer, Refused

HTTP = {"port": 80}


def a_service(*ports: Object, **spec: object) -> Object:
    return {"spec": {"selector": {"app": "web"}, "ports": list(ports) or [dict(HTTP)], **spec}}


def test_a_minimal_service_gets_every_default_but_no_address() -> None:
    service = InMemoryServer().create(SERVICE, "web", **a_service())
    assert service["spec"] == {
        "type": "ClusterIP",
        "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    assert service["status"] == {"loadBalancer": {}}


def test_other_types_get_what_they_need() -> None:
    server = InMemoryServer()
    balanced = server.create(SERVICE, "b", **a_service(type="LoadBalancer"))["spec"]
    assert balanced["externalTrafficPolicy"] == "Cluster"
    assert balanced["allocateLoadBalancerNodePorts"] is True
    headless = server.create(SERVICE, "h", spec={"clusterIP": "None"})["spec"]
    assert headless["clusterIPs"] == ["None"]
    sticky = server.create(SERVICE, "s", **a_service(sessionAffinity="ClientIP"))["spec"]
    assert sticky["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    alias = server.create(SERVICE, "a", spec={"type": "ExternalName", "externalName": "a.example"})
    assert "internalTrafficPolicy" not in alias["spec"]


@pytest.mark.parametrize("warning", ["", "it does nothing"])
def test_the_creator_may_be_warned_and_whoever_edits_it_is_not(warning: str) -> None:
    rules, server = ServiceRules(warning), InMemoryServer()
    new = typed.decode(SERVICE.schema(), {"metadata": {"name": "web"}, **a_service()}, [])
    rules.default(new)
    created = Review("create", SERVICE, "v1", new, None, User("jane"), server, NOON)
    rules.prepare(created)
    assert created.warnings == ([warning] if warning else [])
    old = copy.deepcopy(new)
    edited = Review("update", SERVICE, "v1", new, old, User("jane"), server, NOON)
    rules.prepare(edited)
    assert edited.warnings == []


REFUSED: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "no port": ({"spec": {}}, {("Required", "spec.ports")}),
    "a port out of range": (
        a_service({"port": 0, "targetPort": 5}),
        {("Invalid", "spec.ports[0].port")},
    ),
    "a name that is none": (
        a_service({"port": 5, "name": "A"}),
        {("Invalid", "spec.ports[0].name")},
    ),
    "two ports without names": (
        a_service({"port": 5}, {"port": 6}),
        {("Required", "spec.ports[0].name"), ("Required", "spec.ports[1].name")},
    ),
    "two ports of a name": (
        a_service({"port": 5, "name": "a"}, {"port": 6, "name": "a"}),
        {("Duplicate", "spec.ports[1].name")},
    ),
    "a port twice": (
        a_service({"port": 5, "name": "a"}, {"port": 5, "name": "b"}),
        {("Duplicate", "spec.ports[1]")},
    ),
    "a protocol": (
        a_service({"port": 5, "protocol": "QUIC"}),
        {("NotSupported", "spec.ports[0].protocol")},
    ),
    "a target": (
        a_service({"port": 5, "targetPort": "A_B"}),
        {("Invalid", "spec.ports[0].targetPort")},
    ),
    "a port of nodes that are not used": (
        a_service({"port": 5, "nodePort": 30000}),
        {("Forbidden", "spec.ports[0].nodePort")},
    ),
    "a type": (a_service(type="Anycast"), {("NotSupported", "spec.type")}),
    "an address": (a_service(clusterIP="web"), {("Invalid", "spec.clusterIP")}),
    "two addresses": (
        a_service(clusterIP="10.0.0.1", clusterIPs=["10.0.0.2"]),
        {("Invalid", "spec.clusterIPs")},
    ),
    "no address, but ports of nodes": (
        a_service(clusterIP="None", type="NodePort"),
        {("Invalid", "spec.clusterIP")},
    ),
    "an alias of nothing": (
        {"spec": {"type": "ExternalName"}},
        {("Required", "spec.externalName")},
    ),
    "an alias with an address": (
        {"spec": {"type": "ExternalName", "externalName": "a", "clusterIP": "10.0.0.1"}},
        {("Forbidden", "spec.clusterIP")},
    ),
    "a policy": (
        a_service(internalTrafficPolicy="Near"),
        {("NotSupported", "spec.internalTrafficPolicy")},
    ),
    "an affinity": (
        a_service(sessionAffinity="Cookie"),
        {("NotSupported", "spec.sessionAffinity")},
    ),
    "a label": (a_service(selector={"a b": "c"}), {("Invalid", "spec.selector")}),
}


@pytest.mark.parametrize(("service", "causes"), REFUSED.values(), ids=REFUSED)
def test_what_no_service_can_be_is_refused(service: Object, causes: set[tuple[str, str]]) -> None:
    with pytest.raises(Refused) as refused:
        InMemoryServer().create(SERVICE, "web", **service)
    assert refused.value.causes == causes


def test_its_address_cannot_change() -> None:
    server = InMemoryServer()
    made = server.create(SERVICE, "web", **a_service(clusterIP="None"))
    changed = copy.deepcopy(made)
    changed["spec"] |= {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}
    with pytest.raises(Refused) as refused:
        server.update(SERVICE, changed)
    assert refused.value.causes == {("Invalid", "spec.clusterIP")}
    without = copy.deepcopy(made)
    without["spec"]["selector"] = {"app": "other"}
    server.update(SERVICE, without)


def test_services_count_against_a_quota() -> None:
    made = InMemoryServer().create(SERVICE, "a", **a_service())
    assert usage(SERVICE, made, NOON).keys() == {"services", "count/services"}
