"""From the volumes of a VMI to files QEMU can open.

Everything a guest may write lies in its own pod's directory or in its own claim's. A volume names
an image of the store, a secret, or a claim: never a path. Claims lead to directories below known
roots, and the way there is walked without following symbolic links.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

from livevirt.errors import LivevirtError, NotFound
from livevirt.files import disk_space, loop_device, private, raw_file
from livevirt.files.disk_space import Promises
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import conditions, core, quantity
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.node import scratch
from livevirt.node.images import ImageError, ImageStore
from livevirt.qemu.disk import Format, Image
from livevirt.vm import kinds
from livevirt.vm.spec import disks
from livevirt.vm.volumes.volume_lists import claim_of
from livevirt.vm.volumes.volume_migration import claims as copied

CLAIM_FILE = "disk.img"
PVC_NOT_FOUND, DATA_NOT_READY, DATA_FAILED = (
    "FailedPvcNotFound",
    "DataVolumeNotReady",
    "DataVolumeFailed",
)
FAILED_MOUNT, DISK_FULL = "FailedMount", "DiskFull"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ON_ITS_WAY = ("Pending", "Completed")  # reasons of an import that is not stuck


class VolumeProblem(LivevirtError):
    """A volume is not there yet; `reason` is what the pod's container waits for."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Prepared:
    """A volume that is ready to be used by QEMU."""

    image: Image
    direct: bool = False  # the host's page cache can be left out
    discard: bool = True
    readonly: bool = False  # whatever the disk sets
    scsi: bool = False  # a SCSI device of the host, which can be given to a guest as it is
    size: int | None = None  # of images made here
    claim: Object | None = None
    digest: str = ""  # of the image it began as


class NodeVolumes(Protocol):
    """Finds the volumes that a running guest may be given."""

    async def attachable(self, namespace: str, volume: Object) -> Prepared:
        """Return the disk image of a volume in a claim; raises VolumeProblem until it is ready."""

    def release(self, prepared: Prepared) -> None:
        """Release a volume that QEMU has opened, or will not."""

    async def holders(self, namespace: str, claim: str, uid: str) -> list[str]:
        """Return the names of other VMIs that have a claim in use or want to."""


