"""Fills one volume from one source: where its bytes come from, and how they get there."""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from livevirt.errors import LivevirtError, NotFound
from livevirt.files.raw_file import DISK
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm.datavolumes import filling, qemu_img
from livevirt.vm.datavolumes.download import Source as Http
from livevirt.vm.datavolumes.download import download
from livevirt.vm.datavolumes.filling import ImageMissing, ImportFailed
from livevirt.vm.datavolumes.qemu_img import Image, Progress


async def http(source: Object, namespace: str, client: Client) -> Http:
    """Return how to fetch a file, with what the named secrets and config map hold."""
    headers = list(source.get("extraHeaders") or ())
    for name in source.get("secretExtraHeaders") or ():
        headers += (await _secret(client, name, namespace)).values()
    credentials: dict[str, str] = {}
    if name := source.get("secretRef"):
        credentials = await _secret(client, name, namespace)
    authority = ""
    if name := source.get("certConfigMap"):
        authority = "\n".join((await _config(client, name, namespace)).values())
    return Http(
        source["url"],
        dict(_header(line) for line in headers),
        credentials.get("accessKeyId", ""),
        credentials.get("secretKey", ""),
        authority,
        source.get("checksum") or "",
    )


def image_name(source: Object) -> str:
    """Return the name in the local store of a registry source."""
    return str(source["url"]).removeprefix("docker://")


def _header(line: str) -> tuple[str, str]:
    name, separator, value = line.partition(":")
    if not separator or not name.strip() or "\n" in line.strip() or "\r" in line.strip():
        raise ImportFailed("an extra header is not of the form `Name: value`")  # may be a secret
    return name.strip(), value.strip()


async def _secret(client: Client, name: str, namespace: str) -> dict[str, str]:
    try:
        found = await client.get(core.SECRET, name, namespace)
        data = found.get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    except NotFound:
        raise ImportFailed(f'secret "{name}" not found') from None
    except (binascii.Error, UnicodeDecodeError):
        raise ImportFailed(f'secret "{name}" holds what is no text') from None


async def _config(client: Client, name: str, namespace: str) -> dict[str, str]:
    try:
        found = await client.get(core.CONFIG_MAP, name, namespace)
    except NotFound:
        raise ImportFailed(f'config map "{name}" not found') from None
    return dict(found.get("data") or {})


_FETCHED = 90.0  # percent that is done when a download is
_SLACK = 64 * 2**20  # a qcow2 is a little larger than the disk in it


class StoredImage(Protocol):
    """An image the store has."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def format(self) -> str:
        """raw or qcow2."""


class Images(Protocol):
    """The local image store."""

    def find(self, reference: str) -> StoredImage | None:
        """Return the image of that name, if there is one."""

    def missing(self, name: str) -> str:
        """Return the message that there is no such image, and how to import it."""


@dataclass(frozen=True, slots=True)
class Blank:
    """An empty disk."""


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of another volume's disk."""

    disk: Path


@dataclass(frozen=True, slots=True)
class File:
    """An image of this machine, in any format we take."""

    path: Path


@dataclass(frozen=True, slots=True)
class Stored:
    """An image of the local store."""

    reference: str
    images: Images


Origin = Blank | Clone | File | Stored | Http


@dataclass(frozen=True, slots=True)
class Order:
    """What to fill, and with what."""

    origin: Origin
    directory: Path
    room: int  # bytes the claim asks for
    preallocate: bool = False


async def fill(order: Order, progress: Progress) -> None:
    """Fill the volume; whatever is raised, the volume has no disk then."""
    async with filling.scratch(order.directory) as place:
        candidate = place / DISK
        match order.origin:
            case Blank():
                virtual = 0
            case Clone(disk):
                # A guest may have written anything to its disk, so it is never probed.
                image = await qemu_img.probe(disk, "raw")
                virtual = await _convert(order, image, candidate, progress)
            case File(path):
                image = await qemu_img.probe(path)
                virtual = await _convert(order, image, candidate, progress)
            case Stored(reference, images):
                image = await _stored(reference, images)
                virtual = await _convert(order, image, candidate, progress)
            case Http() as source:
                virtual = await _fetch(order, source, candidate, progress)
        size = filling.disk_size(order.room, virtual)
        await filling.publish(candidate, order.directory, size, preallocate=order.preallocate)


async def _stored(reference: str, images: Images) -> Image:
    try:
        found = await asyncio.to_thread(images.find, reference)
    except LivevirtError as error:
        raise ImportFailed(str(error)) from error
    if found is None:
        raise ImageMissing(images.missing(reference))
    return await qemu_img.probe(Path(found.path), found.format)


async def _convert(order: Order, image: Image, candidate: Path, progress: Progress) -> int:
    filling.disk_size(order.room, image.virtual_size)  # refuse before the work, not after
    await qemu_img.convert(image, candidate, progress)
    return image.virtual_size


async def _fetch(order: Order, source: Http, candidate: Path, progress: Progress) -> int:
    fetched = candidate.with_name("source")
    limit = order.room + order.room // 10 + _SLACK
    await download(source, fetched, limit, lambda done: progress(done * _FETCHED / 100))
    image = await qemu_img.probe(fetched)
    filling.disk_size(order.room, image.virtual_size)
    if image.format == "raw":
        fetched.rename(candidate)
        return image.virtual_size

    def rest(done: float) -> None:
        progress(_FETCHED + done * (100 - _FETCHED) / 100)

    await qemu_img.convert(image, candidate, rest)
    fetched.unlink()
    return image.virtual_size
