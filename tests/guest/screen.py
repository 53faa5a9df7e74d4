"""A VNC client and a reader of PNG images, as small as the tests need them."""

from __future__ import annotations

import socket
import struct
import zlib
from dataclasses import dataclass

SECONDS = 60.0
_RAW = 0
_FULL_COLOUR = struct.pack(">BBBBHHHBBBxxx", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)


@dataclass(frozen=True)
class Picture:
    """What a screen shows."""

    width: int
    height: int
    pixels: bytes

    @property
    def blank(self) -> bool:
        """Whether all of it has one colour."""
        size = len(self.pixels) // (self.width * self.height)
        return self.pixels == self.pixels[:size] * (self.width * self.height)


def view(port: int, host: str = "127.0.0.1") -> Picture:
    """Connect as a VNC viewer does (RFC 6143), read the whole screen and leave."""
    with socket.create_connection((host, port), SECONDS) as line, line.makefile("rwb") as stream:

        def read(form: str) -> tuple[int, ...]:
            return struct.unpack(form, stream.read(struct.calcsize(form)))

        def send(data: bytes) -> None:
            stream.write(data)
            stream.flush()

        assert stream.read(12) == b"RFB 003.008\n"
        send(b"RFB 003.008\n")
        (count,) = read(">B")
        assert 1 in stream.read(count)  # no authentication: the API server has done that
        send(b"\x01")
        assert read(">I") == (0,)
        send(b"\x01")  # others may watch too
        width, height = read(">HH")
        stream.read(16)  # the pixel format, which is set next
        stream.read(read(">I")[0])  # its name
        send(b"\x00\0\0\0" + _FULL_COLOUR)
        send(struct.pack(">BxHi", 2, 1, _RAW))
        send(struct.pack(">BBHHHH", 3, 0, 0, 0, width, height))
        return Picture(width, height, _update(stream, read, width, height))


def _update(stream, read, width: int, height: int) -> bytes:  # type: ignore[no-untyped-def]
    screen = bytearray(width * height * 4)
    seen = 0
    while seen < width * height:
        kind, rectangles = read(">BxH")
        assert kind == 0, f"not an update but message {kind}"
        for _ in range(rectangles):
            x, y, w, h, encoding = read(">HHHHi")
            assert encoding == _RAW
            for row in range(y, y + h):
                screen[(row * width + x) * 4 : (row * width + x + w) * 4] = stream.read(w * 4)
            seen += w * h
    return bytes(screen)


def png(data: bytes) -> Picture:
    """Read a PNG image of 24-bit colours; rows stay filtered, a blank one is blank then too."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack_from(">I", data, at + 8 + size)[0]
        chunks[kind] = chunks.get(kind, b"") + body
        at += 12 + size
    width, height, depth, colours = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (depth, colours) == (8, 2)
    assert b"IEND" in chunks
    raw, row = zlib.decompress(chunks[b"IDAT"]), 1 + width * 3
    assert len(raw) == row * height
    return Picture(width, height, b"".join(raw[n + 1 : n + row] for n in range(0, len(raw), row)))
