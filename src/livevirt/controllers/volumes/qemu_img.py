"""`qemu-img`: what an image is, and turning one into a raw disk.

Images come from strangers. Nothing is believed of one but raw and qcow2, and one that refers to
another file is refused: it could name any file of this machine. What is converted is always
opened in the format that was found or is known, never guessed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from livevirt.controllers.volumes.failure import ImportFailed, ImportRefused

Progress = Callable[[float], None]  # told how much is done, in percent

PROBE_SECONDS = 30.0  # what is crafted to take for ever is no image
_PERCENT = re.compile(rb"\((\d+(?:\.\d+)?)/100%\)")
_FORMATS = ("raw", "qcow2")


@dataclass(frozen=True, slots=True)
class Image:
    """A file and how to read it."""

    path: Path
    format: str
    virtual_size: int


class _Info(msgspec.Struct, rename="kebab"):
    format: str
    virtual_size: int
    backing_filename: str | None = None
    full_backing_filename: str | None = None
    format_specific: msgspec.Raw = msgspec.Raw(b"{}")


async def probe(path: Path, format: str = "") -> Image:
    """Return what an image is; refuses all but raw and qcow2 that stand alone."""
    known = ["-f", format] if format else []
    async with _started("info", "-U", "--output=json", *known, _local(path)) as process:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise ImportRefused("the image takes too long to read: it is damaged") from None
    if process.returncode != 0:
        raise ImportRefused(f"the image cannot be read: {_last_line(errors, path)}")
    return image_of(path, output)


def image_of(path: Path, info: bytes) -> Image:
    """Return the image that `qemu-img info` describes, if it is one we take."""
    found = msgspec.json.decode(info, type=_Info)
    if found.format not in _FORMATS:
        raise ImportRefused(f"unsupported image format: {found.format}; raw and qcow2 are taken")
    backing = found.backing_filename or found.full_backing_filename
    if backing:
        raise ImportRefused(f"expected no backing file, but found {backing}")
    specific = msgspec.json.decode(found.format_specific)
    if (specific.get("data") or {}).get("data-file"):
        raise ImportRefused("the image keeps its data in another file, which is not taken")
    if (specific.get("data") or {}).get("encrypt") or found.format == "luks":
        raise ImportRefused("the image is encrypted")
    return Image(path, found.format, found.virtual_size)


async def convert(image: Image, target: Path, progress: Progress) -> None:
    """Write an image as a raw, sparse file; a guest that writes to it meanwhile is an error."""
    arguments = ("-p", "-f", image.format, "-O", "raw", _local(image.path), _local(target))
    async with _started("convert", *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        try:
            while chunk := await process.stdout.read(4096):
                if found := _PERCENT.findall(chunk):
                    progress(float(found[-1]))
            await process.wait()
            words = await errors
        finally:
            errors.cancel()
    if process.returncode != 0:
        raise _failed(_last_line(words, image.path), target)


def _failed(words: str, target: Path) -> ImportFailed:
    if "No space left" in words or "Disk quota" in words:
        return ImportFailed(
            f"no space left below {target.parent.parent}: free some, or remove volumes that are"
            " not needed"
        )
    return ImportFailed(f"the image could not be converted: {words}")


@contextlib.asynccontextmanager
async def _started(*arguments: str) -> AsyncIterator[Process]:
    """Run qemu-img; whatever happens, it has ended afterwards."""
    try:
        process = await asyncio.create_subprocess_exec(
            "qemu-img", *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except FileNotFoundError:
        raise ImportFailed("qemu-img is not installed") from None
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _local(path: Path) -> str:
    # Without the prefix a colon in a name would be taken for a protocol.
    return f"file:{path}"


def _last_line(words: bytes, path: Path) -> str:
    lines = [line for line in words.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        return "qemu-img gave no reason"
    return lines[-1].removeprefix("qemu-img: ").replace(_local(path), path.name)
