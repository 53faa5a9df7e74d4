"""The controller on a cluster of plain objects: what it writes, also when it knows too little."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.control.cache import Key
from livevirt.kube.control.queue import Queue
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.migration import observation
from livevirt.vm.migration.snapshot import (
    JOB_UID,
    NO_BACK_OFF,
    TARGET_NODE,
    WORKLOAD_UPDATE,
    Instance,
    read_instance,
)

from .migration_world import SPACE, World, memory_of


def a_world(guests: int = 1, cluster: int = 5) -> World:
    world = World(cluster, 2)
    for number in range(guests):
        world.add_guest(f"g{number}", "a")
        world.add_migration(f"m{number}", f"g{number}")
    world.tell_all()
    return world


def found(world: World, kind: Kind, name: str) -> Object:
    return world.objects[kind.resource, Key(SPACE, name)]


def status(world: World, name: str = "m0") -> Object:
    return found(world, kinds.MIGRATION, name).get("status") or {}


def state(world: World, name: str = "g0") -> Object:
    return found(world, kinds.VMI, name)["status"].get("migrationState") or {}


def targets(world: World) -> list[Object]:
    return [pod for pod in world.pods() if JOB_UID in (pod["metadata"].get("labels") or {})]


async def go_on(world: World, name: str = "m0", times: int = 3) -> None:
    for _ in range(times):
        world.tell_all()
        await world.reconcile(name)


async def handed_over(world: World) -> None:
    await go_on(world)
    world.start_pod(0)
    await go_on(world)
    assert state(world)


async def test_a_guest_moves_and_its_old_pod_goes_after_that_is_said() -> None:
    world = a_world()
    first = world.homes["g0"]
    await handed_over(world)
    assert status(world)["phase"] == "PreparingTarget"
    assert found(world, kinds.VMI, "g0")["metadata"]["labels"] == {TARGET_NODE: "t"}
    for _ in range(3):
        world.node_step("g0", well=True)
        await go_on(world, times=1)
    assert status(world)["phase"] == "Succeeded"
    assert "deletionTimestamp" not in found(world, core.POD, first)["metadata"]
    await go_on(world)
    assert "deletionTimestamp" in found(world, core.POD, first)["metadata"]
    assert found(world, kinds.MIGRATION, "m0")["metadata"]["finalizers"]
    world.end_pods()
    await go_on(world)
    assert not found(world, kinds.MIGRATION, "m0")["metadata"].get("finalizers")
    assert TARGET_NODE not in found(world, kinds.VMI, "g0")["metadata"]["labels"]
    passed = [each["phase"] for each in status(world)["phaseTransitionTimestamps"]]
    assert passed == [
        "Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running",
        "Succeeded",
    ]  # fmt: skip
    assert status(world)["migrationState"]["completed"] is True


async def test_the_settings_of_the_moment_are_handed_over() -> None:
    world = a_world()
    policy: Object = {
        "metadata": {"name": "slow"},
        "spec": {"selectors": {}, "bandwidthPerMigration": "1Mi"},
    }
    world.add(kinds.MIGRATION_POLICY, policy)
    await handed_over(world)
    assert state(world)["migrationPolicyName"] == "slow"
    settings = state(world)["migrationConfiguration"]
    assert settings["bandwidthPerMigration"] == "1Mi"
    assert settings["completionTimeoutPerGiB"] == 150


async def test_given_a_pod_that_is_not_seen_yet_then_it_counts_already() -> None:
    world = a_world(2, cluster=1)
    await world.reconcile("m0")
    await world.reconcile("m1")
    world.add_guest("g2", "b")
    world.add_migration("urgent", "g2", priority="system-critical")
    for kind in (kinds.VMI, *[kinds.MIGRATION] * 3):  # all but the pods
        world.tell(kind)
    await world.reconcile("urgent")
    assert len(targets(world)) == 1


async def test_a_long_queue_is_not_read_again_for_each_waiting_migration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guests, read = 100, 0

    def counted(vmi: Object) -> Instance:
        nonlocal read
        read += 1
        return read_instance(vmi)

    world = a_world(guests)
    monkeypatch.setattr(observation, "read_instance", counted)
    for number in range(guests):
        await world.reconcile(f"m{number}")
        world.tell_all()
    assert len(targets(world)) == 2  # as many as may leave the node
    assert read < 10 * guests


async def test_one_that_ends_enqueues_only_those_that_may_start() -> None:
    world = a_world(20)
    for number in range(20):
        await go_on(world, f"m{number}", times=1)
    world.tell_all()
    world.start_pod(0, well=False)
    queue = world.controller._controller.queue = Queue()
    await go_on(world, times=2)
    world.tell_all()
    assert status(world)["phase"] == "Failed"
    woken = {(await queue.get()).name for _ in range(len(queue))}
    assert len(woken) <= 3
    (admitted,) = (key.name for key in world.controller.observer.queue.admitted())
    assert admitted in woken


async def test_given_a_cancel_right_after_the_handoff_then_the_nodes_are_asked() -> None:
    world = a_world()
    await go_on(world)
    world.start_pod(0)
    world.tell_all()
    await world.reconcile("m0")  # handed over, which our copy does not know yet
    await world.cancel("m0")
    world.tell(kinds.MIGRATION)
    world.tell(kinds.MIGRATION)
    await world.reconcile("m0")
    assert status(world)["phase"] != "Failed"
    await go_on(world)
    assert state(world)["abortRequested"] is True
    assert targets(world)[0]["status"]["phase"] == "Running"
    world.node_step("g0", well=True)
    await go_on(world)
    assert world.all(kinds.MIGRATION) == []


async def test_given_a_cancel_before_the_handoff_then_no_target_is_left() -> None:
    world = a_world()
    await go_on(world)
    await world.cancel("m0")
    await go_on(world)
    assert targets(world) == []
    assert world.all(kinds.MIGRATION) == []
    assert state(world) == {}


async def test_a_failure_before_the_handoff_says_why() -> None:
    world = a_world()
    await go_on(world)
    world.start_pod(0, well=False)
    await go_on(world)
    told = status(world)["migrationState"]
    assert status(world)["phase"] == "Failed"
    assert told["failed"] is True
    assert told["failureReason"]


async def test_given_a_target_lost_after_the_handoff_then_the_instance_is_free_again() -> None:
    world = a_world()
    await handed_over(world)
    world.remove(core.POD, targets(world)[0]["metadata"]["name"])
    await go_on(world)
    assert state(world)["failed"] is True
    assert state(world)["endTimestamp"]
    assert status(world)["phase"] == "Failed"


@pytest.mark.parametrize("started", [False, True])
async def test_given_a_guest_that_grows_before_the_handoff_then_its_target_is_made_anew(
    started: bool,
) -> None:
    world = a_world()
    await go_on(world)
    (small,) = targets(world)
    if started:
        world.start_pod(0)
    world.grow("g0")
    await go_on(world)
    world.end_pods()
    await go_on(world)
    (large,) = targets(world)
    assert large["metadata"]["uid"] != small["metadata"]["uid"]
    assert memory_of(large) >= memory_of(small) + 64 * 2**20
    assert state(world) == {}
    await handed_over(world)
    world.node_step("g0", well=True)
    assert status(world)["phase"] == "PreparingTarget"


async def test_a_target_that_goes_for_being_too_small_is_known_after_a_crash_too() -> None:
    world = a_world()
    await go_on(world)
    (small,) = targets(world)
    world.start_pod(0)
    world.grow("g0")
    await go_on(world, times=1)
    (going,) = targets(world)
    assert "deletionTimestamp" in going["metadata"]
    world.start_controller()
    await go_on(world)
    assert status(world)["phase"] == "Scheduled"
    world.end_pods()
    await go_on(world)
    (large,) = targets(world)
    assert large["metadata"]["uid"] != small["metadata"]["uid"]
    assert memory_of(large) > memory_of(small)
    await handed_over(world)


async def test_given_the_next_target_is_lost_then_the_migration_fails() -> None:
    world = a_world()
    await go_on(world)
    world.grow("g0")
    await go_on(world)
    (large,) = targets(world)
    world.remove(core.POD, large["metadata"]["name"])
    await go_on(world)
    assert status(world)["phase"] == "Failed"


async def test_given_a_full_quota_then_it_says_so_until_there_is_room() -> None:
    world = a_world(2)
    world.over_quota = True
    await go_on(world, times=1)
    listed = status(world)["conditions"]
    assert conditions.is_true(listed, "migrationRejectedByResourceQuota")
    assert status(world)["phase"] == "Pending"
    world.over_quota = False
    await go_on(world)
    assert targets(world) == []  # it was told to wait
    world.add(core.QUOTA, {"metadata": {"name": "small", "namespace": SPACE}, "spec": {}})
    await go_on(world)
    assert len(targets(world)) == 1
    assert status(world)["phase"] == "Scheduling"
    assert status(world)["conditions"] == []


async def test_given_two_of_one_guest_then_the_second_fails() -> None:
    world = a_world()
    world.pass_time(1)
    world.add_migration("second", "g0")
    world.tell_all()
    await world.reconcile("second")
    await go_on(world)
    assert status(world, "second")["phase"] == "Failed"
    assert status(world)["phase"] == "Scheduling"


async def test_given_an_instance_that_goes_then_the_migration_fails() -> None:
    world = a_world()
    await go_on(world)
    vmi = found(world, kinds.VMI, "g0")
    world.change(kinds.VMI, vmi, {"metadata": {"finalizers": ["x"], "deletionTimestamp": "x"}})
    await go_on(world)
    assert status(world)["phase"] == "Failed"


async def failing(world: World, name: str, **annotations: str) -> None:
    meta = {"name": name, "namespace": SPACE, "annotations": annotations, "finalizers": []}
    world.add(kinds.MIGRATION, {"metadata": meta, "spec": {"vmiName": "g0"}})
    world.pass_time(1)


async def test_given_failures_then_those_of_controllers_wait_and_others_do_not() -> None:
    world = a_world()
    await go_on(world)
    world.start_pod(0, well=False)
    await go_on(world)
    automatic: dict[str, Any] = {WORKLOAD_UPDATE: ""}
    await failing(world, "auto", **automatic)
    await go_on(world, "auto")
    assert len(targets(world)) == 1  # the dead one
    world.pass_time(20)
    await go_on(world, "auto")
    assert len(targets(world)) == 2
    world.start_pod(0, well=False)
    await go_on(world, "auto")
    await failing(world, "impatient", **automatic, **{NO_BACK_OFF: ""})
    await go_on(world, "impatient")
    assert len(targets(world)) == 3


async def test_the_newest_five_are_kept_and_dead_pods_go_with_the_others() -> None:
    world = a_world()
    for number in range(7):
        world.add_migration(f"m{number}", "g0")
        await go_on(world, f"m{number}")
        world.start_pod(0, well=False)
        await go_on(world, f"m{number}")
        world.pass_time(1)
    for number in range(7):
        await go_on(world, f"m{number}")
    names = [obj["metadata"]["name"] for obj in world.all(kinds.MIGRATION)]
    assert names == ["m2", "m3", "m4", "m5", "m6"]
    assert len(targets(world)) == 5


async def test_given_a_migration_removed_by_force_then_its_target_goes() -> None:
    world = a_world()
    await go_on(world)
    world.remove(kinds.MIGRATION, "m0")
    await go_on(world)
    assert targets(world) == []


async def test_given_its_instance_is_gone_too_then_the_target_is_left_to_garbage_collection() -> (
    None
):
    world = a_world()
    await go_on(world)
    world.remove(kinds.MIGRATION, "m0")
    world.remove(kinds.VMI, "g0")
    await go_on(world)
    assert len(targets(world)) == 1


async def test_given_a_handed_over_one_removed_by_force_then_the_next_can_go() -> None:
    world = a_world()
    await handed_over(world)
    world.remove(kinds.MIGRATION, "m0")
    await go_on(world)
    assert state(world)["abortRequested"] is True
    world.node_step("g0", well=True)
    world.add_migration("next", "g0")
    await go_on(world, "next")
    world.start_pod(0)
    await go_on(world, "next")
    assert state(world)["migrationUid"] == found(world, kinds.MIGRATION, "next")["metadata"]["uid"]
    assert "failed" not in state(world)


async def test_given_a_guest_that_copies_a_volume_then_the_migration_waits_for_it() -> None:
    world = a_world()
    vmi = found(world, kinds.VMI, "g0")
    copying = {"volumeName": "data", "destinationPVCInfo": {"claimName": "new"}}
    stays = {
        "type": "LiveMigratable", "status": "False",
        "reason": "DisksNotLiveMigratable", "message": "volume data is to be copied",
    }  # fmt: skip
    copies = {"conditions": [stays], "migratedVolumes": [copying]}
    vmi = world.change(kinds.VMI, vmi, {"status": copies})
    await go_on(world)
    assert status(world)["phase"] == "Pending"
    listed = status(world)["conditions"]
    told = conditions.find(listed, "migrationBlockedByVolumesChange")
    assert told is not None
    assert (told["status"], told["reason"]) == ("True", "VolumesChange")
    world.change(kinds.VMI, vmi, {"status": {"conditions": [], "migratedVolumes": None}})
    await go_on(world)
    assert status(world)["phase"] == "Scheduling"
    assert status(world)["conditions"] == []
