"""Fills a claim of a running livevirt from a file, through its API and its data directory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from livevirt.errors import LivevirtError, NotFound
from livevirt.files.raw_file import Directories
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.controllers.storage import claim_plan
from livevirt.kube.objects import core, storage
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.quantity import Format, Quantity, QuantityError, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.storage import BIND_AT_ONCE
from livevirt.vm import kinds
from livevirt.vm.datavolumes import importer, qemu_img
from livevirt.vm.datavolumes.importer import File, Order
from livevirt.vm.datavolumes.qemu_img import Image, Progress
from livevirt.vm.volumes import usage

BIND_SECONDS = 60.0
_MIB = 2**20


class VolumeError(LivevirtError):
    """The claim cannot be filled; the message names what to do."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What was asked for."""

    file: Path
    namespace: str
    claim: str
    size: str | None = None

    @property
    def key(self) -> Key:
        """The key of the claim."""
        return Key(self.namespace, self.claim)


async def fill(
    client: Client, directories: Directories, request: ImportRequest, progress: Progress
) -> None:
    """Make the claim if need be and fill it; a claim that was made goes again if that fails."""
    image = await qemu_img.probe(request.file)
    made = None
    try:
        claim = await client.get(core.CLAIM, request.claim, request.namespace)
        refuse_present(claim, request)
    except NotFound:
        wanted = new_claim(request, image.virtual_size)
        claim = made = await client.create(core.CLAIM, wanted, request.namespace)
    try:
        claim = await _bound(client, claim, request.key)
        await _refuse_used(client, request.key)
        await importer.fill(await _order(client, directories, claim, image), progress)
    except BaseException:
        if made is not None:
            uid = made["metadata"]["uid"]
            await client.delete(core.CLAIM, request.claim, request.namespace, uid=uid)
        raise


def new_claim(request: ImportRequest, virtual_size: int) -> Object:
    """Return the claim for a disk of that size, to be bound at once."""
    fitting = Quantity.from_int(-(-virtual_size // _MIB) * _MIB, Format.BINARY_SI)
    wanted = fitting if request.size is None else _size(request.size)
    if wanted.bytes < virtual_size:
        raise VolumeError(
            f"--size {request.size} is too small: the disk in the file needs {fitting};"
            " give at least that, or leave out --size"
        )
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": request.claim,
            "namespace": request.namespace,
            "annotations": {BIND_AT_ONCE: "true"},
        },
        "spec": {
            "accessModes": [storage.PROVISIONED_ACCESS_MODES[0]],
            "resources": {"requests": {"storage": str(wanted)}},
        },
    }


def _size(text: str) -> Quantity:
    try:
        return parse(text)
    except QuantityError as error:
        raise VolumeError(
            f"--size {text} is not a size: {error}; write for example 20Gi"
        ) from error


def refuse_present(claim: Object, request: ImportRequest) -> None:
    """Refuse a claim that is there and is not for us to fill."""
    meta = claim["metadata"]
    if "deletionTimestamp" in meta:
        raise VolumeError(f"claim {request.key} is being deleted; try again when it is gone")
    if any(each.get("kind") == "DataVolume" for each in meta.get("ownerReferences") or ()):
        raise VolumeError(
            f"claim {request.key} belongs to a DataVolume, which fills it; name another claim"
        )
    asked = storage.size(claim)
    if request.size is not None and _size(request.size) != asked:
        raise VolumeError(
            f"claim {request.key} asks for {asked} already: leave out --size, or name another claim"
        )


async def _bound(client: Client, claim: Object, key: Key) -> Object:
    """Return the claim once it is bound."""
    if not claim["spec"].get("volumeName"):
        patch = {"metadata": {"annotations": {BIND_AT_ONCE: "true"}}}
        claim = await client.patch(core.CLAIM, key.name, key.namespace, patch)
    try:
        async with asyncio.timeout(BIND_SECONDS):
            return await _until_bound(client, claim, key)
    except TimeoutError:
        raise VolumeError(
            f"claim {key} was not bound within {BIND_SECONDS:.0f} s. See why:"
            f" kubectl describe pvc -n {key.namespace} {key.name}"
        ) from None


async def _until_bound(client: Client, claim: Object, key: Key) -> Object:
    while (claim.get("status") or {}).get("phase") != "Bound":
        events = client.watch(
            core.CLAIM, key.namespace, fields=f"metadata.name={key.name}",
            resource_version=claim["metadata"]["resourceVersion"],
        )  # fmt: skip
        async for event in events:
            if event.type == "DELETED":
                raise VolumeError(
                    f"claim {key} was deleted before it was bound; run the command again"
                )
            if event.type in ("ADDED", "MODIFIED"):
                claim = event.object
                break
    return claim


async def _refuse_used(client: Client, key: Key) -> None:
    for kind in (core.POD, kinds.VMI):
        page = await client.list(kind, key.namespace)
        for obj in page.items:
            ended = (obj.get("status") or {}).get("phase") in FINAL
            if key in usage.claims_of(obj) and not ended:
                raise VolumeError(
                    f"claim {key} is used by {kind.kind} {obj['metadata']['name']}: stop it first"
                )


async def _order(client: Client, directories: Directories, claim: Object, image: Image) -> Order:
    found = await client.get(core.VOLUME, claim["spec"]["volumeName"])
    name = found["metadata"]["name"]
    if not claim_plan.is_ours(found) or not directories.exists(name):
        raise VolumeError(
            f"volume {name} is not kept in {directories.root}, so it cannot be filled here; name a"
            " claim of the default storage class, or a new one"
        )
    if directories.disk(name).exists():
        raise VolumeError(
            f"claim {key_of(claim)} holds a disk already, which is left as it is:"
            " delete the claim or name another"
        )
    return Order(File(image.path), directories.of(name), storage.size(claim).bytes)
