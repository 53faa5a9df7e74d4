"""The volumes of a guest in a pod of a kubelet: the paths by which QEMU opens them there.

The kubelet has mounted claims, images and Secrets. What is made here lies in a volume of the pod
that ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from livevirt.errors import NotFound
from livevirt.files import raw_file
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core, quantity
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.node import scratch
from livevirt.node.attached_claims import AttachedClaims
from livevirt.node.launcher_pod import COMPUTE, OWNER, ContainerRoot, LauncherDir
from livevirt.node.volumes import (
    CLAIM_FILE,
    FAILED_MOUNT,
    Prepared,
    VolumeProblem,
    claim_size,
    owned_by,
    qemu_img,
    takes_direct,
    unready,
)
from livevirt.qemu.disk import Format, Image
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi import kubelet_pod
from livevirt.vm.spec import disks
from livevirt.vm.volumes.volume_lists import claim_of, read_only

CONTAINER_DISKS = PurePosixPath(kubelet_pod.CONTAINER_DISKS)
CLAIMS = PurePosixPath(kubelet_pod.DISKS)
SECRETS = PurePosixPath(kubelet_pod.SECRETS)
_IMAGE_DIRECTORY = "/disk"  # where images of container disks have their file
_QCOW2 = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQIIQ")  # magic, version, backing file and its length, bits, size
_EXTERNAL_DATA = 1 << 2  # an incompatible feature: the data is in another file

#: Returns the file system of a container of the pod by name, None if it does not run.
Roots = Callable[[str], ContainerRoot | None]


class PodVolumes:
    """Prepares the volumes of guests in pods of a kubelet."""

    def __init__(self, client: Client, attached: AttachedClaims) -> None:
        self._client, self._attached = client, attached

    async def prepare(
        self, vmi: Object, folder: LauncherDir, roots: Roots, metadata: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Make or find the file of every volume of a VMI; raises VolumeProblem.

        What a start that was cut short left is replaced.
        """
        found, later = {}, disks.may_come_later(vmi["spec"])
        for volume in vmi["spec"].get("volumes") or ():
            name = volume["name"]
            if disks.hotpluggable(volume):
                if name not in later:
                    raise _not_attachable(name)
                continue
            prepared = await self._prepare(vmi, volume, folder, roots, metadata)
            if prepared is not None:
                found[name] = prepared
        return found

    async def attachable(self, namespace: str, volume: Object) -> Prepared:
        """Return the disk in a claim; raises VolumeProblem until an attachment pod holds it."""
        name = claim_of(volume)
        claim = await self._find(core.CLAIM, name, namespace)
        data = await self._find(kinds.DATA_VOLUME, name, namespace)
        problem = unready(name, claim, data if claim is None or owned_by(claim, data) else None)
        if problem is not None:
            raise problem
        assert claim is not None  # or there would be a problem
        found = await asyncio.to_thread(self._attached.open, claim)
        return replace(found, readonly=read_only(volume))

    def release(self, prepared: Prepared) -> None:
        """Close the disk of a claim that QEMU has opened, or will not."""
        self._attached.release(prepared)

    async def holders(self, namespace: str, claim: str, uid: str) -> list[str]:
        """Return no VMIs: the kubelet decides who may have a claim."""
        return []

    async def _prepare(
        self,
        vmi: Object,
        volume: Object,
        folder: LauncherDir,
        roots: Roots,
        metadata: Mapping[str, Any],
    ) -> Prepared | None:
        name, namespace = volume["name"], vmi["metadata"]["namespace"]
        match volume:
            case {"containerDisk": dict(disk)}:
                below, size = await asyncio.to_thread(_stored, name, disk, roots)
                return await _overlay(folder, name, below, size)
            case {"emptyDisk": dict(disk)}:
                return await asyncio.to_thread(_empty, folder, name, disk)
            case {"cloudInitNoCloud": dict(source)}:
                return await asyncio.to_thread(_disc, folder, name, source, metadata, roots)
            case {"ephemeral": {"persistentVolumeClaim": dict()}}:
                claim = await self._claim(namespace, volume)
                below, size = await asyncio.to_thread(_claimed, name, claim, roots)
                return await _overlay(folder, name, below, size)
            case {"persistentVolumeClaim": dict()} | {"dataVolume": dict()}:
                claim = await self._claim(namespace, volume)
                below, _ = await asyncio.to_thread(_claimed, name, claim, roots)
                source = volume.get("persistentVolumeClaim") or {}
                return replace(below, readonly=bool(source.get("readOnly")))
        return None  # admission has said that we do not serve it

    async def _find(self, kind: Kind, name: str, namespace: str) -> Object | None:
        try:
            return await self._client.get(kind, name, namespace)
        except NotFound:
            return None

    async def _claim(self, namespace: str, volume: Object) -> Object:
        backing = (volume.get("ephemeral") or {}).get("persistentVolumeClaim") or {}
        name = backing.get("claimName") or claim_of(volume)
        try:
            return await self._client.get(core.CLAIM, name, namespace)
        except NotFound as error:
            raise VolumeProblem(FAILED_MOUNT, str(error)) from error


