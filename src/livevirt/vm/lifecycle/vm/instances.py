"""Creates, adopts and deletes the instance of a VirtualMachine, and creates its DataVolumes."""

from __future__ import annotations

import contextlib
import logging

from livevirt.errors import AlreadyExists, ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.machine import sized_by
from livevirt.vm.lifecycle.vm import events, snapshot, template
from livevirt.vm.lifecycle.vm.writer import facts

log = logging.getLogger(__name__)


class InstanceLifecycle:
    """Carries out the steps of a plan that start and stop guests."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client, self._recorder = client, recorder

    async def create(self, vm: Object, *, paused: bool) -> None:
        """Start the guest: store the revision of this start, then create the instance."""
        namespace = vm["metadata"]["namespace"]
        with contextlib.suppress(AlreadyExists):  # this generation has been started before
            await self._client.create(core.REVISION, template.revision_of(vm), namespace)
        instance = template.instance_of(vm, paused=paused)
        try:
            created = await self._client.create(kinds.VMI, instance, namespace)
        except AlreadyExists:
            if await self._has_instance(vm):
                return  # created before, and not in the cache yet
            raise
        log.info("instance created", extra=facts(vm) | {"uid": created["metadata"]["uid"]})
        events.started(self._recorder, vm)
        if vm["metadata"]["generation"] > 1 or sized_by(vm):
            await self._delete_old_revisions(vm)

    async def delete(self, vm: Object, uid: str) -> None:
        """Stop the guest."""
        meta = vm["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.delete(kinds.VMI, meta["name"], meta["namespace"], uid=uid)
            log.info("instance deleted", extra=facts(vm) | {"uid": uid})
            events.stopped(self._recorder, vm)

    async def adopt(self, vm: Object, vmi: Object) -> None:
        """Make the VM the owner of an instance of its name that has none."""
        meta = vmi["metadata"]
        change = {
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
            "ownerReferences": [
                *(meta.get("ownerReferences") or []),
                template.owned_by(kinds.VM, vm),
            ],
        }
        await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], {"metadata": change})

    async def create_volume(self, vm: Object, name: str) -> ApiError | None:
        """Create a DataVolume; return what kept it from being created."""
        volume = template.data_volume_of(vm, name)
        try:
            await self._client.create(kinds.DATA_VOLUME, volume, vm["metadata"]["namespace"])
        except AlreadyExists:
            return None  # it will show up
        except ApiError as error:
            events.volume_failed(self._recorder, vm, name, error.message)
            return error
        events.volume_created(self._recorder, vm, name)
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
        prefix, kept = template.revision_prefix(vm), template.revision_name(vm)
        page = await self._client.list(core.REVISION, namespace)
        for revision in page.items:
            meta = revision["metadata"]
            if meta["name"].startswith(prefix) and meta["name"] != kept:
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        core.REVISION, meta["name"], namespace, uid=meta["uid"]
                    )
