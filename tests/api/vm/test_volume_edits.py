"""Volumes of a running VM that are edited: what its instance gets, and when."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.api import registry

from .edits import configure, required, settled, template, waiting
from .vm_world import NAMESPACE, PlayedNode, World

FORCE = "livevirt.io/force-detach"
ROOT = {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}
OPEN = ["VMLiveUpdateFeatures", "HotplugVolumes", "InjectEjectCDROM"]


def on_claim(name: str, claim: str = "") -> Any:
    source = {"claimName": claim or name, "hotpluggable": True}
    return {"name": name, "persistentVolumeClaim": source}


@pytest.fixture
async def running(world: World, node: PlayedNode) -> World:
    disks = [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "cd", "cdrom": {"bus": "sata"}}]
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}
    spec = {"domain": domain, "volumes": [ROOT]}
    await world.create_vm(template={"spec": spec})
    await world.until(world.ready)
    return world


def has(world: World) -> dict[str, str]:
    """Return the claims that the instance has, by volume."""
    return {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in world.vmi()["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    }


def disks(world: World) -> list[str]:
    return [each["name"] for each in world.vmi()["spec"]["domain"]["devices"]["disks"]]


@pytest.mark.parametrize("strategy", ["LiveUpdate", "Stage"])
async def test_volumes_come_change_and_go_under_every_strategy(
    running: World, strategy: str
) -> None:
    await configure(running, vmRolloutStrategy=strategy)
    await running.patch_vm(template(volumes=[ROOT, on_claim("data"), on_claim("cd", "iso")]))
    await running.until(lambda: has(running) == {"data": "data", "cd": "iso"})
    assert disks(running) == ["root", "cd", "data"]
    await running.patch_vm(template(volumes=[on_claim("data", "other"), ROOT]))
    await running.until(lambda: has(running) == {"data": "other"})
    await running.patch_vm(template(volumes=[ROOT]))
    await running.until(lambda: has(running) == {})
    assert disks(running) == ["root", "cd"]
    await settled(running)
    assert not required(running)


async def test_given_another_field_waits_then_volumes_do_not(running: World) -> None:
    await running.patch_vm(template(hostname="other", volumes=[ROOT, on_claim("one")]))
    await running.until(lambda: has(running) == {"one": "one"} and required(running))
    assert list(waiting(running)) == ["hostname"]
    await running.patch_vm(template(volumes=[ROOT, on_claim("two")]))
    await running.until(lambda: has(running) == {"two": "two"})
    assert "hostname" not in running.vmi()["spec"]


async def test_given_a_gate_is_closed_then_volumes_wait_and_opening_it_lets_them_through(
    running: World,
) -> None:
    await running.patch_vm(template(volumes=[ROOT, on_claim("first")]))
    await running.until(lambda: has(running) == {"first": "first"})
    await configure(running, developerConfiguration={"featureGates": [OPEN[0], OPEN[2]]})
    await running.patch_vm(template(volumes=[ROOT, on_claim("first"), on_claim("second")]))
    await running.until(lambda: required(running))
    assert "FeatureGateMissing" in required(running)["message"]
    assert has(running) == {"first": "first"}  # what is attached stays
    await configure(running, developerConfiguration={"featureGates": OPEN})
    await running.until(lambda: has(running) == {"first": "first", "second": "second"})
    await running.until(lambda: not required(running))


def forced(obj: Any) -> str | None:
    found: str | None = (obj["metadata"].get("annotations") or {}).get(FORCE)
    return found


async def tell(world: World, **claims: str) -> None:
    """Let the instance say that its guest has these claims, and is letting go of those with a !"""
    told = [
        {
            "name": name,
            "phase": "Detaching" if claim.endswith("!") else "Ready",
            "target": "sdb",
            "hotplugVolume": {},
            "persistentVolumeClaimInfo": {"claimName": claim.rstrip("!")},
        }
        for name, claim in claims.items()
    ]
    patch = {"status": {"volumeStatus": told}}
    await world.components.patch(registry.VMI, "web", NAMESPACE, patch)


async def force(world: World, names: str | None) -> None:
    await world.patch_vm({"metadata": {"annotations": {FORCE: names}}})


async def test_what_is_to_be_forced_is_passed_on_and_taken_back_by_its_owner(
    running: World,
) -> None:
    await running.patch_vm(template(volumes=[ROOT, on_claim("data"), on_claim("cd", "iso")]))
    await running.until(lambda: set(has(running)) == {"data", "cd"})
    for wanted in ("data", "data,cd", None):
        await force(running, wanted)
        await running.until(lambda wanted=wanted: forced(running.vmi()) == wanted)
        assert forced(running.vm()) == wanted


async def test_force_is_for_one_time(running: World) -> None:
    await running.patch_vm(template(volumes=[ROOT, on_claim("data"), on_claim("cd", "red")]))
    await running.until(lambda: set(has(running)) == {"data", "cd"})
    await tell(running, data="data", cd="red")
    await running.patch_vm(template(volumes=[ROOT, on_claim("cd", "blue")]))
    await running.until(lambda: has(running) == {"cd": "blue"})
    await tell(running, data="data!", cd="red!")
    await force(running, "data, cd")
    await running.until(lambda: forced(running.vmi()) == "data=data,cd=red")
    assert forced(running.vm()) == "data, cd"
    await tell(running, cd="red!")
    await running.until(lambda: forced(running.vm()) == "cd")
    await tell(running, cd="blue")
    await running.until(lambda: forced(running.vm()) is None and forced(running.vmi()) is None)


async def test_given_no_such_volume_then_force_is_taken_back_at_once(running: World) -> None:
    await force(running, "nothing")
    await running.until(lambda: forced(running.vm()) is None and forced(running.vmi()) is None)
