from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings as configs
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import defaults, disks

UID = "0c6e8f0e-6b0e-4b57-8b3f-1d2c3b4a5f60"


def a_config(**settings: Any) -> Config:
    """The cluster as `livevirt up` makes it, with these settings on top."""
    base: Object = {
        "developerConfiguration": {"featureGates": ["VMLiveUpdateFeatures"]},
        "vmRolloutStrategy": "LiveUpdate",
    }
    return configs.read({"spec": {"configuration": {**base, **settings}}})


def live(**settings: Any) -> Config:
    return a_config(liveUpdateConfiguration=settings)


def filled(config: Config | None = None, **domain: Any) -> Object:
    spec: Object = {"domain": {"devices": {}, **domain}}
    defaults.fill(spec, UID, config or a_config())
    found: Object = spec["domain"]
    return found


# ---------------------------------------------------------------- CPUs

LIMITED = {"resources": {"limits": {"cpu": "2500m"}, "requests": {"cpu": "7"}}}
TOPOLOGIES: dict[str, tuple[Object, tuple[int, int, int]]] = {
    "nothing: one socket": ({}, (1, 1, 1)),
    "a limit: a socket for each CPU, rounded up": (LIMITED, (3, 1, 1)),
    "a request": ({"resources": {"requests": {"cpu": "1200m"}}}, (2, 1, 1)),
    "a request of nothing": ({"resources": {"requests": {"cpu": "0"}}}, (1, 1, 1)),
    "cores only": ({"cpu": {"cores": 6}}, (1, 6, 1)),
    "a topology wins over resources": ({"cpu": {"sockets": 2}, **LIMITED}, (2, 1, 1)),
    "null is nothing": ({"cpu": None, "resources": {"limits": None}}, (1, 1, 1)),
}


