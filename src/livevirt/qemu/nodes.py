"""Block nodes: QEMU's open images, each under a name that tells the disk and the image."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from livevirt.qemu import disk
from livevirt.qemu.disk import Disk
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session


async def add_node(qmp: Session, drive: Disk) -> None:
    """Let QEMU open the image of a disk, unless it has."""
    # QEMU may have no right to open the files by itself, so they are opened here.
    sets: dict[str, int] = {}
    try:
        for image, writable in disk.layers(drive):
            with _opened(image.path, writable=writable) as fd:
                sets[image.path] = await qmp.send_file(fd)
        paths = {path: f"/dev/fdset/{number}" for path, number in sets.items()}
        await qmp.execute("blockdev-add", disk.blockdev(drive, paths))
    except CommandFailed:
        if not await has_node(qmp, drive.node):
            raise
    finally:
        for number in sets.values():
            await qmp.execute("remove-fd", {"fdset-id": number})  # the node has its own copy


async def forget_node(qmp: Session, node: str | None) -> None:
    """Let QEMU close an image, unless it has."""
    if node is None:
        return
    try:
        await qmp.execute("blockdev-del", {"node-name": node})
    except CommandFailed:
        if await has_node(qmp, node):
            raise


async def has_node(qmp: Session, node: str | None) -> bool:
    """Tell whether QEMU has an image open."""
    nodes = await qmp.execute("query-named-block-nodes", {"flat": True})
    return any(entry["node-name"] == node for entry in nodes)


@contextmanager
def _opened(path: str, *, writable: bool) -> Iterator[int]:
    try:
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise CommandFailed("GenericError", f"Could not open '{path}': {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)
