"""The machine type of a VM stays what it was at its first start; only the node is played."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

from .vm_world import PlayedNode, World

pytestmark = pytest.mark.both

KUBEVIRT = (kinds.KUBEVIRT, "kubevirt", "kubevirt")


def named(type_: str | None) -> Object:
    return {"spec": {"template": {"spec": {"domain": {"machine": {"type": type_}}}}}}


async def set_default(world: World, type_: str) -> None:
    settings = {"architectureConfiguration": {"amd64": {"machineType": type_}}}
    await world.owner.patch(*KUBEVIRT, {"spec": {"configuration": settings}})


async def machine_after_restart(world: World, node: PlayedNode) -> str:
    """Let the guest end and the next one run; return the type it was made with."""
    first = world.vmi()["metadata"]["uid"]
    await node.power_off()

    def again() -> bool:
        found = world.vmi().get("metadata") or {}
        return bool(found.get("uid") not in (None, first) and world.ready())

    await world.until(again)
    return str(world.vmi()["spec"]["domain"]["machine"]["type"])


async def test_given_a_started_vm_when_the_cluster_default_changes_then_it_keeps_its_type(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    assert world.vmi()["spec"]["domain"]["machine"]["type"] == "q35"
    assert world.vm()["status"]["machine"] == {"type": "pc-q35-7.2"}
    await set_default(world, "pc-q35-6.2")
    assert await machine_after_restart(world, node) == "pc-q35-7.2"
    assert "machine" not in world.vm()["spec"]["template"]["spec"]["domain"]
    await world.create_vm(name="later")
    await world.until(lambda: world.ready("later"))
    assert world.vm("later")["status"]["machine"] == {"type": "pc-q35-6.2"}


async def test_given_a_started_vm_when_qemu_is_a_newer_one_then_it_keeps_its_type(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm("Halted")
    await world.patch_vm(named("q35"))
    await world.patch_vm({"spec": {"runStrategy": "Always"}})
    await world.until(world.ready)
    node.newest_machine = "pc-q35-9.9"
    assert await machine_after_restart(world, node) == "pc-q35-7.2"


async def test_given_a_started_vm_when_its_owner_names_a_type_then_it_gets_and_keeps_that(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    await world.patch_vm(named("pc-q35-6.2"))
    assert await machine_after_restart(world, node) == "pc-q35-6.2"
    assert world.vm()["status"]["machine"] == {"type": "pc-q35-6.2"}
    await world.patch_vm(named(None))
    assert await machine_after_restart(world, node) == "pc-q35-6.2"
