"""Volumes of a running VM that get another claim and keep their content: who is told what, when."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from livevirt.errors import Conflict
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import ActionPath, Object
from livevirt.vm import kinds
from livevirt.vm.subresources.router import Actions

from ..manifests import a_claim
from .edits import configure, edit, plan, required, template, waiting
from .vm_world import ADMIN, NAMESPACE, NODE, PlayedNode, World, now

ROOT = {"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}


def of(claim: str) -> Object:
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def to(claim: str) -> Object:
    """Return the edit that gives the volume another claim."""
    return template(volumes=[ROOT, of(claim)])


class Played:
    """What the node says of copies."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._client = LocalClient(world.api, NODE)

    async def says(self, phase: str) -> None:
        """Let the node say where the copy stands; nothing of it any more once it is done."""
        while True:
            vmi = self.world.vmi()
            entries = [{**each, "phase": phase} for each in vmi["status"]["migratedVolumes"]]
            status: Object = {"migratedVolumes": entries if phase else None}
            version = {"resourceVersion": vmi["metadata"]["resourceVersion"]}
            with contextlib.suppress(Conflict):
                await self._client.patch(
                    kinds.VMI, "web", NAMESPACE, {"metadata": version, "status": status}
                )
                return

    async def cannot(self, reason: str) -> None:
        """Let the node say why nothing is copied."""
        while True:
            vmi = self.world.vmi()
            told: Any = {"type": "VolumesChange", "status": "False", "reason": reason}
            listed = conditions.with_condition(vmi["status"]["conditions"], told, now())
            version = {"resourceVersion": vmi["metadata"]["resourceVersion"]}
            with contextlib.suppress(Conflict):
                await self._client.patch(
                    kinds.VMI, "web", NAMESPACE,
                    {"metadata": version, "status": {"conditions": listed}},
                )  # fmt: skip
                return


@pytest.fixture
async def running(world: World, node: PlayedNode) -> World:
    disks = [{"name": "root", "disk": {}}, {"name": "data", "disk": {"bus": "virtio"}}]
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}
    spec = {"domain": domain, "volumes": [ROOT, of("old")]}
    for name in ("old", "new"):
        await world.owner.create(core.CLAIM, a_claim(name), NAMESPACE)
    await world.create_vm(template={"spec": spec}, updateVolumesStrategy="Migration")
    await world.until(world.ready)
    return world


def claim(world: World) -> str:
    """Return the claim that the instance has, "" while there is none."""
    listed = (world.vmi().get("spec") or {}).get("volumes") or ()
    return next(
        (v["persistentVolumeClaim"]["claimName"] for v in listed if v["name"] == "data"), ""
    )


def moves(status: Object | None) -> list[tuple[str, str, str]]:
    return [
        (
            each["sourcePVCInfo"]["claimName"],
            each["destinationPVCInfo"]["claimName"],
            each["phase"],
        )
        for each in (status or {}).get("migratedVolumes") or ()
    ]


def told(world: World) -> list[tuple[str, str, str]]:
    """Return the copies that the instance tells of."""
    return moves(world.vmi().get("status"))


def known(world: World) -> list[tuple[str, str, str]]:
    """Return the copies that the VM knows of."""
    state = (world.vm().get("status") or {}).get("volumeUpdateState") or {}
    return moves(state.get("volumeMigrationState"))


def change(world: World) -> tuple[str, str]:
    found = conditions.find(world.vmi()["status"]["conditions"], "VolumesChange") or {}
    return found.get("status", ""), found.get("reason", "")


async def test_the_vm_knows_first_and_lets_the_guest_switch(running: World) -> None:
    warned = await edit(running, to("new"))
    assert any("VolumeMigration" in line for line in warned)
    await running.until(lambda: told(running) == [("old", "new", "Copying")])
    assert claim(running) == "new"
    assert known(running) == told(running)
    node = Played(running)
    await node.says("Copied")
    await running.until(lambda: told(running) == [("old", "new", "Switching")])
    assert known(running) == told(running)
    await node.says("")
    await running.until(lambda: known(running) == [])
    assert required(running) == {}


async def test_a_set_back_edit_calls_it_off(running: World) -> None:
    await running.patch_vm(to("new"))
    await running.until(lambda: told(running) == [("old", "new", "Copying")])
    await running.patch_vm(to("old"))
    await running.until(lambda: told(running) == [])
    assert claim(running) == "old"
    await running.until(lambda: known(running) == [])


async def test_a_third_claim_is_copied_to_from_the_first(running: World) -> None:
    await running.patch_vm(to("new"))
    await running.until(lambda: told(running) == [("old", "new", "Copying")])
    await running.patch_vm(to("third"))
    await running.until(lambda: told(running) == [("old", "third", "Copying")])
    assert known(running) == told(running)


