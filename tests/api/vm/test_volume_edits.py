"""Volumes of a running VM that are edited: what its instance gets, and when."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects import core
from livevirt.vm import kinds

from ..manifests import a_quota
from .edits import configure, plan, required, settled, template, waiting
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


async def test_given_a_disabled_feature_gate_then_volumes_wait_until_it_is_enabled(
    running: World,
) -> None:
    await running.patch_vm(template(volumes=[ROOT, on_claim("first")]))
    await running.until(lambda: has(running) == {"first": "first"})
    await configure(running, developerConfiguration={"featureGates": [OPEN[0], OPEN[2]]})
    await running.patch_vm(template(volumes=[ROOT, on_claim("first"), on_claim("second")]))
    await running.until(lambda: required(running))
    assert set(waiting(running).values()) == {"FeatureGateMissing"}
    assert has(running) == {"first": "first"}  # what is attached stays
    await configure(running, developerConfiguration={"featureGates": OPEN})
    await running.until(lambda: has(running) == {"first": "first", "second": "second"})
    await running.until(lambda: not required(running))


async def test_given_the_gate_of_discs_is_closed_then_one_waits_and_opening_it_lets_it_in(
    running: World,
) -> None:
    await configure(running, developerConfiguration={"featureGates": OPEN[:2]})
    await running.patch_vm(template(volumes=[ROOT, on_claim("data"), on_claim("cd", "iso")]))
    await running.until(lambda: waiting(running) == {"volumes[cd]": "FeatureGateMissing"})
    assert "InjectEjectCDROM" in (await plan(running))["changes"][0]["message"]
    await running.until(lambda: has(running) == {"data": "data"})  # the other gate is open
    await configure(running, developerConfiguration={"featureGates": OPEN})
    await running.until(lambda: has(running) == {"data": "data", "cd": "iso"})
    await running.until(lambda: not required(running))
    assert disks(running) == ["root", "cd", "data"]


PREFERRED = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineClusterPreference",
    "metadata": {"name": "fast"},
    "spec": {"devices": {"preferredDiskBus": "virtio"}},
}
SILENT: dict[str, list[Any]] = {
    "no disk": [],
    "a disk without a bus": [{"name": "data", "disk": {}}],
    "a disk whose bus is empty": [{"name": "data", "disk": {"bus": ""}}],
}


@pytest.mark.parametrize("listed", SILENT.values(), ids=SILENT)
async def test_the_bus_that_a_hot_disk_leaves_open_is_the_preferred_one(
    world: World, node: PlayedNode, listed: list[Any]
) -> None:
    await world.owner.create(kinds.CLUSTER_PREFERENCE, PREFERRED)
    root = {"name": "root", "disk": {"bus": "scsi"}}
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": [root]}}
    spec = {"domain": domain, "volumes": [ROOT]}
    await world.create_vm(template={"spec": spec}, preference={"name": "fast"})
    await world.until(world.ready)
    edited = {
        "volumes": [ROOT, on_claim("data")],
        "domain": {"devices": {"disks": [root, *listed]}},
    }
    await world.patch_vm(template(**edited))
    await world.until(lambda: has(world) == {"data": "data"})
    found = world.vmi()["spec"]["domain"]["devices"]["disks"]
    assert [each["disk"]["bus"] for each in found] == ["scsi", "virtio"]
    await settled(world)
    assert not required(world)


# ---------------------------------------------------------------- a DataVolume that cannot be made


NO_MORE = a_quota("none", **{"count/datavolumes.cdi.kubevirt.io": "0"})
BLANK = {
    "metadata": {"name": "more"},
    "spec": {
        "source": {"blank": {}},
        "storage": {"resources": {"requests": {"storage": "1Gi"}}},
    },
}


@pytest.fixture
async def stuck(running: World) -> World:
    """A VM with a DataVolume that the quota does not allow."""
    await running.owner.create(core.QUOTA, NO_MORE, NAMESPACE)
    more = {"name": "more", "dataVolume": {"name": "more", "hotpluggable": True}}
    patch = template(volumes=[ROOT, more])
    patch["spec"]["dataVolumeTemplates"] = [BLANK]
    await running.patch_vm(patch)
    await running.until(lambda: refused(running))
    return running


def refused(world: World) -> list[str]:
    events = world.read.list(core.EVENT, NAMESPACE)
    return [each["message"] for each in events if each["reason"] == "FailedDataVolumeCreate"]


@pytest.mark.wording
async def test_given_a_data_volume_cannot_be_made_then_an_event_says_why(stuck: World) -> None:
    assert "exceeded quota: none" in refused(stuck)[0]


async def test_given_a_data_volume_cannot_be_made_then_live_changes_go_on(stuck: World) -> None:
    await stuck.until(lambda: "more" in disks(stuck))
    await stuck.patch_vm(template(nodeSelector={"kubernetes.io/arch": "amd64"}))
    await stuck.until(lambda: "nodeSelector" in stuck.vmi()["spec"])
    await stuck.owner.delete(core.QUOTA, "none", NAMESPACE)
    await stuck.until(lambda: stuck.get(kinds.DATA_VOLUME, "more"))


async def test_given_a_data_volume_cannot_be_made_then_the_guest_can_be_stopped(
    stuck: World,
) -> None:
    await stuck.patch_vm({"spec": {"runStrategy": "Halted"}})
    await stuck.until(lambda: not stuck.vmi())


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
    await world.components.patch(kinds.VMI, "web", NAMESPACE, patch)


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
