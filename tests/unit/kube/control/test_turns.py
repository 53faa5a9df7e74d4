"""Fair turns: who failed waits in line, newcomers behind, and the line ends with the last."""

from __future__ import annotations

import asyncio

import pytest

from livevirt.kube.control.turns import Turns
from livevirt.kube.store import Key

KEY, OTHER = Key("configmaps", "ns", "a"), Key("configmaps", "ns", "b")


class Writer:
    """Fails as often as told; then waits until it may finish."""

    def __init__(self, failures: int, log: list[str], name: str) -> None:
        self.failures, self.log, self.name = failures, log, name
        self.may_end = asyncio.Event()
        self.tried = asyncio.Event()

    async def attempt(self) -> str | None:
        self.log.append(self.name)
        if self.failures:
            self.failures -= 1
            return None
        self.tried.set()
        await self.may_end.wait()
        return self.name


async def test_given_nobody_in_line_when_writing_then_it_is_tried_at_once() -> None:
    log: list[str] = []
    writer = Writer(0, log, "a")
    writer.may_end.set()
    assert await Turns().write(KEY, writer.attempt) == "a"
    assert log == ["a"]


async def test_given_a_loser_in_line_when_others_come_then_only_those_of_its_key_wait() -> None:
    turns, log = Turns(), []
    loser, newcomer, stranger = (Writer(n, log, name) for n, name in ((1, "l"), (0, "n"), (0, "s")))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(turns.write(KEY, loser.attempt))
        await loser.tried.wait()
        group.create_task(turns.write(KEY, newcomer.attempt))
        group.create_task(turns.write(OTHER, stranger.attempt))
        await stranger.tried.wait()
        assert log == ["l", "l", "s"]
        loser.may_end.set()
        await newcomer.tried.wait()
        newcomer.may_end.set()
        stranger.may_end.set()
    assert log == ["l", "l", "s", "n"]


async def test_given_a_line_that_has_ended_when_somebody_comes_then_there_is_none() -> None:
    turns, log = Turns(), []
    loser, late = Writer(1, log, "l"), Writer(1, log, "n")
    loser.may_end.set()
    late.may_end.set()
    assert await turns.write(KEY, loser.attempt) == "l"
    assert await turns.write(KEY, late.attempt) == "n"
    assert not turns.lines


async def test_given_a_writer_in_line_when_cancelled_then_the_next_gets_its_turn() -> None:
    turns, log = Turns(), []
    first, second = Writer(1, log, "f"), Writer(0, log, "s")
    second.may_end.set()
    task = asyncio.create_task(turns.write(KEY, first.attempt))
    async with asyncio.timeout(5):
        await first.tried.wait()
        waiting = asyncio.create_task(turns.write(KEY, second.attempt))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await waiting == "s"
    assert not turns.lines


async def test_given_a_writer_that_never_wins_then_it_gives_up() -> None:
    assert await Turns().write(KEY, Writer(1000, [], "x").attempt) is None
