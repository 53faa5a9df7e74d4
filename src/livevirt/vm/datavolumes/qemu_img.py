"""`qemu-img`: what an image is, and turning one into a raw disk.

Images come from strangers. Only raw and qcow2 are taken, and one that refers to another file is
refused before QEMU opens it: it could name any file of this machine. The format is read off the
first bytes here and passed to QEMU, which never guesses.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from livevirt import programs
from livevirt.vm.datavolumes.filling import ImportFailed, ImportRefused

Progress = Callable[[float], None]  # called with the progress in percent

PROBE_SECONDS = 30.0  # what is crafted to take for ever is no image
_PERCENT = re.compile(rb"\((\d+(?:\.\d+)?)/100%\)")
HEADER = 104  # bytes of a qcow2 header, version 3
_EXTERNAL_DATA = 1 << 2  # in its incompatible features
_NOT_TAKEN = {
    b"KDMV": "vmdk",
    b"# Disk DescriptorFile": "vmdk",
    b"conectix": "vpc",
    b"vhdxfile": "vhdx",
    b"<<< ": "vdi",
    b"QED\x00": "qed",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A file and how to read it."""

    path: Path
    format: str
    virtual_size: int


class _Info(msgspec.Struct, rename="kebab"):
    virtual_size: int
    backing_filename: str | None = None
    encrypted: bool = False


def format_of(start: bytes) -> str:
    """Return the format of a file that starts so; refuses what does not stand alone."""
    for magic, name in _NOT_TAKEN.items():
        if start.startswith(magic):
            raise ImportRefused(f"unsupported image format: {name}; raw and qcow2 are taken")
    if not start.startswith(b"QFI\xfb"):
        return "raw"
    if len(start) < HEADER:
        raise ImportRefused("the image ends within its header")
    version, backing = struct.unpack_from(">IQ", start, 4)
    if backing:
        raise ImportRefused("expected no backing file, but the image has one")
    if version >= 3 and struct.unpack_from(">Q", start, 72)[0] & _EXTERNAL_DATA:
        raise ImportRefused("expected no external data file, but the image has one")
    return "qcow2"


async def probe(path: Path, format: str = "") -> Image:
    """Return what an image is: in the format given, else in the one it starts like."""
    format = format or await asyncio.to_thread(_format_of_file, path)
    arguments = ("-U", "--output=json", "-f", format, _local(path))
    async with _started("info", *arguments) as process:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise ImportRefused("the image takes too long to read: it is damaged") from None
    if process.returncode != 0:
        raise ImportRefused(f"the image cannot be read: {_last_line(errors, path)}")
    info = msgspec.json.decode(output, type=_Info)
    if info.backing_filename:
        raise ImportRefused("expected no backing file, but the image has one")
    if info.encrypted:
        raise ImportRefused("the image is encrypted")
    return Image(path, format, info.virtual_size)


def _format_of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return format_of(file.read(HEADER))
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}") from error


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
            output = await errors
        finally:
            errors.cancel()
    if process.returncode != 0:
        raise _failed(_last_line(output, image.path), target)


def _failed(message: str, target: Path) -> ImportFailed:
    if "No space left" in message or "Disk quota" in message:
        return ImportFailed(
            f"no space left below {target.parent.parent}: free some, or remove volumes that are"
            " not needed"
        )
    return ImportFailed(f"the image could not be converted: {message}")


@contextlib.asynccontextmanager
async def _started(*arguments: str) -> AsyncIterator[Process]:
    """Run qemu-img; whatever happens, it has ended afterwards."""
    try:
        process = await asyncio.create_subprocess_exec(
            "qemu-img", *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except FileNotFoundError:
        raise ImportFailed(programs.advice("qemu-img")) from None
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _local(path: Path) -> str:
    # Without the prefix a colon in a name would be taken for a protocol.
    return f"file:{path}"


def _last_line(output: bytes, path: Path) -> str:
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        return "qemu-img gave no reason"
    return lines[-1].removeprefix("qemu-img: ").replace(_local(path), path.name)
