"""Watches PersistentVolumes: makes their directories, writes their phases, reclaims them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from livevirt.errors import NotFound
from livevirt.files.raw_file import Directories
from livevirt.kube.client.interface import Client, if_unchanged
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.controllers.storage import claim_plan
from livevirt.kube.controllers.storage import volume_plan as steps
from livevirt.kube.controllers.storage.claim_controller import Sources, volume_claim
from livevirt.kube.controllers.storage.claim_plan import Protect, Release
from livevirt.kube.controllers.storage.volume_plan import Facts, Step, plan
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object

log = logging.getLogger(__name__)

_OF_CLAIM = "volumes.of-claim"


class Volumes:
    """Owns the phase of volumes and the directories behind ours."""

    def __init__(
        self, client: Client, recorder: Recorder, directories: Directories, sources: Sources
    ) -> None:
        self._client, self._recorder = client, recorder
        self._directories, self._usage = directories, sources.usage
        self._claims, self._volumes = sources.claims, sources.volumes
        self._volumes.index(_OF_CLAIM, volume_claim)
        self._controller = Controller("volumes", self.reconcile)
        self._controller.watches(self._volumes)
        self._controller.watches(self._claims, lambda claim: self._named_by(key_of(claim)))
        self._usage.wakes(self._controller, self._behind)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result:
        """Take a volume as far as it can go."""
        volume = self._volumes.get(key)
        if volume is None:
            return DONE
        try:
            seen = await self._observe(volume)
            while not isinstance(step := plan(seen), steps.Rest):
                seen = await self._act(step, seen)
        except NotFound:
            log.debug("volume went away", extra={"volume": str(key)})
        return DONE

    async def _observe(self, volume: Object) -> Facts:
        name = volume["metadata"]["name"]
        claim, used = None, False
        for key in volume_claim(volume):
            claim = await self._claim(key, volume)
            held = claim is not None and claim_plan.held_by(volume, claim)
            used = not held and bool(self._usage.of(key))
        directory = claim_plan.is_ours(volume) and self._directories.exists(name)
        return Facts(volume, claim, directory, used)

    async def _claim(self, key: Key, volume: Object) -> Object | None:
        """Return the claim; that it is gone is believed of the server only, never of a copy."""
        claim = self._claims.get(key)
        if claim is not None and claim_plan.held_by(volume, claim):
            return claim
        try:
            return await self._client.get(core.CLAIM, key.name, key.namespace)
        except NotFound:
            return None

    async def _act(self, step: Step, seen: Facts) -> Facts:
        name = seen.volume["metadata"]["name"]
        patch: Object
        match step:
            case Protect(finalizers) | Release(finalizers):
                patch = {"metadata": {"finalizers": list(finalizers)}}
                return replace(seen, volume=await self._patch(seen.volume, patch))
            case steps.SetPhase(phase):
                patch = {"status": {"phase": phase}}
                volume = await self._patch(seen.volume, patch, subresource="status")
                return replace(seen, volume=volume)
            case steps.MakeDirectory():
                await asyncio.to_thread(self._directories.make, name)
                return replace(seen, directory=True)
            case steps.RemoveDirectory():
                await self._remove(seen.volume)
                log.info("volume data removed", extra={"volume": name})
                return replace(seen, directory=False)
            case steps.Delete():
                await self._client.delete(core.VOLUME, name, uid=seen.volume["metadata"]["uid"])
                return replace(seen, volume=await self._client.get(core.VOLUME, name))
            case steps.Rest():
                return seen

    async def _remove(self, volume: Object) -> None:
        try:
            await asyncio.to_thread(self._directories.remove, volume["metadata"]["name"])
        except OSError as error:
            self._recorder.event(volume, "Warning", "VolumeFailedDelete", str(error))
            raise

    async def _patch(self, volume: Object, patch: Object, subresource: str = "") -> Object:
        name = volume["metadata"]["name"]
        return await self._client.patch(
            core.VOLUME, name, "", if_unchanged(volume, patch), subresource=subresource
        )

    def _behind(self, user: Object) -> list[Key]:
        return [volume for claim in self._usage.claims_of(user) for volume in self._named_by(claim)]

    def _named_by(self, claim: Key) -> list[Key]:
        return [key_of(volume) for volume in self._volumes.by(_OF_CLAIM, claim)]
