"""A virtio disk that finds no PCIe port is said to wait for one, before the edit is made."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.vm.verdict.summary import exit_status, plan_document

from ..cases import GONE, a_claim, a_spec, edited, judged, rulings, running

WAITS, PLUGGED = ("Live", "NoFreePort"), ("Live", "VolumeHotplug")


def adding(*names: str, bus: str = "virtio") -> dict[str, Any]:
    spec = a_spec()
    listed = [{"name": name, "disk": {"bus": bus}} for name in names]
    return {
        "volumes": [*spec["volumes"], *map(a_claim, names)],
        "domain.devices.disks": [*spec["domain"]["devices"]["disks"], *listed],
    }


ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, tuple[str, str]]]] = {
    "given a port for it, then it is live": (
        {"freePCIePorts": 1}, adding("a"), {"a": PLUGGED}),
    "given none, then it waits": ({"freePCIePorts": 0}, adding("a"), {"a": WAITS}),
    "given one for two, then the second waits": (
        {"freePCIePorts": 1}, adding("a", "b"), {"a": PLUGGED, "b": WAITS}),
    "given nobody has counted yet, then nothing is said": ({}, adding("a"), {"a": PLUGGED}),
    "given none and another bus, then it is live": (
        {"freePCIePorts": 0}, adding("a", bus="scsi"), {"a": PLUGGED}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "edit", "expected"), ROWS.values(), ids=ROWS)
def test_disks_on_ports(
    status: dict[str, Any], edit: dict[str, Any], expected: dict[str, tuple[str, str]]
) -> None:
    found = judged(a_spec(), edited(a_spec(), edit), **status)
    both = {f"{part}[{n}]": r for part in ("domain.devices.disks", "volumes")
            for n, r in expected.items()}  # fmt: skip
    assert rulings(found) == both
    waits = WAITS in expected.values()
    assert found.waits is waits
    assert exit_status(plan_document(found, "web", {})) == (4 if waits else 0)


def test_given_a_virtio_disk_goes_in_the_same_edit_then_its_port_is_taken() -> None:
    started = edited(a_spec(), {"domain.devices.disks.1.disk.bus": "virtio"})
    gone = edited(started, {"volumes.1": GONE, "domain.devices.disks.1": GONE})
    disk = {"name": "a", "disk": {"bus": "virtio"}}
    wanted = edited(gone, {"volumes.+": a_claim("a"), "domain.devices.disks.+": disk})
    ready = [{"name": "data", "phase": "Ready"}]
    found = judged(started, wanted, freePCIePorts=0, volumeStatus=ready)
    assert set(rulings(found).values()) == {PLUGGED}


def test_given_another_claim_for_a_virtio_disk_then_it_takes_its_own_port() -> None:
    started = edited(a_spec(), {"domain.devices.disks.1.disk.bus": "virtio"})
    wanted = edited(started, {"volumes.1": a_claim("data", "other")})
    ready = [{"name": "data", "phase": "Ready"}]
    found = judged(started, wanted, freePCIePorts=0, volumeStatus=ready)
    assert set(rulings(found).values()) == {PLUGGED}


def test_given_disks_that_keep_their_places_until_a_restart_then_they_neither_give_nor_take() -> (
    None
):
    started = edited(a_spec(), {"domain.devices.disks.1.disk.bus": "virtio"})
    coming = {
        "volumes.+": a_claim("a"),
        "domain.devices.disks.+": {"name": "a", "disk": {"bus": "virtio"}},
    }
    staying = edited(started, {"domain.devices.disks.1.disk.bus": "scsi", **coming})
    ready = [{"name": "data", "phase": "Ready"}]
    found = rulings(judged(started, staying, freePCIePorts=0, volumeStatus=ready))
    assert found["volumes[a]"] == WAITS

    fast = edited(a_spec(), {"domain.devices.disks.1.disk.bus": "virtio", **coming})
    found = rulings(judged(a_spec(), fast, freePCIePorts=1, volumeStatus=ready))
    assert found["volumes[a]"] == PLUGGED


def test_given_one_that_waits_already_then_it_comes_first() -> None:
    started = edited(a_spec(), {"domain.devices.disks.1.disk.bus": "virtio"})
    edit = {
        "volumes.+": a_claim("a"),
        "domain.devices.disks.+": {"name": "a", "disk": {"bus": "virtio"}},
    }
    waiting = running(started, freePCIePorts=1, volumeStatus=[{"name": "data", "phase": "Pending"}])
    found = judged(started, edited(started, edit), vmi=waiting)
    assert set(rulings(found).values()) == {WAITS}
