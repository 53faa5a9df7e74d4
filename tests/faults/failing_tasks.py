"""`livevirt` in which every background task fails once, a moment after it was started.

    python tests/faults/failing_tasks.py up --data-dir /tmp/f

Only for tests: nothing in livevirt knows of it.
"""

from __future__ import annotations

import asyncio

from fail_point import run_here

from livevirt.cli import livevirt, process
from livevirt.kube.control.supervisor import Supervisor, Work

LASTS = 0.2  # seconds
NODE_LASTS = 1.5  # a node agent has tasks of its own, which fail before it
attempt = Supervisor._attempt
failed: set[str] = set()


async def fail_once(self: Supervisor, name: str, work: Work) -> None:
    """Run an attempt; the first one of each task fails."""
    if name in failed:
        await attempt(self, name, work)
        return
    failed.add(name)

    async def fail() -> None:
        await asyncio.sleep(NODE_LASTS if name == "node01" else LASTS)
        raise RuntimeError("injected")

    async def doomed() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_run(work))
            group.create_task(fail())

    await attempt(self, name, doomed)


async def _run(work: Work) -> None:
    await work()


if __name__ == "__main__":
    Supervisor._attempt = fail_once  # type: ignore[method-assign]
    process.run = run_here  # type: ignore[assignment]
    livevirt.main()