@pytest.mark.parametrize(("domain", "topology"), TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_topology(domain: Object, topology: tuple[int, int, int]) -> None:
    cpu = filled(**domain)["cpu"]
    assert (cpu["sockets"], cpu["cores"], cpu["threads"]) == topology


MAX_SOCKETS: dict[str, tuple[Object, Config, int | None]] = {
    "four times the sockets": ({"sockets": 2}, a_config(), 8),
    "four by default": ({}, a_config(), 4),
    "at most what every QEMU numbers": ({"sockets": 64}, a_config(), 255),
    "nor what only KVM does": ({"sockets": 73}, a_config(), 255),
    "three cores take the numbers of four": ({"sockets": 21, "cores": 3}, a_config(), 63),
    "and three threads": ({"sockets": 16, "cores": 2, "threads": 3}, a_config(), 31),
    "never below what is there": ({"sockets": 200, "cores": 4}, a_config(), 200),
    "a cluster's maximum that is too large": ({"cores": 8}, live(maxCpuSockets=64), 31),
    "the cluster's maximum": ({"sockets": 2}, live(maxCpuSockets=6), 6),
    "a cluster's maximum that is too small": ({"sockets": 3}, live(maxCpuSockets=2), 3),
    "the owner's own": ({"sockets": 2, "maxSockets": 3}, live(maxCpuSockets=6), 3),
    "another ratio": ({"sockets": 2}, live(maxHotplugRatio=2), 4),
    "no ratio is the usual one": ({"sockets": 2}, live(maxHotplugRatio=0), 8),
    "cores only can grow too": ({"cores": 6}, a_config(), 4),
    "none without live updates": ({}, a_config(vmRolloutStrategy="Stage"), None),
    "none without the gate": ({}, a_config(developerConfiguration={}), None),
}


@pytest.mark.parametrize(("cpu", "config", "most"), MAX_SOCKETS.values(), ids=MAX_SOCKETS)
def test_max_sockets(cpu: Object, config: Config, most: int | None) -> None:
    assert filled(config, cpu=cpu)["cpu"].get("maxSockets") == most


# ---------------------------------------------------------------- memory

GUEST: dict[str, tuple[Object, str | None]] = {
    "as written": ({"memory": {"guest": "512Mi"}}, "512Mi"),
    "as requested": ({"resources": {"requests": {"memory": "1Gi"}}}, "1Gi"),
    "as limited": ({"resources": {"limits": {"memory": "2Gi"}}}, "2Gi"),
    "one huge page": ({"memory": {"hugepages": {"pageSize": "2Mi"}}}, "2Mi"),
    "a number": ({"memory": {"guest": 134217728}}, 134217728),  # type: ignore[dict-item]
    "nothing": ({}, None),
}


@pytest.mark.parametrize(("domain", "guest"), GUEST.values(), ids=GUEST)
def test_guest_memory(domain: Object, guest: str | None) -> None:
    assert (filled(**domain).get("memory") or {}).get("guest") == guest


MAX_GUEST: dict[str, tuple[Object, Config, str | None]] = {
    "four times the guest": ({"memory": {"guest": "1Gi"}}, a_config(), "4Gi"),
    "small guests grow too": ({"memory": {"guest": "512Mi"}}, a_config(), "2Gi"),
    "the cluster's maximum": ({"memory": {"guest": "1Gi"}}, live(maxGuest="3Gi"), "3Gi"),
    "one below the guest": ({"memory": {"guest": "4Gi"}}, live(maxGuest="3Gi"), None),
    "an odd size": ({"memory": {"guest": "1025Ki"}}, a_config(), None),
    "the owner's own": ({"memory": {"guest": "1Gi", "maxGuest": "2Gi"}}, a_config(), "2Gi"),
    "not for realtime": (
        {"memory": {"guest": "1Gi"}, "cpu": {"realtime": {}}}, a_config(), None,
    ),
    "not encrypted": ({"memory": {"guest": "1Gi"}, "launchSecurity": {}}, a_config(), None),
    "none without live updates": (
        {"memory": {"guest": "1Gi"}}, a_config(vmRolloutStrategy="Stage"), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("domain", "config", "most"), MAX_GUEST.values(), ids=MAX_GUEST)
def test_max_guest(domain: Object, config: Config, most: str | None) -> None:
    assert filled(config, **domain)["memory"].get("maxGuest") == most


# ---------------------------------------------------------------- the rest


def test_an_empty_spec_becomes_a_whole_machine() -> None:
    spec: Object = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
    defaults.fill(spec, UID, a_config())
    mac = defaults.mac_address(UID, "default")
    assert spec == {
        "architecture": "amd64",
        "terminationGracePeriodSeconds": 30,
        "evictionStrategy": "None",
        "networks": [{"name": "default", "pod": {}}],
        "domain": {
            "cpu": {
                "sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4, "model": "host-model",
            },
            "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
            "machine": {"type": "q35"},
            "features": {"acpi": {"enabled": True}},
            "firmware": {"uuid": defaults.firmware_uuid(UID)},
            "devices": {
                "interfaces": [
                    {"name": "default", "masquerade": {}, "model": "virtio", "macAddress": mac}
                ]
            },
        },
    }  # fmt: skip


def test_disks_without_a_bus_are_on_sata_and_volumes_without_a_disk_get_one() -> None:
    devices = {"disks": [{"name": "a", "cdrom": {}}, {"name": "b", "disk": {"bus": "virtio"}}]}
    spec: Object = {
        "domain": {"devices": devices},
        "volumes": [{"name": n, "emptyDisk": {"capacity": "1Gi"}} for n in "abc"],
    }
    disks.add_missing(spec)
    defaults.fill(spec, UID, a_config())
    assert spec["domain"]["devices"]["disks"] == [
        {"name": "a", "cdrom": {"bus": "sata"}},
        {"name": "b", "disk": {"bus": "virtio"}},
        {"name": "c", "disk": {"bus": "sata"}},
    ]


def test_no_interface_where_none_is_wanted() -> None:
    domain = filled(devices={"autoattachPodInterface": False})
    assert "interfaces" not in domain["devices"]


def test_identity_is_the_same_at_every_start_and_differs_between_guests() -> None:
    one, other = (defaults.mac_address(UID, name) for name in ("a", "b"))
    assert one != other
    assert one == defaults.mac_address(UID, "a")
    assert int(one[:2], 16) & 0b11 == 0b10, "locally administered and for one receiver"
    assert defaults.firmware_uuid(UID) != defaults.firmware_uuid(UID[::-1])


_domains = st.fixed_dictionaries(
    {"devices": st.just({})},
    optional={
        "cpu": st.fixed_dictionaries(
            {},
            optional={
                "sockets": st.integers(0, 64),
                "cores": st.integers(0, 64),
                "threads": st.integers(0, 8),
                "maxSockets": st.integers(0, 600),
            },
        ),
        "memory": st.fixed_dictionaries(
            {}, optional={"guest": st.integers(1, 4096).map(lambda n: f"{n}Mi")}
        ),
    },
)


@given(_domains)
def test_filling_in_twice_changes_nothing_more_and_what_is_written_stays(domain: Object) -> None:
    spec: Object = {"domain": copy.deepcopy(domain)}
    defaults.fill(spec, UID, a_config())
    once = copy.deepcopy(spec)
    defaults.fill(spec, UID, a_config())
    assert spec == once
    for part in ("cpu", "memory"):
        for name, value in (domain.get(part) or {}).items():
            assert value in (0, spec["domain"][part][name])


@given(_domains)
def test_a_computed_maximum_is_never_below_what_the_guest_starts_with(domain: Object) -> None:
    spec: Object = {"domain": copy.deepcopy(domain)}
    given_maximum = (domain.get("cpu") or {}).get("maxSockets")
    defaults.fill(spec, UID, a_config())
    cpu, memory = spec["domain"]["cpu"], spec["domain"].get("memory") or {}
    assert given_maximum or cpu["maxSockets"] >= cpu["sockets"] >= 1
    if "maxGuest" in memory:
        assert parse(memory["maxGuest"]) >= parse(memory["guest"])


# ---------------------------------------------------------------- settings


def test_what_is_recorded_in_an_instance_is_read_back() -> None:
    config = a_config(
        cpuModel="Haswell",
        liveUpdateConfiguration={"maxGuest": "8Gi"},
        developerConfiguration={"cpuAllocationRatio": 5, "memoryOvercommit": 150},
    )
    annotations = {configs.RECORDED: config.defaults.recorded()}
    assert configs.recorded({"metadata": {"annotations": annotations}}) == config.defaults


def test_an_instance_without_a_record_has_the_usual_defaults() -> None:
    assert configs.recorded({"metadata": {}}) == configs.read(None).defaults


GATES: dict[str, tuple[Object, str, bool]] = {
    "named": ({"featureGates": ["HotplugVolumes"]}, "HotplugVolumes", True),
    "not named": ({}, "HotplugVolumes", False),
    "KubeVirt's name stands for both": (
        {"featureGates": ["DeclarativeHotplugVolumes"]}, "InjectEjectCDROM", True,
    ),
    "on by default": ({}, "InPlaceHotplug", True),
    "switched off": ({"disabledFeatureGates": ["InPlaceHotplug"]}, "InPlaceHotplug", False),
    "live updates need theirs": ({}, "VMLiveUpdateFeatures", False),
}  # fmt: skip


@pytest.mark.parametrize(("developer", "gate", "on"), GATES.values(), ids=GATES)
def test_gates(developer: Object, gate: str, on: bool) -> None:
    assert a_config(developerConfiguration=developer).enabled(gate) is on