def _not_attachable(name: str) -> VolumeProblem:
    message = (
        f"volume {name} is hotpluggable, and the guest cannot start without it: on a cluster only"
        " volumes that are attached later may be"
    )
    return VolumeProblem("NotSupported", message)


# ---------------------------------------------------------------- images


def read_header(header: bytes, length: int) -> tuple[Format, int]:
    """Return format and size of a disk image by its first bytes; raises ValueError. Pure.

    An image that names another file is refused: QEMU would open that file, too.
    """
    if not header.startswith(_QCOW2):
        return "raw", length
    _, version, backing, _, _, size = _HEADER.unpack_from(header)
    features = struct.unpack_from(">Q", header, 72)[0] if version >= 3 else 0
    if backing or features & _EXTERNAL_DATA:
        raise ValueError("it refers to another file")
    return "qcow2", size


def _stored(name: str, disk: Object, roots: Roots) -> tuple[Prepared, int]:
    """Return the disk in an image that the kubelet has pulled, and its size.

    It is mounted in the container of QEMU, or a container of the image holds it. That one leaves a
    link to its file system, which leads there in the pod's processes only.
    """
    inside = CONTAINER_DISKS / name
    holder, compute = roots(f"volume{name}"), roots(COMPUTE)
    root, base = (holder, PurePosixPath("/")) if holder is not None else (compute, inside)
    if root is None:
        raise VolumeProblem("ErrImagePull", f"the image of volume {name} is not there yet")
    try:
        path = PurePosixPath(disk.get("path") or "") if disk.get("path") else None
        if path is None:
            folder = _IMAGE_DIRECTORY.lstrip("/")
            names = root.names(base / folder)
            if len(names) != 1:
                raise ValueError(f"{_IMAGE_DIRECTORY} has {len(names)} files instead of one")
            path = PurePosixPath(_IMAGE_DIRECTORY, names[0])
        relative = str(path).lstrip("/")
        handle = root.open(base / relative)
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise ValueError(f"{path} is no regular file")
            format, size = read_header(os.pread(handle, 512, 0), about.st_size)
        finally:
            os.close(handle)
    except (OSError, ValueError, struct.error) as error:
        raise VolumeProblem("InvalidImage", f"image {disk['image']}: {error}") from error
    image = Image(str(inside / relative), format)
    return Prepared(image, direct=takes_direct(str(root.below(base / relative)))), size


