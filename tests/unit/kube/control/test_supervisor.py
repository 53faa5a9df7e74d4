from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from livevirt.kube.control import supervisor as module
from livevirt.kube.control.supervisor import Supervisor, undo_on_restart


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.001)


def failing(times: int, then: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Return work that raises so often before it does what it should."""
    left = [times]

    async def work() -> None:
        if left[0]:
            left[0] -= 1
            raise OSError("No space left on device")
        await then()

    return work


async def counted(found: Supervisor) -> dict[str, float]:
    return {
        each.labels[0]: each.value
        for each in await found.samples()
        if each.family is module.RESTARTS
    }


async def test_given_a_task_that_fails_then_it_is_run_again_and_counted() -> None:
    supervisor, done = Supervisor(), asyncio.Event()

    async def work() -> None:
        done.set()
        await asyncio.sleep(3600)

    task = asyncio.create_task(supervisor.keep("disk", failing(3, work)))
    async with asyncio.timeout(5):
        await done.wait()
    assert await counted(supervisor) == {"disk": 3}
    assert supervisor.failing() == {"disk": "No space left on device"}  # until it has settled
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_given_an_attempt_that_lasts_then_the_task_is_not_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SETTLED", 0.0)
    supervisor, done = Supervisor(), asyncio.Event()

    async def work() -> None:
        done.set()
        await asyncio.sleep(3600)

    task = asyncio.create_task(supervisor.keep("disk", failing(1, work)))
    async with asyncio.timeout(5):
        await done.wait()
    assert supervisor.failing() == {}
    task.cancel()


async def test_given_a_task_that_fails_while_it_is_cancelled_then_it_ends() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise OSError("too late")

    task = asyncio.create_task(Supervisor().keep("late", work))
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_given_something_awaited_is_cancelled_then_the_task_is_restarted() -> None:
    supervisor, runs = Supervisor(), []

    async def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise asyncio.CancelledError

    async with asyncio.timeout(5):
        await supervisor.keep("odd", work)
    assert len(runs) == 2


async def test_given_a_restart_then_what_the_attempt_subscribed_to_is_undone() -> None:
    supervisor, handlers = Supervisor(), []

    async def subscribe(number: int) -> None:
        handlers.append(number)
        undo_on_restart(lambda: handlers.remove(number))

    async def work() -> None:
        await subscribe(1)
        async with asyncio.TaskGroup() as group:  # children belong to the attempt
            group.create_task(subscribe(2))
        if len(runs) < 2:
            runs.append(1)
            raise OSError("again")
        assert sorted(handlers) == [1, 2]

    runs: list[int] = []
    async with asyncio.timeout(5):
        await supervisor.keep("controller", work)
    assert handlers == []


async def test_obtain_returns_what_is_found_in_the_end() -> None:
    left = [2]

    async def find() -> str:
        if left[0]:
            left[0] -= 1
            raise OSError("not yet")
        return "found"

    async with asyncio.timeout(5):
        assert await Supervisor().obtain("probe", find) == "found"
