"""virtctl's commands for volumes and discs, against a server whose node is only played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.volumes.volume_patch import FORCE_DETACH

from ..manifests import a_claim
from .served import Served, serving
from .vm_world import NAMESPACE, NODE, PlayedNode, World

pytestmark = pytest.mark.slow  # each command is a process

TEMPLATE = {
    "domain": {
        "memory": {"guest": "512Mi"},
        "devices": {
            "disks": [
                {"name": "root", "disk": {"bus": "virtio"}},
                {"name": "cd", "cdrom": {"bus": "sata"}},
            ]
        },
    },
    "volumes": [{"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}],
}


@pytest.fixture
async def served(world: World, node: PlayedNode, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(world, tmp_path) as server:
        for name in ("data", "disc", "other"):
            await world.owner.create(core.CLAIM, a_claim(name, "1Mi"), NAMESPACE)
        yield server


async def create(world: World, strategy: str = "Halted") -> None:
    await world.create_vm(strategy, template={"spec": TEMPLATE})
    if strategy != "Halted":
        await world.until(world.ready)


def spec(world: World) -> Object:
    found: Object = world.vm()["spec"]["template"]["spec"]
    return found


def volumes(world: World) -> dict[str, str]:
    return {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in spec(world)["volumes"]
        if each["name"] != "root"
    }


def mark(world: World) -> Any:
    return (world.vm()["metadata"].get("annotations") or {}).get(FORCE_DETACH)


async def tell(world: World, *entries: Object) -> None:
    """Say what a node would of an instance's volumes."""
    patch = {"status": {"volumeStatus": [*entries]}}
    await LocalClient(world.api, NODE).patch(kinds.VMI, "web", NAMESPACE, patch)


def an_entry(name: str, phase: str, claim: str) -> Object:
    info = {"claimName": claim}
    return {
        "name": name, "phase": phase, "target": "sda", "reason": "", "hotplugVolume": {},
        "persistentVolumeClaimInfo": info,
    }  # fmt: skip


async def test_a_volume_is_added_and_removed_in_upstreams_words(
    served: Served, world: World
) -> None:
    await create(world)
    said = "request to VM web for volume data\n"
    out = await served.succeed("virtctl", "addvolume", "web", "--volume-name=data", "--persist")
    assert out == f"Successfully submitted add volume {said}"
    assert volumes(world) == {"data": "data"}
    assert spec(world)["domain"]["devices"]["disks"][-1] == {
        "name": "data", "disk": {"bus": "scsi"}, "serial": "data",
    }  # fmt: skip
    out = await served.succeed("virtctl", "removevolume", "web", "--volume-name=data", "--wait")
    assert out == (
        f"Successfully submitted remove volume {said}"
        "VM web does not run; it starts without volume data\n"
    )
    assert spec(world) == TEMPLATE


async def test_flags_and_dry_run(served: Served, world: World) -> None:
    await create(world)
    flags = "--disk-name", "d", "--serial", "s", "--cache", "none", "--bus", "virtio"
    add = "virtctl", "addvolume", "web", "--volume-name", "data", *flags
    out = await served.succeed(*add, "--dry-run")
    assert out.startswith("Dry Run execution\n")
    assert volumes(world) == {}
    await served.succeed(*add)
    assert volumes(world) == {"d": "data"}
    assert spec(world)["domain"]["devices"]["disks"][-1] == {
        "name": "d", "disk": {"bus": "virtio"}, "serial": "s", "cache": "none",
    }  # fmt: skip
    await served.succeed("virtctl", "removevolume", "web", "--volume-name", "data", "--dry-run")
    assert volumes(world) == {"d": "data"}
    await served.succeed("virtctl", "removevolume", "web", "--volume-name", "data")
    assert volumes(world) == {}, "its claim names it"


