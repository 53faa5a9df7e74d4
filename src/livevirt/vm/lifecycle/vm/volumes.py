"""Volumes of a running guest that its VM and its instance must agree on: copies, forced detaches.

The VM records a copy before its instance does, so whenever a guest dies its VM knows which claim
has all the data that was written.
"""

from __future__ import annotations

import contextlib
import logging

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm import snapshot
from livevirt.vm.lifecycle.vm.writer import VirtualMachineWriter, facts
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.volumes import volume_migration, volume_patch
from livevirt.vm.volumes.volume_lists import claim_info, claim_of
from livevirt.vm.volumes.volume_patch import FORCE_DETACH

log = logging.getLogger(__name__)


class VolumeUpdates:
    """Passes forced detaches on to instances, and lets copied volumes replace their sources."""

    def __init__(self, client: Client, writer: VirtualMachineWriter) -> None:
        self._client, self._writer = client, writer

    async def update(self, vm: Object, vmi: Object) -> bool:
        """Bring VM and instance to agree; return whether one of them was changed."""
        guest = snapshot.guest(vmi, vm)
        if guest is None or guest.owner != "this" or guest.deleting:
            return False
        if await self._pass_on_force(vm, vmi):
            return True
        return not guest.final and await self._let_switch(vm, vmi)

    async def copies(self, vmi: Object, judgement: Judgement, patch: Object) -> list[Object] | None:
        """Return the copies an instance makes once it is patched, None if they stay the same."""
        volumes = (patch.get("spec") or {}).get("volumes")
        if volumes is None:
            return None
        copied, infos = volume_migration.follows(judgement), {}
        for volume in volumes:
            if volume["name"] in copied:
                name = claim_of(volume)
                infos[name] = await self._claim_info(name, vmi["metadata"]["namespace"])
        found = volume_migration.moved(judgement, vmi, volumes, infos)
        written = status_of(vmi).get("migratedVolumes") or []
        return found if found != written else None

    async def record(self, vm: Object, vmi: Object, patch: Object, copies: list[Object]) -> bool:
        """Record in the VM the copies that its instance is about to make.

        Return whether the VM was written; only one that has recorded them lets them begin.
        """
        spec = vmi["spec"]
        volumes = (patch.get("spec") or {}).get("volumes", spec.get("volumes"))
        soon = {**vmi, "spec": {**spec, "volumes": volumes}, "status": {"migratedVolumes": copies}}
        known = volume_migration.remembered(vm, soon, None)
        if known == volume_migration.written(vm):
            return False
        state = {"volumeUpdateState": volume_migration.state(known)}
        await self._writer.write_status(vm, state)
        return True

    async def _pass_on_force(self, vm: Object, vmi: Object) -> bool:
        """Annotate the instance with the volumes that its owner wants detached by force.

        Of volumes that are detached the VM forgets it, so that the next detach waits again.
        """
        meta, wanted = vmi["metadata"], volume_patch.passed_on(vm, vmi)
        if (meta.get("annotations") or {}).get(FORCE_DETACH) == wanted:
            return await self._forget_force(vm, vmi)
        return await self._patch_instance(vmi, {"annotations": {FORCE_DETACH: wanted}}, {})

    async def _forget_force(self, vm: Object, vmi: Object) -> bool:
        named, left = volume_patch.names(vm), volume_patch.left(vm, vmi)
        if (left or "") == ",".join(named):
            return False
        log.info("forced detach done", extra=facts(vm) | {"left": left or ""})
        with contextlib.suppress(NotFound):
            await self._writer.patch(vm, {"metadata": {"annotations": {FORCE_DETACH: left}}})
            return True
        return False

    async def _let_switch(self, vm: Object, vmi: Object) -> bool:
        """Let the guest switch to the claims that have all of its data, once the VM records it."""
        moved = volume_migration.switching(vm, vmi)
        if moved is None:
            return False
        if await self.record(vm, vmi, {}, moved):
            return True
        return await self._patch_instance(vmi, {}, {"status": {"migratedVolumes": moved}})

    async def _patch_instance(self, vmi: Object, metadata: Object, patch: Object) -> bool:
        """Change an instance as it was read; return whether it is still there."""
        meta = vmi["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.VMI,
                meta["name"],
                meta["namespace"],
                {**patch, "metadata": {**version, **metadata}},
            )
            return True
        return False

    async def _claim_info(self, name: str, namespace: str) -> Object:
        try:
            return claim_info(await self._client.get(core.CLAIM, name, namespace))
        except NotFound:
            return {}
