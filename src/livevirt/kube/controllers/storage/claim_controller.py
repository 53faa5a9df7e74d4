"""Watches claims and brings each together with a volume."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from livevirt.errors import AlreadyExists, LivevirtError, NotFound
from livevirt.files import disk_space, durable, loop_device
from livevirt.files.raw_file import Directories, write_problem
from livevirt.kube.client.interface import Client, if_unchanged
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.controllers.storage import claim_plan
from livevirt.kube.controllers.storage.claim_plan import ClaimSnapshot, Step, Usage, plan
from livevirt.kube.objects import core, quantity, storage
from livevirt.kube.objects.request import Object

log = logging.getLogger(__name__)

_UNBOUND = "volumes.unbound"  # claims without a volume, by their class
_CLAIM = "volumes.claim"  # volumes by the claim they name


@dataclass(frozen=True, slots=True)
class Sources:
    """The informers that the controllers of this package share, and who uses a claim."""

    claims: Informer
    volumes: Informer
    classes: Informer
    usage: Usage


class Claims:
    """Binds claims; what uses them decides when."""

    def __init__(
        self, client: Client, recorder: Recorder, directories: Directories, sources: Sources
    ) -> None:
        self._client, self._recorder = client, recorder
        self._directories, self._usage = directories, sources.usage
        self._claims, self._volumes = sources.claims, sources.volumes
        self._classes = sources.classes
        self._claims.index(_UNBOUND, _unbound)
        self._volumes.index(_CLAIM, volume_claim)
        self._controller = Controller("claims", self.reconcile)
        self._controller.watches(self._claims).watches(self._volumes, self._concerned)
        self._controller.watches(self._classes, self._of_class)
        self._usage.wakes(self._controller)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result:
        """Take a claim as far as it can go."""
        claim = self._claims.get(key)
        if claim is None:
            return DONE
        seen = self._observe(key, claim)
        try:
            while not isinstance(step := plan(seen, self._directories.root), claim_plan.Rest):
                seen = await self._act(step, seen)
        except NotFound:
            return DONE  # the claim or its volume went, and both wake us
        if step.reason:
            self._recorder.event(seen.claim, step.type, step.reason, step.message)
        return DONE

    def _observe(self, key: Key, claim: Object) -> ClaimSnapshot:
        users = self._usage.of(key)
        volume = self._volume_of(key, claim)
        class_name = storage.class_of(claim)
        return ClaimSnapshot(
            claim,
            self._classes.get(Key("", class_name)) if class_name else None,
            volume,
            tuple(self._volumes.list()) if volume is None else (),
            disk=self._disk(volume),
            used=bool(users),
            scheduled=any(user.node for user in users),
            no_devices=loop_device.problem(),
        )

    def _disk(self, volume: Object | None) -> int | None:
        if volume is None or not claim_plan.is_ours(volume):
            return None
        return self._directories.size(volume["metadata"]["name"])

    def _volume_of(self, key: Key, claim: Object) -> Object | None:
        if name := claim["spec"].get("volumeName"):
            return self._volumes.get(Key("", name))
        promised = (v for v in self._volumes.by(_CLAIM, key) if claim_plan.promised_to(v, claim))
        return next(promised, None)

    async def _act(self, step: Step, seen: ClaimSnapshot) -> ClaimSnapshot:
        patch: Object
        match step:
            case claim_plan.Protect(finalizers) | claim_plan.Release(finalizers):
                patch = {"metadata": {"finalizers": list(finalizers)}}
                return replace(seen, claim=await self._patch_claim(seen.claim, patch))
            case claim_plan.Reserve(volume, reference):
                annotations = {claim_plan.BOUND_BY_US: "yes"}
                patch = {"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}}
                return replace(seen, volume=await self._patch_volume(volume, patch))
            case claim_plan.Provision(volume):
                return replace(seen, volume=await self._provision(seen.claim, volume))
            case claim_plan.Bind(volume_name):
                annotations = {claim_plan.BIND_COMPLETED: "yes", claim_plan.BOUND_BY_US: "yes"}
                patch = {
                    "metadata": {"annotations": annotations},
                    "spec": {"volumeName": volume_name},
                }
                claim = await self._patch_claim(seen.claim, patch)
                log.info("claim bound", extra={"claim": str(key_of(claim)), "volume": volume_name})
                return replace(seen, claim=claim)
            case claim_plan.Grow(capacity):
                assert seen.volume is not None
                patch = {"spec": {"capacity": {"storage": capacity}}}
                volume = await self._patch_volume(seen.volume, patch)
                message = f"the volume holds {capacity} now"
                self._recorder.event(seen.claim, "Normal", "VolumeResizeSuccessful", message)
                return replace(seen, volume=volume)
            case claim_plan.GrowDisk(size):
                return replace(seen, disk=await self._grow_disk(seen, size))
            case claim_plan.Report(status):
                left_out = {name: None for name in seen.claim["status"] if name not in status}
                patch = {"status": {**status, **left_out}}
                claim = await self._patch_claim(seen.claim, patch, subresource="status")
                return replace(seen, claim=claim)
            case claim_plan.Rest():
                return seen

    async def _grow_disk(self, seen: ClaimSnapshot, size: int) -> int:
        assert seen.volume is not None
        name = seen.volume["metadata"]["name"]
        try:
            await durable.finished(self._directories.grow, name, size)
        except OSError as error:
            problem = write_problem(error, str(self._directories.root))
            self._recorder.event(seen.claim, "Warning", "VolumeResizeFailed", problem)
            raise LivevirtError(problem) from error
        log.info("disk grown", extra={"claim": str(key_of(seen.claim)), "bytes": size})
        return size

    async def _provision(self, claim: Object, volume: Object) -> Object:
        name = volume["metadata"]["name"]
        self._check_space(claim, volume)
        try:
            made = await self._client.create(core.VOLUME, volume)
        except AlreadyExists:  # the copy we read from is late
            return await self._client.get(core.VOLUME, name)
        message = f"Successfully provisioned volume {name}"
        self._recorder.event(claim, "Normal", "ProvisioningSucceeded", message)
        log.info("volume made", extra={"claim": str(key_of(claim)), "volume": name})
        return made

    def _check_space(self, claim: Object, volume: Object) -> None:
        """Refuse a volume that would promise more than the file system can give."""
        root = self._directories.root
        root = root if root.exists() else root.parent
        already = sum(map(_capacity, filter(claim_plan.is_ours, self._volumes.list())))
        if why := disk_space.refusal(root, already, _capacity(volume)):
            self._recorder.event(claim, "Warning", "ProvisioningFailed", why)
            raise LivevirtError(why)

    async def _patch_claim(self, claim: Object, patch: Object, subresource: str = "") -> Object:
        meta = claim["metadata"]
        return await self._client.patch(
            core.CLAIM, meta["name"], meta["namespace"], if_unchanged(claim, patch),
            subresource=subresource,
        )  # fmt: skip

    async def _patch_volume(self, volume: Object, patch: Object) -> Object:
        name = volume["metadata"]["name"]
        return await self._client.patch(core.VOLUME, name, "", if_unchanged(volume, patch))

    def _concerned(self, volume: Object) -> list[Key]:
        if found := volume_claim(volume):
            return found
        name = volume["spec"].get("storageClassName") or ""
        return [key_of(claim) for claim in self._claims.by(_UNBOUND, name)]

    def _of_class(self, storage_class: Object) -> list[Key]:
        name = storage_class["metadata"]["name"]
        return [key_of(claim) for claim in self._claims.by(_UNBOUND, name)]


def _capacity(volume: Object) -> int:
    return quantity.parse(volume["spec"]["capacity"]["storage"]).bytes


def volume_claim(volume: Object) -> list[Key]:
    """Return the claim a volume names, if it names one."""
    reference = volume["spec"].get("claimRef") or {}
    if not reference.get("name"):
        return []
    return [Key(reference.get("namespace") or "", reference["name"])]


def _unbound(claim: Object) -> list[str]:
    return [] if claim["spec"].get("volumeName") else [storage.class_of(claim)]