async def test_an_edit_while_the_guest_goes_over_waits_until_it_has(running: World) -> None:
    await running.patch_vm(to("new"))
    await running.until(lambda: told(running) == [("old", "new", "Copying")])
    node = Played(running)
    await node.says("Copied")
    await running.until(lambda: told(running) == [("old", "new", "Switching")])
    found = await plan(running, to("old"))
    assert (found["verdict"], found["waits"]) == ("Live", True)
    await running.patch_vm(to("old"))
    await node.says("")
    await running.until(lambda: told(running) == [("new", "old", "Copying")])
    assert claim(running) == "old"


ENDS: dict[str, tuple[str, str]] = {
    "before it was copied": ("Copying", "old"),
    "while it may switch": ("Switching", "new"),
}


@pytest.mark.parametrize(("phase", "starts"), ENDS.values(), ids=ENDS)
async def test_given_the_guest_ends_then_the_next_starts_from_the_claim_that_has_all(
    running: World, node: PlayedNode, phase: str, starts: str
) -> None:
    await running.patch_vm(to("new"))
    await running.until(lambda: told(running) == [("old", "new", "Copying")])
    if phase == "Switching":
        await Played(running).says("Copied")
        await running.until(lambda: told(running) == [("old", "new", "Switching")])
    before, seen = running.vmi()["metadata"]["uid"], list[str]()
    await node.power_off()

    def again() -> bool:
        found = running.vmi()
        if found and found["metadata"]["uid"] != before:
            seen.append(claim(running))
        return bool(seen) and (found.get("status") or {}).get("phase") == "Running"

    await running.until(again)
    assert seen[0] == starts
    goes_on = [("old", "new", "Copying")] if starts == "old" else []
    await running.until(lambda: (claim(running), told(running)) == ("new", goes_on))
    await running.until(lambda: known(running) == goes_on)


async def test_given_the_claim_to_copy_to_is_missing_then_a_restart_is_no_interruption(
    running: World,
) -> None:
    await running.patch_vm(to("absent"))
    await running.until(lambda: told(running) == [("old", "absent", "Copying")])
    actions = Actions(running.components, None)  # type: ignore[arg-type]
    call = (
        ActionPath("virtualmachines", NAMESPACE, "web", "restart"),
        make_mocked_request("PUT", "/"),
    )
    with pytest.raises(Conflict, match="VM volumes are being updated"):
        await actions.handle(*call, ADMIN, None)
    before = running.vmi()["metadata"]["uid"]
    await Played(running).cannot("FailedPvcNotFound")
    await running.until(lambda: change(running) == ("False", "FailedPvcNotFound"))
    await actions.handle(*call, ADMIN, None)
    await running.until(lambda: running.vmi() and running.vmi()["metadata"]["uid"] != before)
    assert claim(running) == "old"


async def test_given_the_first_claim_never_was_then_a_restart_takes_the_right_one(
    world: World, node: PlayedNode
) -> None:
    disks = [{"name": "root", "disk": {}}, {"name": "data", "disk": {"bus": "virtio"}}]
    domain = {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}}
    spec = {"domain": domain, "volumes": [ROOT, of("typo")]}
    await world.owner.create(core.CLAIM, a_claim("right"), NAMESPACE)
    await world.create_vm(template={"spec": spec}, updateVolumesStrategy="Migration")
    await world.until(lambda: world.shown() == "ErrorPvcNotFound")
    await world.patch_vm(to("right"))
    await world.until(lambda: "NotHotpluggable" in waiting(world).values())
    assert known(world) == []
    before = world.vmi()["metadata"]["uid"]
    actions = Actions(world.components, None)  # type: ignore[arg-type]
    call = (
        ActionPath("virtualmachines", NAMESPACE, "web", "restart"),
        make_mocked_request("PUT", "/"),
    )
    await actions.handle(*call, ADMIN, None)
    await world.until(lambda: world.vmi() and world.vmi()["metadata"]["uid"] != before)
    assert claim(world) == "right"
    await world.until(world.ready)


async def test_under_stage_it_waits_for_a_restart(running: World) -> None:
    await configure(running, vmRolloutStrategy="Stage")
    await running.patch_vm(to("new"))
    await running.until(lambda: "NotHotpluggable" in waiting(running).values())
    assert (claim(running), told(running), known(running)) == ("old", [], [])


async def test_an_unknown_strategy_is_refused(running: World) -> None:
    patch: Any = {"spec": {"updateVolumesStrategy": "Teleport"}}
    with pytest.raises(Exception, match="updateVolumes strategy not recognized: Teleport"):
        await running.patch_vm(patch)