class Volumes:
    """Prepares the volumes of the pods of one node."""

    def __init__(
        self,
        client: Client,
        images: ImageStore,
        roots: Sequence[Path],
        owner: tuple[int, int] | None,
        promises: Promises,
    ) -> None:
        self._client = client
        self._images = images
        self._roots = tuple(roots)
        self._owner = owner
        self._promises = promises  # to guests' disks, scratch disks included

    async def prepare(
        self, vmi: Object, folder: Path, metadata: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Make or find the file of every volume of a VMI that has no guest yet.

        What a start that was cut short left in `folder` is replaced. A volume that is not ready is
        left out if it can be attached later.
        """
        found, later = {}, disks.may_come_later(vmi["spec"])
        for volume in vmi["spec"].get("volumes") or ():
            name = volume["name"]
            if disks.hotpluggable(volume):
                try:
                    found[name] = await self.attachable(vmi["metadata"]["namespace"], volume)
                except VolumeProblem:
                    if name not in later:
                        raise
                continue
            prepared = await self._prepare(vmi, volume, folder, metadata)
            if prepared is not None:
                found[name] = prepared
        return found

    async def attachable(self, namespace: str, volume: Object) -> Prepared:
        """Return the disk image of a volume in a claim; raises VolumeProblem until it is ready."""
        found = await self._claimed(namespace, claim_of(volume))
        source = volume.get("persistentVolumeClaim") or {}
        return replace(found, readonly=bool(source.get("readOnly")))

    def release(self, prepared: Prepared) -> None:
        """Release a volume that QEMU has opened, or will not: its device goes with QEMU."""
        image: Image | None = prepared.image
        while image is not None:
            if image.block:
                with contextlib.suppress(OSError):  # gone, with its claim
                    loop_device.release(Path(image.path).with_name(CLAIM_FILE))
            image = image.backing

    async def holders(self, namespace: str, claim: str, uid: str) -> list[str]:
        """Return the names of other VMIs that have a claim in use or want to."""
        page = await self._client.list(kinds.VMI, namespace)
        return [
            vmi["metadata"]["name"]
            for vmi in page.items
            if vmi["metadata"]["uid"] != uid
            and (vmi.get("status") or {}).get("phase") not in FINAL
            and claim in (*map(claim_of, vmi["spec"].get("volumes") or ()), *copied(vmi))
        ]

    async def _find(self, kind: Kind, name: str, namespace: str) -> Object | None:
        try:
            return await self._client.get(kind, name, namespace)
        except NotFound:
            return None

    async def _prepare(
        self, vmi: Object, volume: Object, folder: Path, metadata: Mapping[str, Any]
    ) -> Prepared | None:
        name, namespace = volume["name"], vmi["metadata"]["namespace"]
        match volume:
            case {"containerDisk": dict(disk)}:
                return await self._overlay(await self._stored(disk), folder / f"{name}.qcow2")
            case {"emptyDisk": dict(disk)}:
                return await self._empty(folder / f"{name}.img", name, disk)
            case {"cloudInitNoCloud": dict(source)}:
                secrets = await self._secrets(scratch.secret_names(source), namespace)
                return self._disc(folder / f"{name}.iso", source, metadata, secrets)
            case {"ephemeral": {"persistentVolumeClaim": dict(source)}}:
                below = await self._claimed(namespace, source["claimName"])
                return await self._overlay(below, folder / f"{name}.qcow2")
            case {"persistentVolumeClaim": dict(source)}:
                found = await self._claimed(namespace, source["claimName"])
                return replace(found, readonly=bool(source.get("readOnly")))
            case {"dataVolume": dict(source)}:
                return await self._claimed(namespace, source["name"])
        return None  # admission has said that we do not serve it

    async def _stored(self, disk: Object) -> Prepared:
        name = disk["image"]
        try:
            found = await asyncio.to_thread(self._images.find, name)
        except ImageError as error:
            raise VolumeProblem("InvalidImageName", str(error)) from error
        if found is None:
            raise VolumeProblem("ErrImagePull", self._images.missing(name))
        path = str(found.path)
        image = Image(path, cast(Format, found.format))
        return Prepared(image, direct=takes_direct(path), digest=found.digest)

    async def _overlay(self, below: Prepared, path: Path) -> Prepared:
        base = below.image
        await self._admit(path, await asyncio.to_thread(disk_space.size, Path(base.path)))
        await qemu_img(
            *("create", "-q", "-f", "qcow2", "-F", base.format, "-b", base.path, str(path))
        )
        os.chmod(path, private.FILE)
        self._give(path)
        image = Image(str(path), "qcow2", backing=base)
        direct = below.direct and takes_direct(str(path))
        return replace(below, image=image, direct=direct, discard=True)

    async def _admit(self, path: Path, size: int) -> None:
        """Refuse a scratch disk that would promise more than the file system can give."""
        if why := await asyncio.to_thread(self._promises.admit, path, size):
            raise VolumeProblem(DISK_FULL, why)

    async def _empty(self, path: Path, name: str, disk: Object) -> Prepared:
        size = raw_file.whole(quantity.parse(disk["capacity"]).bytes)
        if size <= 0:
            raise VolumeProblem(
                "CreateContainerConfigError", f"the size for volume {name} is too low"
            )
        await self._admit(path, size)
        raw_file.create(path, size)
        self._give(path)
        return Prepared(Image(str(path), "raw"), direct=takes_direct(str(path)))

    def _disc(
        self,
        path: Path,
        source: Object,
        metadata: Mapping[str, Any],
        secrets: Mapping[str, Object],
    ) -> Prepared:
        try:
            content = scratch.files(source, metadata, secrets)
        except scratch.BadCloudInit as error:
            raise VolumeProblem("CreateContainerConfigError", str(error)) from error
        data = scratch.iso(scratch.LABEL, content)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        self._give(path)
        return Prepared(Image(str(path), "raw"), discard=False, size=len(data))

    async def _secrets(self, names: list[str], namespace: str) -> dict[str, Object]:
        found = {}
        for name in names:
            try:
                found[name] = await self._client.get(core.SECRET, name, namespace)
            except NotFound as error:
                raise VolumeProblem("CreateContainerConfigError", str(error)) from error
        return found

    async def _claimed(self, namespace: str, name: str) -> Prepared:
        """Find the disk image of a claim that is filled, or create it if nothing fills the claim.

        A claim is bound before its import ends, and a disk that was made meanwhile would be in the
        way of the one that comes.
        """
        claim = await self._find(core.CLAIM, name, namespace)
        data = await self._find(kinds.DATA_VOLUME, name, namespace)
        ours = claim is None or owned_by(claim, data)
        problem = unready(name, claim, data if ours else None)
        if problem is not None:
            raise problem
        assert claim is not None  # or there would be a problem
        return await self._image(claim)

    async def _image(self, claim: Object) -> Prepared:
        """Return the disk image in the volume of a claim that is bound."""
        name = claim["metadata"]["name"]
        try:
            volume = await self._client.get(core.VOLUME, claim["spec"]["volumeName"])
        except NotFound as error:
            message = f"the volume of PVC {name} is gone: {error.message}"
            raise VolumeProblem(FAILED_MOUNT, message) from error
        source = volume["spec"].get("local") or volume["spec"].get("hostPath") or {}
        folder = Path(self._safe(source.get("path") or "", volume["metadata"]["name"]))
        path = folder / CLAIM_FILE
        try:
            # It waits for a concurrent resize of the image, and for the disk.
            await asyncio.to_thread(raw_file.ensure, path, claim_size(claim))
            image = self._opened(path, claim)
        except OSError as error:
            raise _unusable(name, folder, error) from error
        return Prepared(
            image, direct=takes_direct(image.path), discard=_may_discard(claim), claim=claim
        )

    def _opened(self, path: Path, claim: Object) -> Image:
        """Return the image of a claim as it is used: the file itself, or a device that is it."""
        self._give(path)  # one that is only read must be readable too
        if claim["spec"].get("volumeMode") != "Block":
            return Image(str(path), "raw")
        if why := loop_device.problem():
            raise OSError(f"a claim with volumeMode Block needs a loop device, and {why}")
        device = loop_device.attach(path)
        self._give(device)
        return Image(str(device), "raw", block=True)

    def _safe(self, path: str, volume: str) -> str:
        """Return the directory of a volume, if it is really below one of our roots."""
        for root in self._roots:
            if Path(path).is_relative_to(root) and ".." not in Path(path).parts:
                try:
                    _walk(root, Path(path).relative_to(root).parts)
                except OSError as error:
                    raise VolumeProblem(FAILED_MOUNT, f"volume {volume}: {error}") from error
                return path
        raise VolumeProblem(
            FAILED_MOUNT, f"volume {volume} is not in a directory this node keeps volumes in"
        )

    def _give(self, path: Path) -> None:
        if self._owner is not None:
            os.chown(path, *self._owner, follow_symlinks=False)


def unready(name: str, claim: Object | None, data: Object | None) -> VolumeProblem | None:
    """Return why a claim cannot be attached yet; `data` is the DataVolume that fills it, if any."""
    if data is not None and (status := data.get("status") or {}).get("phase") != "Succeeded":
        return _unfilled(name, status)
    if claim is None:
        return VolumeProblem(PVC_NOT_FOUND, f"PVC {name} not found")
    phase = (claim.get("status") or {}).get("phase") or "Pending"
    if phase != "Bound" or not claim["spec"].get("volumeName"):
        said = "ClaimPending" if phase == "Pending" else phase
        return VolumeProblem("PVCNotReady", f"PVC {name} is in phase {said}")
    return None


def _unfilled(name: str, status: Object) -> VolumeProblem:
    """Return the progress of an import, or why it is stuck: no image, one too large, no space."""
    phase, progress = status.get("phase") or "Pending", status.get("progress") or "N/A"
    done = "" if progress == "N/A" else f", {progress} done"
    running = conditions.find(status.get("conditions"), "Running") or {}
    stuck = running.get("status") == "False" and running.get("reason") not in _ON_ITS_WAY
    why = f": {running['message']}" if stuck and running.get("message") else ""
    reason = DATA_FAILED if phase == "Failed" else DATA_NOT_READY
    return VolumeProblem(reason, f"DataVolume {name} is in phase {phase}{done}{why}")


def owned_by(claim: Object, owner: Object | None) -> bool:
    """Return whether a claim was made for this very object."""
    uid = owner["metadata"].get("uid") if owner is not None else None
    return any(each["uid"] == uid for each in claim["metadata"].get("ownerReferences") or ())


def claim_size(claim: Object) -> int:
    """Return how large a claim's disk is: what was asked for, or what there is if less."""
    asked = (claim["spec"].get("resources") or {}).get("requests", {}).get("storage")
    there = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    sizes = [quantity.parse(size).bytes for size in (asked, there) if size]
    return raw_file.whole(min(sizes, default=0))


def _may_discard(claim: Object) -> bool:
    kept = ("/storage.preallocation", "/storage.thick-provisioned")
    annotations = claim["metadata"].get("annotations") or {}
    return not any(
        value == "true" and any(each in key for each in kept) for key, value in annotations.items()
    )


def _walk(root: Path, parts: Sequence[str]) -> None:
    """Go down from a root; raises OSError at the first name that is no real directory."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(root, flags)
    for part in parts:
        try:
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
        finally:
            os.close(handle)
        handle = below
    os.close(handle)


def _unusable(claim: str, folder: Path, error: OSError) -> VolumeProblem:
    if error.errno in _FULL:
        why = f"no space left below {folder.parent} for PVC {claim}: free some"
        return VolumeProblem(DISK_FULL, why)
    return VolumeProblem(FAILED_MOUNT, f"volume of PVC {claim}: {error}")


def takes_direct(path: str) -> bool:
    """Return whether a file can be opened without the host's page cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW))
    except OSError:
        return False
    return True


async def qemu_img(*arguments: str) -> None:
    """Run qemu-img; raises VolumeProblem if it fails."""
    process = await asyncio.create_subprocess_exec(
        *("qemu-img", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await process.communicate()
    if process.returncode != 0:
        raise VolumeProblem(FAILED_MOUNT, complaint.decode(errors="replace").strip())
