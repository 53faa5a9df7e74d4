"""Fields that change nothing in the guest: the instance, and where it matters its pod, follow."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects import core
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

from ..manifests import a_priority_class
from .edits import configure, edit, plan, required, settled, template
from .test_restart_required import restart
from .vm_world import NAMESPACE, PlayedNode, World

SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
FIELDS: dict[str, tuple[Any, str]] = {
    "terminationGracePeriodSeconds": (7, "NoGuestChange"),
    "evictionStrategy": ("LiveMigrate", "NoGuestChange"),
    "priorityClassName": ("urgent", "NextPlacement"),
    "schedulerName": ("another", "NextPlacement"),
    "topologySpreadConstraints": ([SPREAD], "NextPlacement"),
}


@pytest.fixture
async def running(world: World, node: PlayedNode) -> World:
    await world.owner.create(core.PRIORITY_CLASS, a_priority_class("urgent", 1000))
    await world.create_vm()
    await world.until(world.ready)
    return world


def labelled(part: str = "labels", **given: str | None) -> Object:
    """Return the merge patch of a VM that changes labels or annotations of its template."""
    return {"spec": {"template": {"metadata": {part: given}}}}


def pod(world: World) -> Object:
    [found] = world.pods()
    return found


@pytest.mark.parametrize(("field", "value", "reason"), [(n, *rest) for n, rest in FIELDS.items()])
async def test_the_instance_follows_and_goes_back(
    running: World, field: str, value: Any, reason: str
) -> None:
    before = running.vmi()["spec"].get(field)
    patch = template(**{field: value})
    [change] = (await plan(running, patch))["changes"]
    assert (change["path"], change["verdict"]) == (f"spec.template.spec.{field}", "Live")
    assert change["reason"] == reason

    await running.patch_vm(patch)
    await running.until(lambda: running.vmi()["spec"].get(field) == value)
    await settled(running)
    assert not required(running)
    assert (await plan(running))["changes"] == []

    await running.patch_vm(template(**{field: None}))
    await running.until(lambda: running.vmi()["spec"].get(field) == before)
    await settled(running)
    assert not required(running)


async def test_a_shorter_grace_period_counts_for_the_next_stop(
    running: World, node: PlayedNode
) -> None:
    await running.patch_vm(template(terminationGracePeriodSeconds=3))
    await running.until(lambda: running.vmi()["spec"]["terminationGracePeriodSeconds"] == 3)
    node.stuck = True
    await running.patch_vm({"spec": {"runStrategy": "Halted"}})
    await running.until(lambda: "deletionTimestamp" in pod(running)["metadata"])
    assert pod(running)["metadata"]["deletionGracePeriodSeconds"] == 3


@pytest.mark.parametrize("part", ["labels", "annotations"])
async def test_instance_and_pod_get_and_lose_metadata_of_the_template(
    running: World, part: str
) -> None:
    foreign = {"metadata": {part: {"example.com/mine": "kept"}}}
    await running.owner.patch(kinds.VMI, "web", NAMESPACE, foreign)
    await running.owner.patch(core.POD, pod(running)["metadata"]["name"], NAMESPACE, foreign)
    first = pod(running)["metadata"]["uid"]

    def has(**wanted: str | None) -> bool:
        found = (running.vmi()["metadata"], pod(running)["metadata"])
        return all(meta[part].get(k) == v for meta in found for k, v in wanted.items())

    patch = labelled(part, team="a", tier="web")
    [change] = (await plan(running, patch))["changes"]
    assert (change["path"], change["verdict"]) == (f"spec.template.metadata.{part}", "Live")
    await running.patch_vm(patch)
    await running.until(lambda: has(team="a", tier="web"))
    await running.patch_vm(labelled(part, team="b", tier=None))
    await running.until(lambda: has(team="b", tier=None))
    await running.patch_vm(labelled(part, team=None))
    await running.until(lambda: has(team=None))
    assert has(**{"example.com/mine": "kept"})
    assert pod(running)["metadata"]["uid"] == first
    await settled(running)
    assert not required(running)


async def test_a_label_of_the_start_is_removed_too(world: World, node: PlayedNode) -> None:
    await world.create_vm("Halted")
    await world.patch_vm(labelled(team="a"))
    await world.patch_vm({"spec": {"runStrategy": "Always"}})
    await world.until(world.ready)
    assert pod(world)["metadata"]["labels"]["team"] == "a"
    await world.patch_vm(labelled(team=None))
    await world.until(lambda: "team" not in (world.vmi()["metadata"].get("labels") or {}))
    await world.until(lambda: "team" not in pod(world)["metadata"]["labels"])


async def test_a_change_that_waits_for_a_restart_does_not_hold_labels_back(running: World) -> None:
    await running.patch_vm(template(hostname="other"))
    await running.until(lambda: required(running))
    await running.patch_vm(labelled(team="a"))
    await running.until(lambda: pod(running)["metadata"]["labels"].get("team") == "a")
    assert required(running)


async def test_a_template_does_not_replace_what_livevirt_sets(running: World) -> None:
    uid = running.vmi()["metadata"]["uid"]
    await running.patch_vm(labelled(**{"kubevirt.io/created-by": "me", "team": "a"}))
    await running.until(lambda: pod(running)["metadata"]["labels"].get("team") == "a")
    assert pod(running)["metadata"]["labels"]["kubevirt.io/created-by"] == uid


async def test_under_stage_labels_wait_for_the_next_start_and_nothing_waits_for_them(
    running: World,
) -> None:
    await configure(running, vmRolloutStrategy="Stage")
    [line] = await edit(running, labelled(team="a"))
    assert line.startswith("at the next restart only")
    await running.until(lambda: running.vm()["status"]["observedGeneration"] == 2)
    assert not required(running)
    assert "team" not in (running.vmi()["metadata"].get("labels") or {})
    await restart(running)
    assert running.vmi()["metadata"]["labels"]["team"] == "a"


def amounts(**resources: Any) -> Object:
    return template(domain={"cpu": {"sockets": 1}, "resources": resources})


def asked(world: World) -> Object:
    found: Object = pod(world)["spec"]["containers"][0]["resources"]
    return found


async def test_requests_and_limits_resize_the_pod_and_nothing_else(running: World) -> None:
    before = asked(running)
    patch = amounts(requests={"cpu": "300m"}, limits={"cpu": "2", "memory": "1Gi"})
    changes = (await plan(running, patch))["changes"]
    assert {each["verdict"] for each in changes} == {"LiveAfterResize"}
    await running.patch_vm(patch)
    await running.until(lambda: asked(running)["requests"]["cpu"] == "300m")
    await running.until(lambda: asked(running).get("limits", {}).get("cpu") == "2")
    assert parse(asked(running)["limits"]["memory"]) > parse("1Gi")  # and the overhead
    assert not required(running)

    await running.patch_vm(amounts(requests={"cpu": "200m"}, limits={"cpu": "1"}))
    await running.until(lambda: asked(running)["requests"]["cpu"] == "200m")
    assert asked(running)["limits"]["cpu"] == "1"
    assert asked(running)["requests"]["memory"] != before["requests"]["memory"]  # of the limit


async def test_a_limit_that_is_removed_waits_for_a_migration_until_it_comes_back(
    running: World,
) -> None:
    await running.patch_vm(amounts(limits={"cpu": "2"}))
    await running.until(lambda: asked(running).get("limits", {}).get("cpu") == "2")
    removed = amounts(limits={"cpu": None})
    [change] = (await plan(running, removed))["changes"]
    assert (change["verdict"], change["reason"]) == ("LiveAfterMigration", "LimitRemoved")
    assert change["waits"]  # no migration is allowed
    await running.patch_vm(removed)

    def obstacle() -> str:
        return str((running.vmi()["status"].get("podResize") or {}).get("reason", ""))

    await running.until(lambda: obstacle() == "WaitingForMigration")
    assert asked(running)["limits"]["cpu"] == "2"
    await running.patch_vm(amounts(limits={"cpu": "2"}))
    await running.until(lambda: not obstacle())


async def test_a_change_of_the_qos_class_waits_for_a_migration(running: World) -> None:
    exact = {"cpu": "1", "memory": "1Gi"}
    patch = amounts(requests=exact, limits=exact)
    found = {(each["verdict"], each["reason"]) for each in (await plan(running, patch))["changes"]}
    assert found == {("LiveAfterMigration", "QosClass")}
