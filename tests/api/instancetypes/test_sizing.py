"""What the VM controller is told about instance types, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from livevirt.errors import NotFound
from livevirt.kube.control.cache import Change
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects.conditions import Failure
from livevirt.kube.objects.core import CLAIM, REVISION
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import machine
from livevirt.vm.instancetypes.rules.expansion import Expanded, Sizing, expand
from livevirt.vm.instancetypes.sizing import NEWER, Sized, Sizes, users
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, VM

from ..manifests import a_type, an_object, an_unsized_vm
from .catalog_server import SECONDS, SPACE, Server, a_server


@dataclass
class World:
    """A server, and a VM controller reduced to its sizes."""

    server: Server
    sizes: Sizes
    informers: Informers

    async def create(self, *objects: Object) -> None:
        for obj in objects:
            kind = CLUSTER_INSTANCETYPE if "Instancetype" in obj["kind"] else CLUSTER_PREFERENCE
            await self.server.client.create(kind, obj)

    async def create_vm(self, template: Object | None = None, **spec: Any) -> None:
        await self.server.client.create(VM, an_unsized_vm(template, **spec), SPACE)

    async def change(self, **patch: Any) -> None:
        await self.server.client.patch(VM, "web", SPACE, patch)

    async def vm(self) -> Object:
        return await self.server.client.get(VM, "web", SPACE)

    async def size(self) -> Sized:
        """One pass of the controller: what it is told goes to the status."""
        sized = await self.sizes.size(await self.vm())
        if sized.references:
            status = {"status": sized.references}
            await self.server.client.patch(VM, "web", SPACE, status, subresource="status")
        return sized

    async def until_seen(self, kind: Kind, name: str, generation: int) -> None:
        """Return once the controller's caches have a generation of an object."""
        seen = asyncio.Event()

        def note(change: Change) -> None:
            meta = (change.new or {"metadata": {}})["metadata"]
            if change.key.name == name and meta.get("generation") == generation:
                seen.set()

        self.informers.of(kind).on_change(note)
        async with asyncio.timeout(SECONDS):
            await seen.wait()

    async def until_cached(self) -> None:
        """Return once the controller's caches have as many objects as there are."""
        kinds = (CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE)
        for informer in (self.sizes.caches.revisions, *map(self.informers.of, kinds)):
            changed = asyncio.Event()
            informer.on_change(lambda _, changed=changed: changed.set())
            async with asyncio.timeout(SECONDS):
                await informer.synced.wait()
                while len(informer) != len(self.server.read.list(informer.kind)):
                    changed.clear()
                    await changed.wait()

    def revisions(self) -> list[str]:
        return sorted(obj["metadata"]["name"] for obj in self.server.read.list(REVISION, SPACE))

    async def uid(self, name: str) -> str:
        return str((await self.server.client.get(CLUSTER_INSTANCETYPE, name))["metadata"]["uid"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_server() as server, asyncio.TaskGroup() as group:
        informers = Informers(server.client)
        sizes = Sizes(server.client, informers)
        runner = group.create_task(_run(informers))
        yield World(server, sizes, informers)
        runner.cancel()


async def _run(informers: Informers) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            informers.start(group)


def domain(sized: Sized) -> Object:
    found: Object = sized.vm["spec"]["template"]["spec"]["domain"]
    return found


async def test_given_a_new_vm_when_sized_then_a_revision_is_taken_and_recorded(
    world: World,
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    sized = await world.size()
    name = f"web-small-v1beta2-{await world.uid('small')}-1"
    assert (sized.failure, sized.newer) == (None, None)
    assert domain(sized)["memory"] == {"guest": "512Mi"}
    assert sized.vm["status"]["instancetypeRef"]["name"] == "small"
    assert world.revisions() == [name]
    vm = await world.vm()
    assert vm["status"]["instancetypeRef"] == {
        "name": "small",
        "kind": "VirtualMachineClusterInstancetype",
        "controllerRevisionRef": {"name": name},
    }
    assert vm["spec"]["instancetype"] == {"name": "small"}
    assert vm["metadata"]["generation"] == 1


async def test_given_a_sized_vm_when_sized_again_then_nothing_is_written(world: World) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    before = await world.vm()
    assert (await world.size()).references == {}
    assert await world.vm() == before


async def test_given_a_settled_vm_when_sized_then_it_is_expanded_once_and_nothing_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    preference = an_object(CLUSTER_PREFERENCE, "p", spec={"machine": {}})
    await world.create(a_type("small"), preference)
    await world.create_vm(instancetype={"name": "small"}, preference={"name": "p"})
    await world.size()
    await world.until_cached()
    vm, expanded, fetched = await world.vm(), [], []

    def expanding(template: Object, sizing: Sizing) -> Expanded:
        expanded.append(sizing)
        return expand(template, sizing)

    async def get(kind: Kind, name: str, namespace: str = "") -> Object:
        fetched.append(name)
        raise NotFound(name)

    monkeypatch.setattr(machine, "expand", expanding)
    monkeypatch.setattr(world.server.client, "get", get)
    assert domain(await world.sizes.size(vm))["memory"] == {"guest": "512Mi"}
    assert (len(expanded), fetched) == (1, [])


async def test_given_a_switch_and_back_when_sized_then_the_first_revision_is_used_again(
    world: World,
) -> None:
    await world.create(a_type("small"), a_type("large", 2, "1Gi"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    first = world.revisions()
    await world.change(spec={"instancetype": {"name": "large"}})
    assert domain(await world.size())["memory"] == {"guest": "1Gi"}
    assert len(world.revisions()) == 2
    await world.change(spec={"instancetype": {"name": "small", "revisionName": ""}})
    assert domain(await world.size())["memory"] == {"guest": "512Mi"}
    assert len(world.revisions()) == 2
    reference = (await world.vm())["status"]["instancetypeRef"]
    assert [reference["controllerRevisionRef"]["name"]] == first


async def size_after_an_edit(world: World) -> Sized:
    """Return the size of a VM whose instance type was edited after its first start."""
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    edit = {"spec": {"memory": {"guest": "1Gi"}}}
    edited = await world.server.client.patch(CLUSTER_INSTANCETYPE, "small", "", edit)
    assert edited["metadata"]["generation"] == 2
    await world.until_seen(CLUSTER_INSTANCETYPE, "small", 2)
    return await world.size()


async def test_given_an_edited_type_when_sized_then_the_vm_keeps_its_size_until_refreshed(
    world: World,
) -> None:
    sized = await size_after_an_edit(world)
    assert domain(sized)["memory"] == {"guest": "512Mi"}
    assert sized.newer is not None
    assert (sized.newer["type"], sized.newer["reason"]) == (NEWER, "InstancetypeChanged")
    cleared = {"status": {"instancetypeRef": None}}
    await world.server.client.patch(VM, "web", SPACE, cleared, subresource="status")
    sized = await world.size()
    assert domain(sized)["memory"] == {"guest": "1Gi"}
    assert sized.newer is None
    assert len(world.revisions()) == 2


@pytest.mark.wording
async def test_the_message_on_an_edited_type_names_both_generations(world: World) -> None:
    newer = (await size_after_an_edit(world)).newer or {}
    assert "is at generation 2, this VM has generation 1" in newer["message"]


async def test_given_the_older_revision_when_pinned_then_the_vm_is_rolled_back(
    world: World,
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    (first,) = world.revisions()
    await world.server.client.patch(
        CLUSTER_INSTANCETYPE, "small", "", {"spec": {"memory": {"guest": "1Gi"}}}
    )
    cleared = {"status": {"instancetypeRef": None}}
    await world.server.client.patch(VM, "web", SPACE, cleared, subresource="status")
    await world.size()
    await world.change(spec={"instancetype": {"revisionName": first}})
    assert domain(await world.size())["memory"] == {"guest": "512Mi"}


async def test_given_the_revision_in_use_is_removed_when_sized_then_it_fails_with_the_cure(
    world: World,
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    (name,) = world.revisions()
    await world.until_cached()
    await world.server.client.delete(REVISION, name, SPACE)
    await world.until_cached()
    sized = await world.size()
    assert sized.failure is not None
    assert sized.failure.reason == "FailedFindInstancetype"
    assert sized.failure.message.startswith(f'controllerrevisions.apps "{name}" not found')
    assert "virtctl vm update-instance-type web" in sized.failure.message
    assert sized.references == {}


async def test_given_a_missing_type_when_it_appears_then_the_vm_is_woken_and_sized(
    world: World,
) -> None:
    template = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
    await world.create_vm(preference={"name": "p"}, template=template)
    failed = await world.size()
    assert failed.failure == Failure(
        "FailedFindPreference",
        'virtualmachineclusterpreferences.instancetype.kubevirt.io "p" not found',
    )
    preference = an_object(
        CLUSTER_PREFERENCE, "p", spec={"machine": {"preferredMachineType": "q35"}}
    )
    await world.create(preference)
    assert [key.name for key in users([await world.vm()], preference)] == ["web"]
    sized = await world.size()
    assert sized.failure is None
    assert domain(sized)["machine"] == {"type": "q35"}


async def test_given_a_conflict_when_sized_then_nothing_is_captured(world: World) -> None:
    template = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
    await world.create_vm(template=template)
    await world.create(a_type("small"))
    vm = await world.vm()
    vm["spec"]["instancetype"] = {"name": "small"}
    sized = await world.sizes.size(vm)
    assert sized.failure == Failure(
        "FailedCreate",
        "VM conflicts with instancetype spec in fields: [spec.template.spec.domain.memory.guest]",
    )
    assert sized.vm == vm
    assert world.revisions() == []


async def test_given_a_revision_of_that_name_with_other_data_when_sized_then_it_is_not_used(
    world: World,
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    name = f"web-small-v1beta2-{await world.uid('small')}-1"
    planted = {"metadata": {"name": name}, "data": {"spec": {}}, "revision": 0}
    await world.server.client.create(REVISION, planted, SPACE)
    assert (await world.size()).failure == Failure(
        "FailedCreate",
        "error encountered while storing instancetype.kubevirt.io controllerRevisions:"
        f" found existing ControllerRevision with unexpected data: {name}",
    )


ORPHANED: dict[str, list[str]] = {"nobody": [], "an earlier VM of its name": ["gone"]}


@pytest.mark.parametrize("owners", ORPHANED.values(), ids=ORPHANED)
async def test_given_a_revision_of_an_earlier_vm_when_sized_then_it_is_taken_anew(
    world: World, owners: list[str]
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    (name,) = world.revisions()
    first = await world.server.client.get(REVISION, name, SPACE)
    (own,) = first["metadata"]["ownerReferences"]
    await world.server.client.delete(VM, "web", SPACE)
    left = {"ownerReferences": [{**own, "uid": uid} for uid in owners] or None}
    await world.server.client.patch(REVISION, name, SPACE, {"metadata": left})
    await world.create_vm(instancetype={"name": "small"})
    assert (await world.size()).failure is None
    found = await world.server.client.get(REVISION, name, SPACE)
    uid = (await world.vm())["metadata"]["uid"]
    assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [uid]
    # Whoever deletes what the earlier VM left names it by its uid, and so misses this one.
    assert found["metadata"]["uid"] != first["metadata"]["uid"]
    assert world.revisions() == [name]


async def test_given_a_removed_matcher_when_sized_then_its_reference_goes(world: World) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    memory = {"domain": {"memory": {"guest": "1Gi"}}}
    await world.change(spec={"instancetype": None, "template": {"spec": memory}})
    assert (await world.size()).references == {"instancetypeRef": None}
    assert "instancetypeRef" not in (await world.vm())["status"]


async def test_given_a_volume_when_inferred_then_the_spec_stays_and_the_status_says_what(
    world: World,
) -> None:
    await world.create(a_type("small"))
    claim = {
        "metadata": {
            "name": "root", "labels": {"instancetype.kubevirt.io/default-instancetype": "small"}
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    await world.server.client.create(CLAIM, claim, SPACE)
    template = {
        "domain": {"devices": {}},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "root"}}],
    }
    await world.create_vm(template=template, instancetype={"inferFromVolume": "v"})
    assert domain(await world.size())["memory"] == {"guest": "512Mi"}
    vm = await world.vm()
    assert vm["spec"]["instancetype"] == {"inferFromVolume": "v"}
    assert vm["status"]["instancetypeRef"]["inferFromVolume"] == "v"
    assert vm["status"]["instancetypeRef"]["name"] == "small"


async def test_given_the_policy_expand_when_rewritten_then_the_vm_names_nothing_any_more(
    world: World,
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    assert await world.sizes.rewrite(await world.vm(), "reference") is False
    assert await world.sizes.rewrite(await world.vm(), "expand") is True
    vm = await world.vm()
    assert "instancetype" not in vm["spec"]
    assert vm["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "512Mi"}
    assert world.revisions() == []


async def test_given_expand_all_and_a_revision_when_rewritten_then_the_revision_stays(
    world: World,
) -> None:
    await world.create(a_type("small"))
    await world.create_vm(instancetype={"name": "small"})
    await world.size()
    assert await world.sizes.rewrite(await world.vm(), "expand") is False
    assert await world.sizes.rewrite(await world.vm(), "expandAll") is True
    vm = await world.vm()
    assert "instancetypeRef" not in vm["status"]
    assert len(world.revisions()) == 1


async def test_given_a_missing_type_when_rewritten_then_it_says_why_not(world: World) -> None:
    await world.create_vm(instancetype={"name": "gone"})
    assert await world.sizes.rewrite(await world.vm(), "expand") == Failure(
        "UnsupportedSyncError",
        "unsupported error: error encountered while expanding into VirtualMachine:"
        ' virtualmachineclusterinstancetypes.instancetype.kubevirt.io "gone" not found',
    )
