"""VMs that name an instance type: started, switched, refreshed and refused."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.errors import Invalid
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import conditions
from livevirt.kube.objects.core import REVISION
from livevirt.kube.objects.request import Object
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, KUBEVIRT, VM

from ..manifests import a_type, an_object
from ..vm.edits import edit, plan
from ..vm.vm_world import ADMIN, NAMESPACE, PlayedNode, World

BARE: Object = {
    "domain": {"devices": {}},
    "volumes": [{"name": "root", "containerDisk": {"image": "livevirt/guest:latest"}}],
}
NEWER, FAILURE = "NewerInstancetype", "Failure"


def sized(cpu: int, memory: str) -> Object:
    topology = {"sockets": cpu, "cores": 1, "threads": 1}
    return {**BARE, "domain": {"devices": {}, "cpu": topology, "memory": {"guest": memory}}}


async def create_types(world: World, *objects: Object) -> None:
    for obj in objects or (a_type("small"), a_type("large", 2, "1Gi")):
        kind = CLUSTER_PREFERENCE if "Preference" in obj["kind"] else CLUSTER_INSTANCETYPE
        await world.owner.create(kind, obj)


async def create(world: World, template: Object = BARE, name: str = "web", **spec: Any) -> None:
    await world.create_vm("Always", name, template={"spec": template}, **spec)


def condition(world: World, type_: str) -> Object:
    status = world.vm().get("status") or {}
    return conditions.find(status.get("conditions"), type_) or {}


def domain(world: World, name: str = "web") -> Object:
    found: Object = (world.vmi(name).get("spec") or {}).get("domain") or {}
    return found


def reference(world: World) -> str:
    used = (world.vm().get("status") or {}).get("instancetypeRef") or {}
    return str((used.get("controllerRevisionRef") or {}).get("name", ""))


async def test_given_a_type_when_the_vm_starts_then_the_instance_has_its_sizes_and_the_spec_stays(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    assert domain(world)["cpu"]["sockets"] == 1
    assert domain(world)["memory"]["guest"] == "512Mi"
    annotations = world.vmi()["metadata"]["annotations"]
    assert annotations["kubevirt.io/cluster-instancetype-name"] == "small"
    assert world.vm()["spec"]["instancetype"] == {"name": "small"}
    assert world.vm()["spec"]["template"]["spec"] == BARE
    assert world.get(REVISION, reference(world)) is not None
    record = world.get(REVISION, world.vmi()["status"]["virtualMachineRevisionName"])
    assert record is not None
    assert "instancetype" not in record["data"]["spec"]


async def test_switching_is_planned_and_warned_of_exactly_like_editing_by_hand(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await create(world, sized(1, "512Mi"), "hand")
    await world.until(lambda: world.ready() and world.ready("hand"))
    stale = reference(world)
    switch = {"spec": {"instancetype": {"name": "large", "revisionName": stale}}}
    by_hand = {"spec": {"template": {"spec": {"domain": sized(2, "1Gi")["domain"]}}}}
    by_name, edited = await plan(world, switch), await plan(world, by_hand, "hand")
    assert by_name["verdict"] == edited["verdict"]
    assert _changes(by_name) == _changes(edited)
    assert len(_changes(by_name)) == 2
    warned = await edit(world, switch, dry_run=True)
    assert any("revisionName" in text and "ignored" in text for text in warned)
    assert any("domain.cpu.sockets" in text for text in warned)


def _changes(document: Object) -> list[Any]:
    return sorted((c["path"], c["from"], c["to"], c["verdict"]) for c in document["changes"])


async def test_given_a_switch_when_made_then_the_new_revision_is_recorded_and_the_old_one_kept(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    first = reference(world)
    switch = {"spec": {"instancetype": {"name": "large", "revisionName": ""}}}
    changes = (await plan(world, switch))["changes"]
    await edit(world, switch)
    await world.until(lambda: reference(world) not in ("", first) and _followed(world, changes))
    assert world.get(REVISION, first) is not None
    await edit(world, {"spec": {"instancetype": {"name": "small", "revisionName": ""}}})
    await world.until(lambda: reference(world) == first)
    await world.until(lambda: "pendingChanges" not in world.vm()["status"])


def _followed(world: World, changes: list[Object]) -> bool:
    """Tell whether the edit came to what the plan had said: live in the instance, or waiting."""
    waiting = {each["path"] for each in world.vm()["status"].get("pendingChanges") or ()}
    staged = {c["path"] for c in changes if c["verdict"] == "Restart"}
    live = any(c["verdict"].startswith("Live") for c in changes)
    return waiting >= staged and (not live or domain(world)["memory"]["guest"] == "1Gi")


async def test_given_an_edited_type_when_the_reference_is_cleared_then_the_newest_is_taken(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    first = reference(world)
    await world.owner.patch(
        CLUSTER_INSTANCETYPE, "small", "", {"spec": {"memory": {"guest": "1Gi"}}}
    )
    await world.until(lambda: condition(world, NEWER))
    assert domain(world)["memory"]["guest"] == "512Mi"
    refresh = {"status": {"instancetypeRef": None}}
    (planned,) = (await plan(world, refresh))["changes"]
    assert (planned["from"], planned["to"]) == ("512Mi", "1Gi")
    await world.owner.patch(VM, "web", NAMESPACE, refresh, subresource="status")
    await world.until(lambda: reference(world) not in ("", first) and not condition(world, NEWER))
    await world.until(lambda: _followed(world, [planned]))
    assert world.vm()["metadata"]["generation"] == 1


async def test_given_no_such_type_when_it_appears_then_the_vm_starts(
    world: World, node: PlayedNode
) -> None:
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: condition(world, FAILURE))
    assert condition(world, FAILURE)["reason"] == "FailedFindInstancetype"
    assert world.vmi() == {}
    await create_types(world)
    await world.until(lambda: world.ready() and not condition(world, FAILURE))


async def test_given_the_revision_in_use_is_removed_then_the_vm_fails_and_the_guest_runs_on(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    uid = world.vmi()["metadata"]["uid"]
    await world.owner.delete(REVISION, reference(world), NAMESPACE)
    await world.until(lambda: condition(world, FAILURE))
    assert world.vmi()["metadata"]["uid"] == uid
    await edit(world, {"spec": {"runStrategy": "Halted"}})
    await world.until(lambda: world.vmi() == {})


@pytest.mark.wording
async def test_the_message_on_a_removed_revision_names_the_command_that_helps(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    await world.owner.delete(REVISION, reference(world), NAMESPACE)
    await world.until(lambda: condition(world, FAILURE))
    assert "virtctl vm update-instance-type" in condition(world, FAILURE)["message"]


async def test_given_the_removed_revision_is_put_back_then_the_vm_goes_on_by_it(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    revision = world.get(REVISION, reference(world))
    assert revision is not None
    await world.owner.delete(REVISION, reference(world), NAMESPACE)
    await world.until(lambda: condition(world, FAILURE))
    kept = ("name", "namespace", "labels", "ownerReferences")
    meta = {name: revision["metadata"][name] for name in kept}
    await world.owner.create(REVISION, {**revision, "metadata": meta}, NAMESPACE)
    await world.until(lambda: not condition(world, FAILURE))


NEEDY = an_object(CLUSTER_PREFERENCE, "needy", spec={"requirements": {"memory": {"guest": "1Gi"}}})


async def test_given_a_type_that_got_too_small_when_refreshed_then_it_is_refused_and_all_stays(
    world: World, node: PlayedNode
) -> None:
    await create_types(world, a_type("type", 1, "1Gi"), NEEDY)
    await create(world, instancetype={"name": "type"}, preference={"name": "needy"})
    await world.until(lambda: world.ready())
    first, refresh = reference(world), {"status": {"instancetypeRef": None}}
    smaller = {"spec": {"memory": {"guest": "512Mi"}}}
    await world.owner.patch(CLUSTER_INSTANCETYPE, "type", "", smaller)
    assert (await plan(world, refresh))["verdict"] == "Refused"
    with pytest.raises(Invalid, match="insufficient Memory resources of 512Mi"):
        await world.owner.patch(VM, "web", NAMESPACE, refresh, subresource="status")
    assert reference(world) == first


async def test_given_an_edited_type_when_refreshed_then_it_is_warned_of_like_an_edit(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    more = {"spec": {"memory": {"guest": "1Gi"}}}
    await world.owner.patch(CLUSTER_INSTANCETYPE, "small", "", more)
    told: list[str] = []
    owner = LocalClient(world.api, ADMIN, warn=told.append)
    refresh = {"status": {"instancetypeRef": None}}
    await owner.patch(VM, "web", NAMESPACE, refresh, subresource="status")
    assert any("domain.memory.guest 512Mi -> 1Gi" in text for text in told)


async def test_given_a_type_created_later_that_is_too_small_then_the_vm_starts_once_it_is_larger(
    world: World, node: PlayedNode
) -> None:
    await create_types(world, NEEDY)
    await create(world, instancetype={"name": "small"}, preference={"name": "needy"})
    await world.until(lambda: condition(world, FAILURE))
    await create_types(world, a_type("small"))
    await world.until(lambda: condition(world, FAILURE).get("reason") == "FailedCreate")
    assert world.vmi() == {}
    large = {"spec": {"memory": {"guest": "1Gi"}}}
    await world.owner.patch(CLUSTER_INSTANCETYPE, "small", "", large)
    await world.until(lambda: world.ready() and not condition(world, FAILURE))


@pytest.mark.wording
async def test_the_message_on_a_type_that_is_too_small_names_the_resource(
    world: World, node: PlayedNode
) -> None:
    await create_types(world, NEEDY)
    await create(world, instancetype={"name": "small"}, preference={"name": "needy"})
    await create_types(world, a_type("small"))
    await world.until(lambda: "insufficient Memory" in condition(world, FAILURE).get("message", ""))


async def test_what_a_preference_brings_and_nothing_acts_on_is_told_in_one_line(
    world: World, node: PlayedNode
) -> None:
    fancy = {"firmware": {"preferredEfi": {}}, "features": {"preferredSmm": {"enabled": True}}}
    await create_types(world, an_object(CLUSTER_PREFERENCE, "fancy", spec=fancy))
    await create(world, sized(1, "512Mi"))
    await world.until(lambda: world.ready())
    line = (
        "preference fancy: livevirt does not act on domain.features.smm,"
        " domain.firmware.bootloader.efi"
    )
    switch = {"spec": {"preference": {"name": "fancy"}}}
    assert line in await edit(world, switch, dry_run=True)
    assert line in (await plan(world, switch))["warnings"]
    await edit(world, switch)
    assert line not in await edit(world, {"spec": {"runStrategy": "RerunOnFailure"}})


async def test_what_a_preference_brings_in_vain_is_told_once_per_change_not_at_every_edit(
    world: World, node: PlayedNode
) -> None:
    fancy = {"firmware": {"preferredEfi": {}}}
    for name in ("fancy", "other"):
        await create_types(world, an_object(CLUSTER_PREFERENCE, name, spec=fancy))
    await create(world, sized(1, "512Mi"), preference={"name": "fancy"})
    await world.until(lambda: world.ready())

    async def told(patch: Object) -> bool:
        warnings = await edit(world, patch)
        return any("domain.firmware.bootloader.efi" in each for each in warnings)

    sockets = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}}
    firmware = {"bootloader": {"bios": {}}}
    own = {"spec": {"template": {"spec": {"domain": {"firmware": firmware}}}}}
    none = {"spec": {"template": {"spec": {"domain": {"firmware": None}}}}}
    assert not await told(sockets)
    assert await told({"spec": {"preference": {"name": "other"}}})
    assert not await told(own)
    assert await told(none), "the preference counts again"


async def test_a_conflict_and_an_unmet_requirement_are_refused(world: World) -> None:
    await create_types(world, a_type("small"), a_type("large", 2, "1Gi"), NEEDY)
    with pytest.raises(Invalid, match="conflicts with selected instance type"):
        await create(world, sized(1, "1Gi"), instancetype={"name": "small"})
    matchers = {"instancetype": {"name": "large"}, "preference": {"name": "needy"}}
    await world.create_vm("Halted", template={"spec": BARE}, **matchers)
    with pytest.raises(Invalid, match="insufficient Memory resources of 512Mi"):
        await edit(world, {"spec": {"instancetype": {"name": "small"}}})


async def test_given_a_custom_type_when_the_vm_changes_its_vcpus_then_sockets_change(
    world: World, node: PlayedNode
) -> None:
    custom = an_object(CLUSTER_INSTANCETYPE, "custom", spec={})
    await create_types(world, custom)
    with pytest.raises(Invalid, match="does not provide vCPUs"):
        await create(world, instancetype={"name": "custom"})
    own = {**BARE, "domain": {"devices": {}, "cpu": {"guest": 1}, "memory": {"guest": "512Mi"}}}
    await create(world, own, instancetype={"name": "custom"})
    await world.until(lambda: world.ready())
    assert domain(world)["cpu"]["sockets"] == 1
    assert "guest" not in domain(world)["cpu"]
    patch = {"spec": {"template": {"spec": {"domain": {"cpu": {"guest": 2}}}}}}
    (change,) = (await plan(world, patch))["changes"]
    assert (change["path"], change["to"]) == ("spec.template.spec.domain.cpu.sockets", 2)


async def test_given_the_policy_expand_when_a_vm_is_made_then_it_says_its_sizes_itself(
    world: World, node: PlayedNode
) -> None:
    settings = {"spec": {"configuration": {"instancetype": {"referencePolicy": "expand"}}}}
    await world.owner.patch(KUBEVIRT, "kubevirt", "kubevirt", settings)
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    assert "instancetype" not in world.vm()["spec"]
    assert world.vm()["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "512Mi"}
    assert "instancetypeRef" not in world.vm()["status"]


async def test_given_another_policy_when_vms_are_there_then_they_are_rewritten_and_run_on(
    world: World, node: PlayedNode
) -> None:
    await create_types(world)
    await create(world, instancetype={"name": "small"})
    await world.until(lambda: world.ready())
    uid, revision = world.vmi()["metadata"]["uid"], reference(world)
    settings = {"spec": {"configuration": {"instancetype": {"referencePolicy": "expandAll"}}}}
    await world.owner.patch(KUBEVIRT, "kubevirt", "kubevirt", settings)
    await world.until(lambda: "instancetype" not in world.vm()["spec"])
    await world.until(lambda: "instancetypeRef" not in world.vm()["status"])
    await world.until(lambda: world.vm()["status"].get("observedGeneration") == 2)
    assert world.vmi()["metadata"]["uid"] == uid
    assert "pendingChanges" not in world.vm()["status"]
    assert world.get(REVISION, revision) is not None
