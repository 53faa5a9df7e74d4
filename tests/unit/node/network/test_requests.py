from typing import Any

from livevirt.node.network import requests
from livevirt.node.network.port import OpenPort
from livevirt.node.network.requests import HOST_ACCESS, Request
from livevirt.qemu.cmdline import argv
from livevirt.qemu.machine import FIRST_TAP, Cpu, Machine, Memory, Nic

MAC = "02:00:00:00:00:01"


def a_vmi(*interfaces: Any, networks: Any = None, **annotations: str) -> dict[str, Any]:
    named = [{"name": each["name"], "pod": {}} for each in interfaces]
    return {
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {
            "domain": {"devices": {"interfaces": list(interfaces)}},
            "networks": named if networks is None else networks,
        },
    }


def a_machine(*names: str) -> Machine:
    return Machine(
        name="default_web",
        uuid="5d307ca9-b3ef-428c-8861-06e72d69f223",
        accelerator="tcg",
        cpu=Cpu(model="max"),
        memory=Memory(boot=2**28, max=2**28),
        run_dir="/run/x",
        serial_log="/log",
        nics=tuple(Nic(id=f"net-{name}", mac=MAC[:-1] + str(n)) for n, name in enumerate(names)),
    )


def test_interfaces_on_the_pod_network_are_requested() -> None:
    vmi = a_vmi(
        {"name": "one", "masquerade": {}},
        {"name": "two", "bridge": {}},
        {"name": "three", "bridge": {}},
        networks=[
            {"name": "one", "pod": {}}, {"name": "two", "pod": {}},
            {"name": "three", "multus": {"networkName": "x"}},
        ],
    )  # fmt: skip
    found = requests.requested(vmi, a_machine("one", "two", "three"))
    assert [each.nic for each in found] == ["net-one", "net-two"]
    assert not any(each.host_access or each.only for each in found)


def test_ports_count_with_masquerade_only() -> None:
    ports = [{"port": 80}, {"port": 53, "protocol": "UDP"}]
    masquerade = a_vmi({"name": "one", "masquerade": {}, "ports": ports})
    (found,) = requests.requested(masquerade, a_machine("one"))
    assert found.only == (OpenPort("tcp", 80), OpenPort("udp", 53))
    bridge = a_vmi({"name": "one", "bridge": {}, "ports": ports})
    (found,) = requests.requested(bridge, a_machine("one"))
    assert found.only == ()


def test_the_annotation_must_be_true() -> None:
    interface = {"name": "one", "masquerade": {}}
    for value, expected in (("true", True), ("false", False), ("", False)):
        (found,) = requests.requested(a_vmi(interface, **{HOST_ACCESS: value}), a_machine("one"))
        assert found.host_access is expected


def test_cards_with_a_port_are_on_tap_devices_with_its_mtu() -> None:
    port = Request("net-two", MAC).port("t00", ("10.0.0.1", "fd00::1"), 1400)
    machine = requests.connected(a_machine("one", "two"), [port])
    one, two = machine.nics
    assert one.mode == "user"
    assert (two.mode, two.fd, two.mtu) == ("tap", FIRST_TAP, 1400)
    line = " ".join(argv(machine))
    assert '"type": "tap"' in line or '"type":"tap"' in line
    assert "host_mtu" in line
