"""Rolls an edit of a VirtualMachine out to its running instance, as far as the verdict allows."""

from __future__ import annotations

import contextlib
import logging

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import InformerReader
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.merge_patch import combined
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm import status as statuses
from livevirt.vm.lifecycle.vm import writer
from livevirt.vm.lifecycle.vm.volumes import VolumeUpdates
from livevirt.vm.lifecycle.vm.writer import facts
from livevirt.vm.sizing import hot_change
from livevirt.vm.verdict.gather import gather
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import live_patch, settles
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.volumes.volume_patch import volume_patch

log = logging.getLogger(__name__)


class LiveUpdate:
    """Judges VMs against what runs, and patches instances with what is live."""

    def __init__(
        self,
        client: Client,
        now: Now,
        recorder: Recorder,
        reader: InformerReader,
        volumes: VolumeUpdates,
    ) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._reader = _FreshReader(client, reader)
        self._volumes = volumes

    async def judge(self, vm: Object, vmi: Object | None) -> Judgement:
        """Return the verdict on a VM; an instance that has all of the VM is not even compared."""
        if vmi is None or statuses.has_all(vmi, vm):
            return Judgement()
        return judge(await gather(vm, self._reader, self._now()))

    async def roll_out(self, vm: Object, vmi: Object, judgement: Judgement) -> bool:
        """Patch the instance with what is live; annotate it with the generation it has all of.

        Return whether the VM or the instance was changed.
        """
        patch = combined(live_patch(judgement, vmi), volume_patch(judgement, vmi))
        if patch:
            copies = await self._volumes.copies(vmi, judgement, patch)
            if copies is not None and await self._volumes.record(vm, vmi, patch, copies):
                return True
            named = [*patch.get("spec", ()), *patch.get("metadata", ())]
            log.info("instance follows its VM", extra=facts(vm) | {"fields": named})
            self._add_status(patch, vmi, judgement, copies)
        meta = vmi["metadata"]
        version: Object = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        if settles(judgement):
            version["annotations"] = statuses.marks(vm)
        elif not patch:
            return False
        try:
            await self._client.patch(
                kinds.VMI, meta["name"], meta["namespace"], combined(patch, {"metadata": version})
            )
        except NotFound:
            return False
        if patch:
            writer.rolled_out(self._recorder, vm, judgement)
        return True

    def _add_status(
        self, patch: Object, vmi: Object, judgement: Judgement, copies: list[Object] | None
    ) -> None:
        """Add what the change begins with, so that it is under way from the moment it is there."""
        status: Object = {}
        if copies is not None:
            status["migratedVolumes"] = copies or None
        if (revision := hot_change.requested(judgement, vmi)) is not None:
            status[hot_change.REQUESTED] = revision
        if status:
            patch["status"] = status


#: What is read from the server for every edit.
READ_FRESH = (kinds.KUBEVIRT, core.NAMESPACE, core.REVISION)


class _FreshReader:
    """Informers, but for what an edit must be judged by as it is at this moment.

    Settings are read from the server, so that an edit made after a change of them is judged by it,
    and so is the namespace, which may have a rollout strategy; so are the records of starts, which
    no informer holds.
    """

    def __init__(self, client: Client, informers: InformerReader) -> None:
        self._client, self._informers = client, informers

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        if kind not in READ_FRESH:
            return self._informers.get(kind, name, namespace)
        with contextlib.suppress(NotFound):
            return await self._client.get(kind, name, namespace)
        return None

    async def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return self._informers.list(kind, namespace)

    async def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        return self._informers.occupancy(node, instance)
