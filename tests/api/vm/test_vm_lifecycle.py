"""VMs from manifest to guest and back, against a real server; only the node is played."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest

from livevirt.kube.objects import conditions, core, times
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

from ..manifests import a_claim, a_domain, a_quota, a_vm, a_vmi
from .vm_world import NAMESPACE, UNCOUNTED, PlayedNode, World, now, running

pytestmark = pytest.mark.both

# ---------------------------------------------------------------- the one path


async def test_a_vm_that_always_runs_becomes_ready(world: World, node: PlayedNode) -> None:
    written = await world.create_vm()
    await world.until(world.ready)
    vm, vmi = world.vm(), world.vmi()
    assert vm["spec"] == written["spec"] == a_vm()["spec"]
    assert world.shown() == "Running"
    assert (vm["status"]["created"], vm["status"]["ready"]) == (True, True)
    assert vm["status"]["observedGeneration"] == vm["status"]["desiredGeneration"] == 1
    phases = [each["phase"] for each in vmi["status"]["phaseTransitionTimestamps"]]
    assert [p for p in phases if p != "Scheduling"] == ["Pending", "Scheduled", "Running"]
    assert vmi["status"]["nodeName"] == vmi["metadata"]["labels"]["kubevirt.io/nodeName"]
    [pod] = world.pods()
    assert pod["metadata"]["name"].startswith("virt-launcher-web-")
    assert vmi["status"]["activePods"] == {pod["metadata"]["uid"]: "node-1"}
    revision = vmi["status"]["virtualMachineRevisionName"]
    assert revision == f"revision-start-vm-{vm['metadata']['uid']}-1"
    recorded = world.get(core.REVISION, revision)
    assert recorded is not None
    assert recorded["data"] == {"spec": vm["spec"]}


async def test_a_start_takes_at_most_ten_writes(world: World, node: PlayedNode) -> None:
    before = world.store.revision
    await world.create_vm()
    await world.until(world.ready)
    watch = world.store.watch(None, since=before)
    written = []
    while len(written) < world.store.revision - before:
        written += await anext(watch)
    watch.close()
    counted = [
        f"{event.type} {event.key.resource}"
        for event in written
        if event.key.namespace == NAMESPACE and event.key.resource not in UNCOUNTED
    ]
    assert len(counted) - 1 <= 10, counted  # the user's own is one of them


async def test_a_deleted_vm_takes_its_guest_along(world: World, node: PlayedNode) -> None:
    await world.create_vm()
    await world.until(world.ready)
    await world.owner.delete(kinds.VM, "web", NAMESPACE)
    await world.until(lambda: not world.vm() and not world.vmi() and not world.pods())
    await world.until(lambda: not world.read.list(core.REVISION, NAMESPACE))


# ---------------------------------------------------------------- run strategies


def uid_of(vmi: Object) -> str:
    return str((vmi.get("metadata") or {}).get("uid", ""))


async def test_given_always_when_the_guest_powers_off_then_another_starts(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    first = uid_of(world.vmi())
    await node.power_off()
    await world.until(lambda: uid_of(world.vmi()) not in ("", first) and world.ready())
    assert len(world.pods()) == 1


async def test_given_rerun_when_the_guest_fails_then_another_starts(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm("RerunOnFailure")
    await world.until(world.ready)
    first = uid_of(world.vmi())
    await node.power_off(phase="Failed")
    await world.until(lambda: uid_of(world.vmi()) not in ("", first) and world.ready())
    await world.until(lambda: not world.vm()["status"].get("stateChangeRequests"))


async def test_given_rerun_when_the_guest_powers_off_then_it_stays_off(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm("RerunOnFailure")
    await world.until(world.ready)
    await node.power_off()
    await world.until(lambda: not world.vmi() and world.shown() == "Stopped")


async def test_given_once_when_the_guest_powers_off_then_it_stays_to_be_seen(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm("Once")
    await world.until(world.ready)
    await node.power_off()
    await world.until(lambda: world.shown() == "Stopped")
    assert world.vmi()["status"]["phase"] == "Succeeded"


async def test_given_manual_or_halted_then_nothing_starts(world: World, node: PlayedNode) -> None:
    await world.create_vm("Halted", "a")
    await world.create_vm("Manual", "b")
    await world.until(lambda: world.shown("a") == world.shown("b") == "Stopped")
    assert not world.vmi("a")
    assert not world.vmi("b")


async def test_the_old_running_switch_still_works(world: World, node: PlayedNode) -> None:
    vm = a_vm()
    del vm["spec"]["runStrategy"]
    vm["spec"]["running"] = True
    await world.owner.create(kinds.VM, vm, NAMESPACE)
    await world.until(world.ready)
    await world.patch_vm({"spec": {"running": False}})
    await world.until(lambda: not world.vmi() and world.shown() == "Stopped")


async def test_a_restarted_guest_gets_the_vm_as_it_is_now(world: World, node: PlayedNode) -> None:
    await world.create_vm()
    await world.until(world.ready)
    await world.patch_vm({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}})
    await world.patch_vm({"spec": {"runStrategy": "Halted"}})
    await world.until(lambda: not world.vmi())
    await world.patch_vm({"spec": {"runStrategy": "Always"}})
    await world.until(world.ready)
    assert world.vmi()["spec"]["domain"]["cpu"]["cores"] == 2
    generation = world.vm()["metadata"]["generation"]
    kept = f"revision-start-vm-{world.vm()['metadata']['uid']}-{generation}"
    await world.until(
        lambda: [r["metadata"]["name"] for r in world.read.list(core.REVISION, NAMESPACE)] == [kept]
    )


async def test_a_generation_that_asks_for_the_same_guest_is_noted_as_seen(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm("RerunOnFailure")
    await world.until(world.ready)
    await world.patch_vm({"spec": {"runStrategy": "Always"}})
    await world.until(lambda: world.vm()["status"]["observedGeneration"] == 2)
    await world.patch_vm({"spec": {"template": {"spec": {"hostname": "other"}}}})
    await world.until(lambda: world.vm()["status"]["desiredGeneration"] == 3)
    assert world.vm()["status"]["observedGeneration"] == 2


# ---------------------------------------------------------------- failing starts


async def test_a_guest_that_never_runs_is_tried_again_later(world: World, node: PlayedNode) -> None:
    node.broken = True
    await world.create_vm()
    await world.until(lambda: world.shown() == "CrashLoopBackOff")
    failure = world.vm()["status"]["startFailure"]
    assert failure["consecutiveFailCount"] == 1
    wait = times.parse_time(failure["retryAfterTimestamp"]) - now()
    assert timedelta(seconds=5) < wait < timedelta(seconds=16)
    node.broken = False
    await world.patch_vm({"spec": {"runStrategy": "Halted"}})
    await world.until(lambda: "startFailure" not in world.vm()["status"])


async def test_without_a_node_the_vm_says_why_it_waits(world: World) -> None:
    await world.create_vm()
    await world.until(lambda: world.shown() == "ErrorUnschedulable")
    scheduled = conditions.find(world.vm()["status"]["conditions"], "PodScheduled")
    assert scheduled is not None
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert world.vmi()["status"]["phase"] == "Scheduling"


@pytest.mark.wording
@pytest.mark.embedded("the words are those of the embedded scheduler")
async def test_without_a_node_the_vm_says_so_in_words(world: World) -> None:
    await world.create_vm()
    await world.until(lambda: world.shown() == "ErrorUnschedulable")
    scheduled = conditions.find(world.vm()["status"]["conditions"], "PodScheduled") or {}
    assert "no nodes available" in scheduled["message"]


async def test_a_claim_that_is_missing_is_waited_for(world: World, node: PlayedNode) -> None:
    vm = a_vm()
    vm["spec"]["template"]["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    ]
    await world.owner.create(kinds.VM, vm, NAMESPACE)
    await world.until(lambda: world.shown() == "ErrorPvcNotFound")
    await world.owner.create(core.CLAIM, a_claim("data"), NAMESPACE)
    await world.until(world.pods)
    [pod] = world.pods()
    assert pod["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    ]


async def test_a_quota_in_the_way_is_told_and_retried(world: World, node: PlayedNode) -> None:
    small = a_quota("small", **{"requests.memory": "100Mi"})
    await world.owner.create(core.QUOTA, small, NAMESPACE)
    await world.create_vm()
    await world.until(lambda: synchronized(world).get("reason") == "FailedCreate")
    await world.owner.delete(core.QUOTA, "small", NAMESPACE)
    await world.until(world.ready)
    assert not synchronized(world)


def synchronized(world: World) -> Object:
    status = world.vmi().get("status") or {}
    return conditions.find(status.get("conditions"), "Synchronized") or {}


async def test_a_pod_that_is_lost_before_it_has_a_node_fails_the_instance(world: World) -> None:
    await world.create_vm("Once")
    await world.until(lambda: (world.vmi().get("status") or {}).get("phase") == "Scheduling")
    [pod] = world.pods()
    await world.owner.delete(core.POD, pod["metadata"]["name"], NAMESPACE)
    await world.until(lambda: world.vmi()["status"]["phase"] == "Failed")
    assert world.pods() == []


# ---------------------------------------------------------------- the end


async def test_an_orphaned_guest_runs_on_and_a_new_vm_of_its_name_takes_it_over(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    guest = uid_of(world.vmi())
    await world.owner.delete(kinds.VM, "web", NAMESPACE, propagation="Orphan")
    await world.until(lambda: not world.vm())
    assert uid_of(world.vmi()) == guest
    await world.create_vm()
    await world.until(world.ready)
    assert uid_of(world.vmi()) == guest
    [owner] = world.vmi()["metadata"]["ownerReferences"]
    assert owner["uid"] == world.vm()["metadata"]["uid"]


async def test_an_instance_without_a_vm_runs_and_goes(world: World, node: PlayedNode) -> None:
    await world.owner.create(kinds.VMI, a_vmi("solo", {"domain": a_domain("64Mi")}), NAMESPACE)
    await world.until(lambda: world.vmi("solo")["status"]["phase"] == "Running")
    await world.owner.delete(kinds.VMI, "solo", NAMESPACE)
    await world.until(lambda: not world.vmi("solo") and not world.pods())


async def test_a_guest_whose_pod_is_still_there_keeps_its_instance(
    world: World, node: PlayedNode
) -> None:
    await world.create_vm()
    await world.until(world.ready)
    node.stuck = True
    await world.owner.delete(kinds.VM, "web", NAMESPACE)
    await world.until(lambda: "deletionTimestamp" in world.pods()[0]["metadata"])
    assert world.vmi()
    assert world.shown() == "Terminating"
    assert world.pods()[0]["metadata"]["deletionGracePeriodSeconds"] == 30
    node.stuck = False
    await world.patch_vm({"metadata": {"labels": {"go": "on"}}})  # wakes the played node
    await world.until(lambda: not world.vm() and not world.vmi() and not world.pods())


async def test_a_vm_that_never_ran_is_deleted_at_once(world: World) -> None:
    await world.create_vm("Halted")
    await world.until(lambda: world.shown() == "Stopped")
    await world.owner.delete(kinds.VM, "web", NAMESPACE)
    await world.until(lambda: not world.vm())


# ---------------------------------------------------------------- crashes


async def test_controllers_killed_at_any_write_converge_with_one_pod(quiet: World) -> None:
    """The controllers are stopped after each of the first writes, and begin again."""
    node = PlayedNode(quiet)
    await node.register()
    await quiet.create_vm()
    for _ in range(12):
        before = quiet.store.revision
        async with running(quiet):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await quiet.until(lambda before=before: quiet.store.revision > before)
        assert len(quiet.pods()) <= 1
    played = asyncio.create_task(node.run())
    try:
        async with running(quiet):
            await quiet.patch_vm({"metadata": {"labels": {"go": "on"}}})
            await quiet.until(quiet.ready)
            assert len(quiet.pods()) == 1
    finally:
        played.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await played


# ---------------------------------------------------------------- data volumes and settings


async def test_data_volumes_are_made_and_the_start_waits_for_them(
    world: World, node: PlayedNode
) -> None:
    source = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}
    vm = a_vm(dataVolumeTemplates=[{"metadata": {"name": "disk"}, "spec": source}])
    vm["spec"]["template"]["spec"]["volumes"] = [{"name": "d", "dataVolume": {"name": "disk"}}]
    await world.owner.create(kinds.VM, vm, NAMESPACE)
    await world.until(lambda: world.get(kinds.DATA_VOLUME, "disk"))
    await world.until(lambda: world.shown() == "Provisioning")
    made = world.get(kinds.DATA_VOLUME, "disk")
    assert made is not None
    uid = world.vm()["metadata"]["uid"]
    assert made["metadata"]["labels"] == {"kubevirt.io/created-by": uid}
    assert made["metadata"]["annotations"] == {"cdi.kubevirt.io/allowClaimAdoption": "true"}
    assert not world.vmi()
    await world.components.patch(
        kinds.DATA_VOLUME, "disk", NAMESPACE, {"status": {"phase": "Succeeded"}},
        subresource="status",
    )  # fmt: skip
    await world.until(world.vmi)


@pytest.mark.embedded("the KubeVirt object of the cluster is older than the test")
async def test_the_kubevirt_object_reports_that_it_is_deployed(world: World) -> None:
    def status() -> Object:
        found = world.read.get(kinds.KUBEVIRT, "kubevirt", "kubevirt") or {}
        reported: Object = found.get("status") or {}
        return reported

    await world.until(lambda: status().get("phase") == "Deployed")
    shown = {each["type"]: each["status"] for each in status()["conditions"]}
    assert shown == {
        "Available": "True", "Progressing": "False", "Degraded": "False", "Created": "True",
    }  # fmt: skip
    assert status()["observedGeneration"] == 1
    assert status()["observedKubeVirtVersion"] == status()["targetKubeVirtVersion"]
    patch = {"spec": {"configuration": {"vmRolloutStrategy": "Stage"}}}
    await world.owner.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", patch)
    await world.until(lambda: status()["observedGeneration"] == 2)
