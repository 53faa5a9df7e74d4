"""The imports under way: a few at a time, each reported when it progresses or ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from livevirt.errors import Terminal
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.vm.datavolumes.filling import ImportFailed
from livevirt.vm.datavolumes.qemu_img import Progress

log = logging.getLogger(__name__)

AT_ONCE = 2
REPORT_EVERY = 1.0  # seconds between two progress reports of an import
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds before another try

Work = Callable[[Progress], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Job:
    """How an import stands; one that ended well is no more."""

    running: bool = False  # False and no error: it waits for its turn
    progress: float = 0.0  # percent
    error: str = ""
    reason: str = ""
    hopeless: bool = False  # trying again cannot help
    retry_at: datetime | None = None
    failures: int = 0


class Imports:
    """Runs the imports of DataVolumes, known by their uid, while it is entered."""

    def __init__(self, now: Now, changed: Callable[[Key], None]) -> None:
        self._now, self._changed = now, changed
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Imports:
        return self

    async def __aexit__(self, *_: object) -> None:
        for uid in list(self._tasks):
            await self.stop(uid)

    def of(self, uid: str) -> Job | None:
        """Return how the import for an object stands, if there is one."""
        return self._jobs.get(uid)

    def start(self, key: Key, uid: str, work: Work) -> Job:
        """Begin an import as soon as there is room; one under way goes on instead."""
        if uid not in self._tasks:
            before = self._jobs.get(uid)
            self._jobs[uid] = Job(failures=before.failures if before else 0)
            task = asyncio.create_task(self._run(key, uid, work), name=f"import-{key}")
            self._tasks[uid] = task
        return self._jobs[uid]

    async def stop(self, uid: str) -> None:
        """Return once the import has ended and released the volume."""
        self._jobs.pop(uid, None)
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self, key: Key, uid: str, work: Work) -> None:
        reported_at = 0.0

        def progress(done: float) -> None:
            nonlocal reported_at
            self._note(uid, progress=done)
            time = asyncio.get_running_loop().time()
            if time - reported_at >= REPORT_EVERY:
                reported_at = time
                self._changed(key)

        try:
            async with self._turns:
                self._note(uid, running=True)
                self._changed(key)
                await work(progress)
            self._jobs.pop(uid, None)
        except Exception as error:
            facts = {"key": str(key), "error": str(error)}
            foreign = not isinstance(error, ImportFailed | Terminal)
            log.warning("import failed", extra=facts, exc_info=error if foreign else None)
            if uid in self._jobs:
                self._jobs[uid] = self._failed(self._jobs[uid], error)
        self._tasks.pop(uid, None)
        self._changed(key)

    def _note(self, uid: str, **changes: Any) -> None:
        if uid in self._jobs:  # it may have been stopped and not have noticed yet
            self._jobs[uid] = replace(self._jobs[uid], **changes)

    def _failed(self, job: Job, error: Exception) -> Job:
        wait = min(FIRST_WAIT * 2.0 ** min(job.failures, 16), LONGEST_WAIT)
        return Job(
            error=str(error) or repr(error),
            reason=getattr(error, "reason", "Error"),
            hopeless=isinstance(error, Terminal),
            retry_at=self._now() + timedelta(seconds=wait),
            failures=job.failures + 1,
        )
