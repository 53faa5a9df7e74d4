"""Watches DataVolumes: makes their claims and fills them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from livevirt.errors import AlreadyExists, Forbidden, Invalid, NotFound
from livevirt.files.raw_file import Directories
from livevirt.kube.client.interface import Client, if_unchanged
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import core
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.storage import BIND_AT_ONCE, class_of, default_class
from livevirt.vm import kinds
from livevirt.vm.datavolumes import filling, importer
from livevirt.vm.datavolumes import plan as datavolumes_plan
from livevirt.vm.datavolumes.importer import Blank, Clone, Images, Order, Stored
from livevirt.vm.datavolumes.imports import Imports, Job
from livevirt.vm.datavolumes.plan import DataVolumeSnapshot, Origin, Step, plan
from livevirt.vm.datavolumes.qemu_img import Progress
from livevirt.vm.datavolumes.status import status
from livevirt.vm.volumes.usage import Usage, claims_of

log = logging.getLogger(__name__)

_SOURCE = "volumes.source"  # DataVolumes by the claim they copy
_ASK_AGAIN = timedelta(seconds=15)  # for a claim that was refused: a quota may have grown


@dataclass(frozen=True, slots=True)
class Sources:
    """The informers the controller follows, and what knows which claims are in use."""

    datavolumes: Informer
    claims: Informer
    classes: Informer
    usage: Usage


class DataVolumes:
    """Owns DataVolumes' status, their claims and what is written into these."""

    def __init__(
        self,
        client: Client,
        now: Now,
        recorder: Recorder,
        directories: Directories,
        images: Images,
        sources: Sources,
    ) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._directories, self._usage, self._images = directories, sources.usage, images
        self._datavolumes, self._claims = sources.datavolumes, sources.claims
        self._classes = sources.classes
        self._datavolumes.index(_SOURCE, source_claim)
        self._controller = Controller("datavolumes", self.reconcile)
        self._imports = Imports(now, self._controller.queue.add)
        self._started: dict[Key, str] = {}  # uids of what is being filled
        for informer in (self._datavolumes, self._claims):  # a copy waits for both of its source
            self._controller.watches(informer, lambda obj: self._concerned([key_of(obj)]))
        self._usage.wakes(self._controller, lambda user: self._concerned(claims_of(user)))

    async def run(self) -> None:
        """Work until cancelled."""
        async with self._imports:
            await self._controller.run()

    async def reconcile(self, key: Key) -> Result:
        """Take a DataVolume as far as it can go, and write down how far that is."""
        dv = self._datavolumes.get(key)
        uid = dv["metadata"]["uid"] if dv is not None else ""
        if self._started.get(key, uid) != uid:
            await self._stop(key)
        if dv is None:
            return DONE
        seen = self._observe(key, dv)
        try:
            while not isinstance(step := plan(seen), datavolumes_plan.Rest):
                seen = await self._act(key, step, seen)
            if step.reason:
                self._recorder.event(dv, step.type, step.reason, step.message)
            await self._report(seen)
        except NotFound:
            return DONE
        return Result(_ASK_AGAIN if seen.refused else step.after)

    def _observe(self, key: Key, dv: Object) -> DataVolumeSnapshot:
        claim = self._claims.get(key)
        volume, disk = self._volume(claim)
        return DataVolumeSnapshot(
            dv,
            self._now(),
            claim,
            volume,
            disk,
            storage_class=self._class(claim, dv),
            origin=self._origin(dv),
            job=self._imports.of(dv["metadata"]["uid"]),
        )

    def _volume(self, claim: Object | None) -> tuple[str, bool]:
        """Return the name of a bound claim's volume and whether there is a disk on it."""
        if claim is None or status_of(claim).get("phase") != "Bound":
            return "", False
        name = claim["spec"]["volumeName"]
        return name, self._directories.disk(name).exists()

    def _class(self, claim: Object | None, dv: Object) -> Object | None:
        wanted = dv["spec"].get("pvc") or dv["spec"].get("storage") or {}
        name = class_of(claim) if claim is not None else wanted.get("storageClassName")
        if name is None:
            return default_class(self._classes.list())
        return self._classes.get(Key("", name))

    def _origin(self, dv: Object) -> Origin | None:
        for key in source_claim(dv):
            claim = self._claims.get(key)
            reason, obstacle = self._obstacle(key, claim)
            return Origin(claim, obstacle, reason)
        return None

    def _obstacle(self, key: Key, claim: Object | None) -> tuple[str, str]:
        """Return why a claim cannot be copied now."""
        if claim is None:
            return "CloneSourceNotFound", f'source claim "{key}" not found'
        writer = next((user for user in self._usage.of(key) if not user.read_only), None)
        if writer is not None:
            return "CloneSourceInUse", f'{writer.what} using PersistentVolumeClaim "{key}"'
        filler = self._datavolumes.get(key)
        filled = filler is None or status_of(filler).get("phase") == "Succeeded"
        _, disk = self._volume(claim)
        if not (filled and disk):
            return "CloneSourceNotReady", f'source claim "{key}" holds no disk yet'
        return "", ""

    async def _act(self, key: Key, step: Step, seen: DataVolumeSnapshot) -> DataVolumeSnapshot:
        match step:
            case datavolumes_plan.CreateClaim(claim):
                return await self._create_claim(seen, claim)
            case datavolumes_plan.AdoptClaim(reference):
                assert seen.claim is not None
                owners = seen.claim["metadata"].get("ownerReferences") or []
                # As with one we make: that it is filled is use enough to be bound.
                at_once = {BIND_AT_ONCE: "true"}
                patch = {
                    "metadata": {"ownerReferences": [*owners, reference], "annotations": at_once}
                }
                claim = await self._client.patch(
                    core.CLAIM, key.name, key.namespace, if_unchanged(seen.claim, patch)
                )
                return replace(seen, claim=claim)
            case datavolumes_plan.Start():
                return replace(seen, job=self._start(key, seen))
            case datavolumes_plan.Stop():
                await self._stop(key)
                return replace(seen, job=None)
            case datavolumes_plan.Rest():
                return seen

    async def _create_claim(self, seen: DataVolumeSnapshot, claim: Object) -> DataVolumeSnapshot:
        namespace = claim["metadata"]["namespace"]
        try:
            made = await self._client.create(core.CLAIM, claim, namespace)
        except AlreadyExists:  # the copy we read from is late
            name = claim["metadata"]["name"]
            return replace(seen, claim=await self._client.get(core.CLAIM, name, namespace))
        except (Forbidden, Invalid) as error:
            self._recorder.event(seen.dv, "Warning", "ErrExceededQuota", str(error))
            return replace(seen, refused=str(error))
        return replace(seen, claim=made)

    def _start(self, key: Key, seen: DataVolumeSnapshot) -> Job:
        dv, claim = seen.dv, seen.claim
        assert claim is not None
        asked = claim["spec"]["resources"]["requests"]["storage"]
        room = min(parse(datavolumes_plan.capacity(claim)), parse(asked)).bytes
        directory = self._directories.of(seen.volume)

        async def work(progress: Progress) -> None:
            origin = await self._resolve(dv)
            preallocate = bool(dv["spec"].get("preallocation"))
            await importer.fill(Order(origin, directory, room, preallocate), progress)

        self._started[key] = dv["metadata"]["uid"]
        log.info("import started", extra={"datavolume": str(key), "volume": seen.volume})
        return self._imports.start(key, dv["metadata"]["uid"], work)

    async def _resolve(self, dv: Object) -> importer.Origin:
        name, namespace = datavolumes_plan.source_of(dv), dv["metadata"]["namespace"]
        source = dv["spec"]["source"][name]
        match name:
            case "http":
                return await importer.http(source, namespace, self._client)
            case "registry":
                return Stored(importer.image_name(source), self._images)
            case "pvc":
                (key,) = source_claim(dv)
                claim = await self._client.get(core.CLAIM, key.name, key.namespace)
                return Clone(self._directories.disk(claim["spec"]["volumeName"]))
            case _:
                return Blank()

    async def _stop(self, key: Key) -> None:
        uid = self._started.pop(key, "")
        await self._imports.stop(uid)

    async def _report(self, seen: DataVolumeSnapshot) -> None:
        now, before = status(seen), status_of(seen.dv)
        if now == before:
            return
        meta = seen.dv["metadata"]
        if now["phase"] == "Succeeded" and before.get("phase") != "Succeeded":
            # A filler that was killed after its last step may have left its place of work.
            await asyncio.to_thread(filling.sweep, self._directories.of(seen.volume))
        await self._client.patch(
            kinds.DATA_VOLUME, meta["name"], meta["namespace"],
            if_unchanged(seen.dv, {"status": now}), subresource="status",
        )  # fmt: skip
        if now["phase"] != before.get("phase"):
            self._record_event(seen.dv, now)

    def _record_event(self, dv: Object, now: Object) -> None:
        verb = "Clone" if datavolumes_plan.source_of(dv) == "pvc" else "Import"
        running = next(each for each in now["conditions"] if each["type"] == "Running")
        log.info("phase", extra={"datavolume": str(key_of(dv)), "phase": now["phase"]})
        match now["phase"]:
            case "Succeeded":
                self._recorder.event(dv, "Normal", f"{verb}Succeeded", "the disk is complete")
            case "Failed":
                self._recorder.event(dv, "Warning", f"{verb}Failed", running.get("message", ""))

    def _concerned(self, claims: list[Key]) -> list[Key]:
        copies = [dv for claim in claims for dv in self._datavolumes.by(_SOURCE, claim)]
        return [*claims, *(key_of(dv) for dv in copies)]


def source_claim(dv: Object) -> list[Key]:
    """Return the claim a DataVolume copies, if it copies one."""
    source = (dv["spec"].get("source") or {}).get("pvc")
    if not source:
        return []
    return [Key(source.get("namespace") or dv["metadata"]["namespace"], source["name"])]
