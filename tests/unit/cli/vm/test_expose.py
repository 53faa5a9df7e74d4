"""The Service that `virtctl expose` creates."""

from __future__ import annotations

from typing import Any

from livevirt.cli.vm import expose

FLAGS: dict[str, Any] = {
    "type_": "ClusterIP", "cluster_ip": "", "ip_family": None, "ip_family_policy": None,
    "labels": "",
}  # fmt: skip
SELECTOR = {"vmi.kubevirt.io/id": "web"}


def test_what_is_not_asked_for_is_left_to_the_server() -> None:
    made = expose.service("web", SELECTOR, [{"port": 80, "protocol": "TCP"}], FLAGS)
    assert made["metadata"] == {"name": "web"}
    assert made["spec"] == {
        "type": "ClusterIP", "selector": SELECTOR, "ports": [{"port": 80, "protocol": "TCP"}],
    }  # fmt: skip


def test_every_flag_has_its_field() -> None:
    flags = FLAGS | {
        "type_": "NodePort", "cluster_ip": "10.0.0.1", "ip_family": "IPv4,IPv6",
        "ip_family_policy": "preferdualstack", "labels": "a=b,c=d",
    }  # fmt: skip
    made = expose.service("web", SELECTOR, [], flags)
    assert made["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert made["spec"]["clusterIP"] == "10.0.0.1"
    assert made["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert made["spec"]["ipFamilyPolicy"] == "PreferDualStack"
