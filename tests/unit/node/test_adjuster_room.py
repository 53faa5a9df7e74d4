"""Room for CPUs, over guests that are asked and kept busy or cannot be."""

import asyncio
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import adjuster
from livevirt.node.adjuster import Room
from livevirt.qemu.errors import Disconnected, NotNow


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a machine that is busy with other things not make a difference."""
    monkeypatch.setattr(adjuster, "FRESH_SECONDS", 60)
    monkeypatch.setattr(adjuster, "_WAIT_SECONDS", 5)


@dataclass
class Stub:
    """A guest in which there are so many places, and more each time it is kept busy."""

    places: int = 2
    freed: int = 1
    asked: int = 0
    stirred: int = 0
    agent: bool = True
    gone: bool = False
    intent: Any = field(default_factory=lambda: SimpleNamespace(vmi="web"))

    async def room(self) -> int:
        self.asked += 1
        if self.gone:
            raise Disconnected("gone")
        return self.places

    async def stir(self) -> bool:
        await asyncio.sleep(0)
        if self.agent:
            self.stirred += 1
            self.places += self.freed
        return self.agent


def a_room(guest: Stub) -> Room:
    return Room(guest)  # type: ignore[arg-type]


async def test_places_are_counted_and_asked_for_anew_when_they_are_taken() -> None:
    guest = Stub(places=2)
    room = a_room(guest)
    for asked in (1, 1, 2):
        await room.take()
        assert guest.asked == asked


async def test_what_was_found_before_is_taken_without_asking() -> None:
    guest = Stub()
    room = a_room(guest)
    await room.find()
    await room.take()
    assert guest.asked == 1


async def test_what_was_found_long_ago_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Stub()
    room = a_room(guest)
    await room.find()
    later = time.monotonic() + adjuster.FRESH_SECONDS
    monkeypatch.setattr(adjuster, "time", SimpleNamespace(monotonic=lambda: later))
    await room.take()
    assert guest.asked == 2


async def test_given_no_room_then_the_guest_is_kept_busy_until_there_is() -> None:
    guest = Stub(places=0)
    room = a_room(guest)
    await room.take()
    assert guest.stirred == 1
    assert room.finding is None


async def test_one_search_is_enough_for_all_who_ask() -> None:
    guest = Stub()
    room = a_room(guest)
    assert room.find() is room.find()
    await room.take()
    assert guest.asked == 1


async def test_given_nobody_to_keep_busy_then_who_asks_is_told_so_and_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adjuster, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(adjuster, "_PAUSE_SECONDS", 0.05)
    guest = Stub(places=0, agent=False)
    room = a_room(guest)
    with pytest.raises(NotNow):
        await room.take()
    search = room.finding
    assert search is not None
    guest.places = 1  # by what the guest does for itself
    async with asyncio.timeout(5):
        await search
    await room.take()


async def test_a_search_in_vain_ends() -> None:
    guest = Stub(places=0, freed=0)
    room = a_room(guest)
    async with asyncio.timeout(5):
        await room.find()
    assert guest.asked == adjuster._ATTEMPTS


async def test_a_qemu_that_is_gone_has_no_room() -> None:
    with pytest.raises(NotNow):
        await a_room(Stub(gone=True)).take()