async def test_what_cannot_be_is_told_on_one_line(served: Served, world: World) -> None:
    await create(world)
    for arguments, why in (
        (
            ("addvolume", "web", "--volume-name=none"),
            "error adding volume, Volume none is not a DataVolume or PersistentVolumeClaim; create"
            " one, for example with `livevirt volume import FILE --pvc none`\n",
        ),
        (
            ("removevolume", "web", "--volume-name=root"),
            "error removing volume, Operation cannot be fulfilled on virtualmachine.kubevirt.io"
            ' "web": Unable to remove volume [root] because it is not hotpluggable\n',
        ),
        (
            ("cdrom", "inject", "web", "root", "--volume-name=disc"),
            "error injecting an image, the VM has no CD-ROM drive root; it has cd\n",
        ),
        (
            ("cdrom", "eject", "web", "cd"),
            "error ejecting an image, the CD-ROM drive cd is empty\n",
        ),
    ):
        ran = await served.virtctl(*arguments)
        assert (ran.status, ran.err) == (1, why)
    assert spec(world) == TEMPLATE


async def test_a_wait_lasts_until_the_guest_has_the_volume(served: Served, world: World) -> None:
    await create(world, "Always")
    process = await served.start("virtctl", "addvolume", "web", "--volume-name=data", "--wait")
    await world.until(lambda: len(world.vmi()["spec"]["volumes"]) == 2)
    await tell(world, an_entry("data", "Ready", "data"))
    out, err = await process.communicate()
    assert process.returncode == 0, err
    assert out.decode().splitlines()[1:] == ["VM web has volume data as sda"]
    assert b"Warning: live: " in err


async def test_a_volume_the_guest_holds_is_forced_out_and_the_mark_goes(
    served: Served, world: World
) -> None:
    await create(world, "Always")
    await served.succeed("virtctl", "addvolume", "web", "--volume-name=data")
    await world.until(lambda: len(world.vmi()["spec"]["volumes"]) == 2)
    await served.succeed("virtctl", "removevolume", "web", "--volume-name=data")
    await world.until(lambda: len(world.vmi()["spec"]["volumes"]) == 1)
    await tell(world, an_entry("data", "Detaching", "data"))
    assert mark(world) is None
    process = await served.start("virtctl", "removevolume", "web", "--volume-name=data", "--force")
    await world.until(lambda: mark(world) == "data")
    await tell(world)
    out, err = await process.communicate()
    assert process.returncode == 0, err
    assert out.decode().splitlines()[1:] == ["volume data detached from VM web"]
    assert mark(world) is None


async def test_discs_are_injected_swapped_and_ejected(served: Served, world: World) -> None:
    await create(world)
    inject = "virtctl", "cdrom", "inject", "web", "cd", "--volume-name"
    assert await served.succeed(*inject, "disc") == (
        "VM web was scheduled to have disc in drive cd\n"
    )
    assert volumes(world) == {"cd": "disc"}
    assert await served.succeed(*inject, "other", "--wait") == (
        "VM web was scheduled to have other in drive cd\n"
        "VM web does not run; it starts with volume cd\n"
    )
    assert volumes(world) == {"cd": "other"}
    out = await served.succeed("virtctl", "cdrom", "eject", "web", "cd", "--force")
    assert out == (
        "VM web was scheduled to have drive cd empty\n"
        "VM web does not run; it starts without volume cd\n"
    )
    assert spec(world) == TEMPLATE
    assert mark(world) is None, "force is for once"


async def test_a_disc_for_a_drive_that_waits_for_a_restart_waits_too(
    served: Served, world: World
) -> None:
    await create(world, "Always")
    disks = [*spec(world)["domain"]["devices"]["disks"], {"name": "dvd", "cdrom": {"bus": "sata"}}]
    edit = {"domain": {"devices": {"disks": disks}}}
    await world.patch_vm({"spec": {"template": {"spec": edit}}})
    ran = await served.virtctl("cdrom", "inject", "web", "dvd", "--volume-name=disc", "--wait")
    assert ran.status == 2, ran.err
    assert "Warning: at the next restart only: " in ran.err
    assert "VM web needs a restart for volume dvd: " in ran.out
