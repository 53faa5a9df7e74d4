"""The `log` of a pod: QEMU's own messages, or what its guest wrote to the serial port."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from aiohttp import web

from livevirt.errors import BadRequest
from livevirt.kube.objects import core, refusals
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, Request

COMPUTE = "compute"  # QEMU's standard error
CONSOLE = "guest-console-log"  # the serial port
CONTAINERS = (COMPUTE, CONSOLE)

_CHUNK = 64 * 1024
_POLL_SECONDS = 0.2  # between looks at a log that a client follows
_TRUE = ("1", "t", "true")
_UNKEPT = ("timestamps", "sinceSeconds", "sinceTime")  # lines have no timestamps
_HEADERS = {"Content-Type": "text/plain", "Cache-Control": "no-cache, private"}


class LogSource(Protocol):
    """Knows the logs of the pods that run here."""

    async def log_file(self, namespace: str, pod: str, container: str) -> Path:
        """Return where a container's log is; raises BadRequest while there is none yet."""


#: Returns a pod by namespace and name, or None.
PodReader = Callable[[str, str], Object | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a log that a client asked for."""

    container: str
    follow: bool = False
    tail: int | None = None  # lines
    limit: int | None = None  # bytes
    notes: tuple[str, ...] = ()  # about options that have no effect


class Logs:
    """Streams the logs of pods."""

    def __init__(self, source: LogSource, pod: PodReader) -> None:
        self._source = source
        self._pod = pod

    async def stream(self, request: Request, http: web.BaseRequest) -> web.StreamResponse:
        """Answer `GET …/pods/NAME/log`; a followed log ends when its pod does."""
        if request.verb != "get":
            raise refusals.method_not_allowed()
        pod = self._pod(request.namespace, request.name)
        if pod is None:
            raise refusals.not_found(core.POD, request.name)
        wanted = read_options(request.options, request.name)
        path = await self._source.log_file(request.namespace, request.name, wanted.container)
        response = web.StreamResponse(headers=_HEADERS)
        for note in wanted.notes:
            response.headers.add("Warning", f'299 - "{note}"')
        try:
            file = await asyncio.to_thread(path.open, "rb")
        except FileNotFoundError:
            raise BadRequest(
                f'container "{wanted.container}" in pod "{request.name}" is waiting to start'
            ) from None
        with file:
            await response.prepare(http)
            uid = pod["metadata"]["uid"]
            await _send(file, wanted, response, http, lambda: self._ended(request, uid))
        await response.write_eof()
        return response

    def _ended(self, request: Request, uid: str) -> bool:
        pod = self._pod(request.namespace, request.name)
        if pod is None or pod["metadata"]["uid"] != uid:
            return True
        return pod.get("status", {}).get("phase") in FINAL


def read_options(options: Mapping[str, str], pod: str) -> Wanted:
    """Return what the query asks for; raises BadRequest."""
    container = options.get("container") or COMPUTE
    if container not in CONTAINERS:
        raise BadRequest(f"container {container} is not valid for pod {pod}")
    if options.get("previous", "").lower() in _TRUE:
        raise BadRequest(f'previous terminated container "{container}" in pod "{pod}" not found')
    return Wanted(
        container,
        follow=options.get("follow", "").lower() in _TRUE,
        tail=_number(options, "tailLines", 0),
        limit=_number(options, "limitBytes", 1),
        notes=tuple(
            f"{name} has no effect: these logs do not record when a line was written"
            for name in _UNKEPT
            if options.get(name, "").lower() not in ("", "0", "false")
        ),
    )


def _number(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 19 or int(text) < least:
        raise BadRequest(f"{name}: {text!r} is no number of at least {least}")
    return int(text)


def tail_start(file: BinaryIO, lines: int) -> int:
    """Return where the last `lines` lines of a file begin; an unended line counts as one."""
    end = file.seek(0, 2)
    if lines == 0:
        return end
    wanted, position = lines, end
    while position > 0:
        size = min(_CHUNK, position)
        file.seek(position - size)
        block = file.read(size)
        # The newline that ends the file ends its last line and begins none.
        cut = len(block) - 1 if position == end and block.endswith(b"\n") else len(block)
        while (cut := block.rfind(b"\n", 0, cut)) >= 0:
            wanted -= 1
            if wanted == 0:
                return position - size + cut + 1
        position -= size
    return 0


def next_part(file: BinaryIO, size: int) -> bytes:
    """Return what comes next, nothing at the end; one that was cut meanwhile goes on at its end."""
    if part := file.read(size):
        return part
    position, end = file.tell(), file.seek(0, os.SEEK_END)
    file.seek(min(position, end))
    return b""


async def _send(
    file: BinaryIO,
    wanted: Wanted,
    response: web.StreamResponse,
    http: web.BaseRequest,
    ended: Callable[[], bool],
) -> None:
    if wanted.tail is not None:
        file.seek(await asyncio.to_thread(tail_start, file, wanted.tail))
    left = wanted.limit
    while left is None or left > 0:
        last = not wanted.follow or ended()  # before reading: what came by then is read below
        size = _CHUNK if left is None else min(_CHUNK, left)
        if chunk := await asyncio.to_thread(next_part, file, size):
            await response.write(chunk)
            left = None if left is None else left - len(chunk)
        elif last or http.transport is None or http.transport.is_closing():
            return
        else:
            await asyncio.sleep(_POLL_SECONDS)
