from ipaddress import IPv4Network, IPv6Network
from typing import Any

from livevirt.kube.controllers import services
from livevirt.kube.controllers.services import NODE_PORTS, Ranges

RANGES = Ranges(IPv4Network("10.1.32.0/20"), IPv6Network("fd00:0:0:2::/112"))


def a_service(name: str = "web", uid: str = "1", **spec: Any) -> dict[str, Any]:
    filled = {
        "type": "ClusterIP",
        "selector": {"app": "web"},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
    }
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": filled | spec,
    }


def a_pod(name: str, *ips: str, ready: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
            **more.pop("metadata", {}),
        },
        "spec": {"nodeName": "node01", **more.pop("spec", {})},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": ip} for ip in ips],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            **more,
        },
    }  # fmt: skip


def endpoints(service: dict[str, Any], *pods: dict[str, Any], at: int = 0) -> dict[str, bool]:
    found = services.slices(service, pods)[at]["endpoints"]
    return {each["addresses"][0]: each["conditions"]["ready"] for each in found}


def test_a_service_gets_an_address_of_the_range_that_no_other_has() -> None:
    found = services.addressed(a_service(), [], RANGES)
    assert found is not None
    assert IPv4Network(found["clusterIP"]).subnet_of(RANGES.v4)
    assert found["clusterIPs"] == [found["clusterIP"]]
    assert found["ipFamilies"] == ["IPv4"]
    taken = a_service("other", clusterIPs=found["clusterIPs"])
    other = services.addressed(a_service(), [taken], RANGES)
    assert other is not None
    assert other["clusterIP"] != found["clusterIP"]


def test_a_dual_stack_service_gets_both_families() -> None:
    found = services.addressed(a_service(ipFamilyPolicy="PreferDualStack"), [], RANGES)
    assert found is not None
    assert found["ipFamilies"] == ["IPv4", "IPv6"]
    assert IPv6Network(found["clusterIPs"][1]).subnet_of(RANGES.v6)


def test_a_service_that_has_everything_is_left_alone() -> None:
    service = a_service()
    found = services.addressed(service, [], RANGES)
    assert found is not None
    service["spec"] |= found
    assert services.addressed(service, [], RANGES) is None


def test_a_headless_service_and_an_external_name_get_no_address() -> None:
    found = services.addressed(a_service(clusterIP="None", clusterIPs=["None"]), [], RANGES)
    assert found is not None
    assert "clusterIP" not in found
    assert services.addressed(a_service(type="ExternalName"), [], RANGES) is None


def test_node_ports_are_free_ones_and_those_given_stay() -> None:
    ports = [
        {"port": 80, "protocol": "TCP", "targetPort": 80},
        {"port": 81, "protocol": "TCP", "targetPort": 81, "nodePort": 30123},
    ]
    found = services.addressed(a_service(type="NodePort", ports=ports), [], RANGES)
    assert found is not None
    first, second = (each["nodePort"] for each in found["ports"])
    assert first in NODE_PORTS
    assert second == 30123
    other = a_service("other", uid="1", type="NodePort", ports=found["ports"])
    again = services.addressed(a_service(type="NodePort", ports=ports[:1]), [other], RANGES)
    assert again is not None
    assert again["ports"][0]["nodePort"] not in (first, second)


def test_endpoints_follow_readiness() -> None:
    pods = (a_pod("a", "10.0.0.1"), a_pod("b", "10.0.0.2", ready=False))
    assert endpoints(a_service(), *pods) == {"10.0.0.1": True, "10.0.0.2": False}
    early = a_service(publishNotReadyAddresses=True)
    assert endpoints(early, *pods) == {"10.0.0.1": True, "10.0.0.2": True}


def test_a_pod_that_is_over_elsewhere_or_on_the_loopback_is_no_endpoint() -> None:
    over = a_pod("a", "10.0.0.1", phase="Succeeded")
    local = a_pod("b", "127.0.0.1")
    other = a_pod("c", "10.0.0.3", metadata={"labels": {"app": "db"}})
    assert endpoints(a_service(), over, local, other) == {}


def test_a_pod_that_is_being_deleted_gets_no_more_connections() -> None:
    pod = a_pod("a", "10.0.0.1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert endpoints(a_service(), pod) == {"10.0.0.1": False}


def test_two_pods_of_a_migrating_guest_are_one_endpoint() -> None:
    source = a_pod("a", "10.0.0.1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert endpoints(a_service(), source, a_pod("b", "10.0.0.1")) == {"10.0.0.1": True}
    assert endpoints(a_service(), a_pod("a", "10.0.0.1"), a_pod("b", "10.0.0.1", ready=False)) == {
        "10.0.0.1": True
    }


def test_each_family_has_a_slice() -> None:
    service = a_service(ipFamilies=["IPv4", "IPv6"])
    pod = a_pod("a", "10.0.0.1", "fd00::1")
    v4, v6 = services.slices(service, [pod])
    assert (v4["addressType"], v6["addressType"]) == ("IPv4", "IPv6")
    assert v6["endpoints"][0]["addresses"] == ["fd00::1"]
    assert v4["ports"] == [{"name": "", "protocol": "TCP", "port": 8080}]
    assert v4["metadata"]["labels"][services.SERVICE_NAME] == "web"


def test_a_service_without_selector_has_no_slices_of_ours() -> None:
    assert services.slices(a_service(selector=None), [a_pod("a", "10.0.0.1")]) == []


def test_a_guest_with_a_subdomain_has_a_name_below_its_service() -> None:
    pod = a_pod("a", "10.0.0.1", spec={"hostname": "one", "subdomain": "web"})
    (found,) = services.slices(a_service(), [pod])
    assert found["endpoints"][0]["hostname"] == "one"