def _claimed(name: str, claim: Object, roots: Roots) -> tuple[Prepared, int]:
    """Return the disk in a claim that is mounted in the container of QEMU, and its size."""
    root = roots(COMPUTE)
    if root is None:
        raise VolumeProblem("ContainerCreating", "the container of QEMU does not run")
    if claim["spec"].get("volumeMode") == "Block":
        root.give(f"/dev/{name}")
        image = Image(f"/dev/{name}", "raw", block=True)
        return Prepared(image, direct=True, claim=claim), claim_size(claim)
    inside = CLAIMS / name / CLAIM_FILE
    path, size = root.below(inside), claim_size(claim)
    try:
        os.close(root.open(inside.parent, os.O_RDONLY | os.O_DIRECTORY))
        missing = not os.path.lexists(path)
        raw_file.ensure(path, size)
        if missing:
            os.chown(path, *OWNER, follow_symlinks=False)
    except OSError as error:
        raise VolumeProblem(FAILED_MOUNT, f"volume {name}: {error}") from error
    prepared = Prepared(Image(str(inside), "raw"), direct=takes_direct(str(path)), claim=claim)
    return prepared, size


# ---------------------------------------------------------------- disks that end with the pod


async def _overlay(folder: LauncherDir, name: str, below: Prepared, size: int) -> Prepared:
    path, base = _scratch(folder, f"{name}.qcow2"), below.image
    # Not opened here: the path leads to it in the container only.
    options = ("-f", "qcow2", "-u", "-F", base.format, "-b", base.path)
    await qemu_img("create", "-q", *options, str(path), str(size))
    await asyncio.to_thread(_give, path)
    image = Image(_inside(path), "qcow2", backing=base)
    return replace(below, image=image, direct=takes_direct(str(path)) and below.direct)


def _empty(folder: LauncherDir, name: str, disk: Object) -> Prepared:
    size = raw_file.whole(quantity.parse(disk["capacity"]).bytes)
    if size <= 0:
        raise VolumeProblem("CreateContainerConfigError", f"the size for volume {name} is too low")
    path = _scratch(folder, f"{name}.img")
    raw_file.create(path, size)
    _give(path)
    return Prepared(Image(_inside(path), "raw"), direct=takes_direct(str(path)))


def _disc(
    folder: LauncherDir, name: str, source: Object, metadata: Mapping[str, Any], roots: Roots
) -> Prepared:
    try:
        content = scratch.files(source, metadata, _secrets(name, source, roots))
    except scratch.BadCloudInit as error:
        raise VolumeProblem("CreateContainerConfigError", str(error)) from error
    data = scratch.iso(scratch.LABEL, content)
    path = _scratch(folder, f"{name}.iso")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    _give(path)
    return Prepared(Image(_inside(path), "raw"), discard=False, size=len(data))


def _secrets(name: str, source: Object, roots: Roots) -> dict[str, Object]:
    """Read the Secrets of a cloud-init source where the kubelet has mounted them."""
    root, found = roots(COMPUTE), dict[str, Object]()
    for ref, folder in kubelet_pod.CLOUD_INIT_SECRETS:
        secret = (source.get(ref) or {}).get("name")
        if secret and root is not None:
            path = root.below(SECRETS / name / folder)
            found[secret] = {"data": {}, **found.get(secret, {})}
            for key in ("userdata", "userData", "networkdata", "networkData"):
                # The kubelet's own links, relative to the mount, lead to the files of a Secret.
                with contextlib.suppress(FileNotFoundError):
                    found[secret]["data"][key] = scratch.encoded((path / key).read_bytes())
    return found


def _scratch(folder: LauncherDir, name: str) -> Path:
    """Return the path of a file in the pod's scratch volume; what was there is removed."""
    path = folder.scratch / name
    path.unlink(missing_ok=True)
    return path


def _give(path: Path) -> None:
    os.chmod(path, 0o600, follow_symlinks=True)
    os.chown(path, *OWNER, follow_symlinks=False)


def _inside(path: Path) -> str:
    return str(PurePosixPath(kubelet_pod.SCRATCH_DIRECTORY, path.name))
