"""The objects a VirtualMachine creates: its instance, the record of its start, its DataVolumes."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging

from livevirt.errors import AlreadyExists, ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.machine import detached, instance_annotations, sized_by
from livevirt.vm.lifecycle.vm import snapshot, writer
from livevirt.vm.lifecycle.vm.status import GENERATION, marks
from livevirt.vm.lifecycle.vm.writer import facts
from livevirt.vm.spec import defaults, disks
from livevirt.vm.volumes import volume_migration

_ADOPTABLE = "cdi.kubevirt.io/allowClaimAdoption"
_CREATED_BY = "kubevirt.io/created-by"


def owned_by(kind: Kind, owner: Object) -> Object:
    """Return the reference to the controller of an object."""
    meta = owner["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def instance_of(vm: Object, *, paused: bool = False) -> Object:
    """Return the instance a VM starts; admission will make it complete.

    One that starts from a claim which was to be copied has not all of its VM yet.
    """
    meta, template = vm["metadata"], vm["spec"]["template"]
    given = template.get("metadata") or {}
    machine = status_of(vm).get("machine")
    spec = defaults.kept(copy.deepcopy(template["spec"]), machine)
    disks.add_missing(spec)
    volumes = spec.get("volumes") or []
    begins = volume_migration.to_start_from(vm, volumes)
    mark = marks(vm)
    if begins != volumes:
        spec["volumes"] = begins
        del mark[GENERATION]
    if paused:
        spec["startStrategy"] = "Paused"
    return {
        "apiVersion": kinds.VMI.api_version,
        "kind": kinds.VMI.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": dict(given.get("labels") or {}),
            "annotations": {
                **(given.get("annotations") or {}),
                **instance_annotations(vm),
                **mark,
            },
            "ownerReferences": [owned_by(kinds.VM, vm)],
        },
        "spec": spec,
        "status": {"virtualMachineRevisionName": revision_name(vm)},
    }


def revision_name(vm: Object) -> str:
    """Return the name of the record of a start at the VM's present generation."""
    name = f"{revision_prefix(vm)}{vm['metadata']['generation']}"
    used = sized_by(vm)
    return f"{name}-{hashlib.sha256(used.encode()).hexdigest()[:8]}" if used else name


def revision_prefix(vm: Object) -> str:
    """Return what the names of all records of the VM's starts begin with."""
    return f"revision-start-vm-{vm['metadata']['uid']}-"


def revision_of(vm: Object) -> Object:
    """Return the record of a start: the whole spec, expanded, so that nothing can change it."""
    meta = vm["metadata"]
    spec = copy.deepcopy(detached(vm)["spec"])
    return {
        "apiVersion": core.REVISION.api_version,
        "kind": core.REVISION.kind,
        "metadata": {
            "name": revision_name(vm),
            "namespace": meta["namespace"],
            "ownerReferences": [owned_by(kinds.VM, vm)],
        },
        "data": {"spec": spec},
        "revision": meta["generation"],
    }


def data_volume_of(vm: Object, name: str) -> Object:
    """Return the DataVolume made from the template of that name."""
    meta = vm["metadata"]
    template = next(t for t in vm["spec"]["dataVolumeTemplates"] if t["metadata"]["name"] == name)
    given = template["metadata"]
    return {
        "apiVersion": kinds.DATA_VOLUME.api_version,
        "kind": kinds.DATA_VOLUME.kind,
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": {**(given.get("labels") or {}), _CREATED_BY: meta["uid"]},
            "annotations": {**(given.get("annotations") or {}), _ADOPTABLE: "true"},
            "ownerReferences": [owned_by(kinds.VM, vm)],
        },
        "spec": copy.deepcopy(template["spec"]),
    }


log = logging.getLogger(__name__)


class InstanceLifecycle:
    """Carries out the steps of a plan that start and stop guests."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client, self._recorder = client, recorder

    async def create(self, vm: Object, *, paused: bool) -> None:
        """Start the guest: store the revision of this start, then create the instance."""
        namespace = vm["metadata"]["namespace"]
        with contextlib.suppress(AlreadyExists):  # this generation has been started before
            await self._client.create(core.REVISION, revision_of(vm), namespace)
        instance = instance_of(vm, paused=paused)
        try:
            created = await self._client.create(kinds.VMI, instance, namespace)
        except AlreadyExists:
            if await self._has_instance(vm):
                return  # created before, and not in the cache yet
            raise
        log.info("instance created", extra=facts(vm) | {"uid": created["metadata"]["uid"]})
        writer.started(self._recorder, vm)
        if vm["metadata"]["generation"] > 1 or sized_by(vm):
            await self._delete_old_revisions(vm)

    async def delete(self, vm: Object, uid: str) -> None:
        """Stop the guest."""
        meta = vm["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.delete(kinds.VMI, meta["name"], meta["namespace"], uid=uid)
            log.info("instance deleted", extra=facts(vm) | {"uid": uid})
            writer.stopped(self._recorder, vm)

    async def adopt(self, vm: Object, vmi: Object) -> None:
        """Make the VM the owner of an instance of its name that has none."""
        meta = vmi["metadata"]
        change = {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "ownerReferences": [
                *(meta.get("ownerReferences") or []),
                owned_by(kinds.VM, vm),
            ],
        }
        await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], {"metadata": change})

    async def create_volume(self, vm: Object, name: str) -> ApiError | None:
        """Create a DataVolume; return what kept it from being created."""
        volume = data_volume_of(vm, name)
        try:
            await self._client.create(kinds.DATA_VOLUME, volume, vm["metadata"]["namespace"])
        except AlreadyExists:
            return None  # it will show up
        except ApiError as error:
            writer.volume_failed(self._recorder, vm, name, error.message)
            return error
        writer.volume_created(self._recorder, vm, name)
        return None

    async def _has_instance(self, vm: Object) -> bool:
        meta = vm["metadata"]
        try:
            found = await self._client.get(kinds.VMI, meta["name"], meta["namespace"])
        except NotFound:
            return False
        guest = snapshot.guest(found, vm)
        return guest is not None and guest.owner == "this"

    async def _delete_old_revisions(self, vm: Object) -> None:
        """Delete the records of earlier starts."""
        namespace = vm["metadata"]["namespace"]
        prefix, kept = revision_prefix(vm), revision_name(vm)
        page = await self._client.list(core.REVISION, namespace)
        for revision in page.items:
            meta = revision["metadata"]
            if meta["name"].startswith(prefix) and meta["name"] != kept:
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        core.REVISION, meta["name"], namespace, uid=meta["uid"]
                    )
