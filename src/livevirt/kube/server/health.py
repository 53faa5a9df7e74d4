"""`/livez`, `/healthz` and `/readyz`, in the form of kube-apiserver.

`/livez` and `/healthz` say that requests are answered. `/readyz` also commits a write to the
database and asks the checks that other parts bring along. Anybody may ask, so an answer is used
again for a second, and reasons are only in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from livevirt.errors import StoreError

log = logging.getLogger(__name__)

READYZ = "/readyz"
PATHS = ("/healthz", "/livez", READYZ)
STORAGE = "storage"  # the check that writes to the database
WRITE_SECONDS = 5.0  # how long a write may take
KEPT_SECONDS = 1.0  # how long an answer is used again

#: Returns what fails, each with its error; the name is shown to anybody, the error is logged.
Check = Callable[[], dict[str, str]]
#: Writes to the database; raises StoreError if that is not possible.
Write = Callable[[], Awaitable[None]]


class Health:
    """Asks the checks and remembers their answers for a moment."""

    def __init__(self, write: Write | None = None) -> None:
        self._write = write
        self.checks: list[Check] = []  # filled by the composition root
        self._asking: asyncio.Task[dict[str, str]] | None = None
        self._until = 0.0
        self._logged: dict[str, str] = {}

    async def answer(self, path: str, http: web.BaseRequest) -> web.Response:
        """Return 200 and `ok`, or 503 and what fails; `?verbose` lists the checks."""
        failing = await self.failing() if path == READYZ else {}
        stored = path == READYZ and self._write is not None and STORAGE not in failing
        passed = ["ping", STORAGE] if stored else ["ping"]
        lines = [f"[+]{name} ok" for name in passed]
        lines += (f"[-]{name} failed: reason withheld" for name in failing)
        lines.append(f"{path[1:]} check {'failed' if failing else 'passed'}")
        if failing:
            return web.Response(status=503, text="\n".join(lines) + "\n")
        return web.Response(text="\n".join(lines) + "\n" if "verbose" in http.query else "ok")

    async def failing(self) -> dict[str, str]:
        """Return what fails now or did a moment ago, by name."""
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() >= self._until):
            self._asking = loop.create_task(self._ask(), name="readyz")
        return await asyncio.shield(self._asking)

    async def _ask(self) -> dict[str, str]:
        found = await self._storage()
        for check in self.checks:
            found |= check()
        for name, error in found.items():
            if self._logged.get(name) != error:
                log.warning("not ready", extra={"check": name, "error": error})
        self._logged = found
        self._until = asyncio.get_running_loop().time() + KEPT_SECONDS
        return found

    async def _storage(self) -> dict[str, str]:
        if self._write is None:
            return {}
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._write()
        except TimeoutError:
            return {STORAGE: f"a write took more than {WRITE_SECONDS:.0f} s"}
        except StoreError as error:
            return {STORAGE: str(error)}
        return {}
