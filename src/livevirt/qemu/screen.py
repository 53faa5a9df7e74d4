"""The screen of a machine: a picture of it, and the pointer that wakes it up."""

from __future__ import annotations

import asyncio
import os

from livevirt.qemu.session import Session


async def screenshot(qmp: Session) -> bytes:
    """Return the screen as a PNG image; connected viewers are not disturbed."""
    image = os.memfd_create("screenshot")
    try:
        # QEMU takes a descriptor only for the access mode with which it opens the file.
        writable = os.open(f"/proc/self/fd/{image}", os.O_WRONLY)
        try:
            fdset = await qmp.send_file(writable)
        finally:
            os.close(writable)
        try:
            await qmp.execute("screendump", {"filename": f"/dev/fdset/{fdset}", "format": "png"})
        finally:
            await qmp.execute("remove-fd", {"fdset-id": fdset})
        return await asyncio.to_thread(_content, image)
    finally:
        os.close(image)


def _content(image: int) -> bytes:
    return os.pread(image, os.fstat(image).st_size, 0)


async def move_pointer(qmp: Session) -> None:
    """Move the pointer by a pixel and back, which ends a screen saver."""
    for step in (1, -1):
        moves = [{"type": "rel", "data": {"axis": axis, "value": step}} for axis in ("x", "y")]
        await qmp.execute("input-send-event", {"events": moves})
