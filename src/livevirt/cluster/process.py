"""How a component of a cluster runs as a process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a component until SIGTERM or SIGINT; an error of its own is raised."""
    try:
        uvloop.run(_until_stopped(work))
    except BaseExceptionGroup as group:
        raise _first(group) from group


async def _until_stopped(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _first(group: BaseException) -> BaseException:
    """Return the innermost error of nested groups: what a person can act on."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
