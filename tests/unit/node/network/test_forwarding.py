from typing import Any

from livevirt.node.network import forwarding
from livevirt.node.network.forwarding import Backend, Forward


def a_service(name: str = "web", *addresses: str, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIPs": list(addresses or ("10.1.32.7",)), "ports": ports} | spec,
    }


def a_slice(service: str, *endpoints: Any, family: str = "IPv4") -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{service}-x", "namespace": "default",
            "labels": {forwarding.SERVICE_NAME: service},
        },
        "addressType": family,
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
        "endpoints": list(endpoints),
    }  # fmt: skip


def an_endpoint(address: str, ready: bool = True, **more: Any) -> dict[str, Any]:
    return {"addresses": [address], "conditions": {"ready": ready}, **more}


def test_a_service_is_forwarded_to_its_ready_endpoints() -> None:
    slices = [
        a_slice("web", an_endpoint("10.1.0.1"), an_endpoint("10.1.0.2", ready=False)),
        a_slice("db", an_endpoint("10.1.0.3")),
    ]
    assert forwarding.forwards([a_service()], slices) == [
        Forward("10.1.32.7", "tcp", 80, (Backend("10.1.0.1", 8080),))
    ]


def test_families_are_not_mixed() -> None:
    service = a_service("web", "10.1.32.7", "fd00:2::7")
    slices = [
        a_slice("web", an_endpoint("10.1.0.1")),
        a_slice("web", an_endpoint("fd00::1"), family="IPv6"),
    ]
    v4, v6 = forwarding.forwards([service], slices)
    assert v4.backends == (Backend("10.1.0.1", 8080),)
    assert v6.backends == (Backend("fd00::1", 8080),)


def test_a_headless_service_is_a_name_only() -> None:
    service = a_service("web", "None", clusterIP="None")
    slices = [
        a_slice("web", an_endpoint("10.1.0.1", hostname="one"), an_endpoint("10.1.0.2", False))
    ]
    assert forwarding.forwards([service], slices) == []
    assert forwarding.names([service], slices, []).splitlines() == [
        "10.1.0.1 one.web.default.svc.cluster.local",
        "10.1.0.1 web.default.svc.cluster.local",
    ]


def test_services_and_guests_have_names() -> None:
    on_node_network = {
        "podInterfaceName": "eth0",
        "ipAddresses": ["10.1.0.1", "fd00::1", "fe80::1"],
    }
    instances = [
        {"metadata": {"name": "a", "namespace": "default"},
         "status": {"interfaces": [on_node_network]}},
        {"metadata": {"name": "b", "namespace": "default"},
         "status": {"interfaces": [{"ipAddresses": ["10.0.2.15"]}]}},
        {"metadata": {"name": "c", "namespace": "default"}},
    ]  # fmt: skip
    assert forwarding.names([a_service()], [], instances).splitlines() == [
        "10.1.0.1 a.default.vm.cluster.local",
        "10.1.32.7 web.default.svc.cluster.local",
        "fd00::1 a.default.vm.cluster.local",
    ]
