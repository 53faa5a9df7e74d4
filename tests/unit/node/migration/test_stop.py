"""What becomes of migrations when their node agents stop; the QEMUs are not real."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import guest as guests
from livevirt.node.migration import stop
from livevirt.node.migration.facts import Side
from livevirt.node.migration.handover import Departure, Handovers
from livevirt.node.pod_dir import PodDir

from ..moving_qemu import Qmp


def noon() -> datetime:
    return datetime(2026, 1, 1, 12, tzinfo=UTC)


class Place:
    """One of two pods, as far as it matters here."""

    ending = None

    def __init__(self, root: Path, name: str, qmp: Qmp) -> None:
        self.key, self.qmp = name, qmp
        self.folder = PodDir(root / "nodes" / name / "pods", root / "run", name)
        self.folder.create(None)
        self.guest = SimpleNamespace(qmp=lambda: qmp, quit=self._quit)
        self.intent = SimpleNamespace(incoming=None)
        self.target: Any = None
        self.source: Any = None
        self.side, self.has_left = Side.NONE, False
        self.ended_with = lambda: None

    async def _quit(self) -> None:
        self.qmp.told.append("quit")
        self.ended_with()

    def cancel_arrival(self) -> bool:
        cancelled = not self.folder.migration.arrived
        if cancelled:
            self.target = None
        return cancelled


def a_source(root: Path, qmp: Qmp, **noted: Any) -> Place:
    place = Place(root, "source", qmp)
    place.side = Side.SOURCE
    place.source = SimpleNamespace(stop=lambda: qmp.told.append("stop sending"))
    place.folder.migration.write_departure(Departure(uid="m", **noted))
    return place


def a_target(root: Path) -> Place:
    place = Place(root, "target", Qmp("inmigrate"))
    place.intent.incoming = SimpleNamespace(uid="m")
    place.target = SimpleNamespace(arrived=False)
    place.side = Side.TARGET
    return place


async def settled(*places: Any) -> None:
    async with asyncio.timeout(30):
        await stop.settle(places, Handovers(), noon)


@pytest.mark.parametrize(
    ("state", "status", "noted", "told"),
    [
        ("running", "failed", {}, []),
        ("postmigrate", "completed", {}, ["cont"]),
        ("postmigrate", "completed", {"paused": True}, []),
        ("paused", "failed", {"stopped": True}, ["cont"]),
    ],
    ids=["half sent", "sent whole", "sent whole, paused", "stopped by us"],
)
async def test_a_guest_that_has_not_come_goes_on_where_it_was_once_its_target_is_gone(
    tmp_path: Path, state: str, status: str, noted: dict[str, bool], told: list[str]
) -> None:
    source, target = a_source(tmp_path, Qmp(state, "active"), **noted), a_target(tmp_path)

    def breaks() -> None:
        assert "cont" not in source.qmp.told  # as long as the target could run
        source.qmp.status = status

    target.ended_with = breaks
    await settled(source, target)
    assert target.qmp.told == ["quit"]
    assert target.folder.read_ending() is not None
    assert source.qmp.told == ["stop sending", *told]


async def test_a_guest_is_resumed_only_once_its_transfer_has_ended(tmp_path: Path) -> None:
    source, target = a_source(tmp_path, Qmp("paused", "active"), stopped=True), a_target(tmp_path)
    settling = asyncio.create_task(settled(source, target))
    await asyncio.sleep(0.1)
    assert (source.qmp.told, target.qmp.told) == (["stop sending"], ["quit"])
    source.qmp.status = "failed"
    await settling
    assert source.qmp.told == ["stop sending", "cont"]


async def test_given_a_target_that_does_not_quit_then_the_guest_goes_on_once_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((guests, "QUIT_SECONDS"), (stop, "SECONDS")):  # alike, only shorter
        monkeypatch.setattr(module, name, 2.0)
    source, target = a_source(tmp_path, Qmp("postmigrate", "completed")), a_target(tmp_path)

    async def quits_in_vain() -> None:
        await asyncio.sleep(guests.QUIT_SECONDS)
        target.qmp.told.append("kill")

    target.guest.quit = quits_in_vain
    await settled(source, target)
    assert target.qmp.told == ["kill"]
    assert source.qmp.told == ["stop sending", "cont"]


async def test_a_guest_that_has_come_is_let_run_there_first(tmp_path: Path) -> None:
    source, target = a_source(tmp_path, Qmp("postmigrate", "completed")), a_target(tmp_path)
    target.folder.migration.write_arrived()
    arrival = target.target
    settling = asyncio.create_task(settled(source, target))
    await asyncio.sleep(0.1)
    assert not settling.done()
    arrival.arrived = True
    await settling
    assert (source.qmp.told, target.qmp.told) == (["stop sending"], [])


async def test_a_guest_of_which_nothing_was_sent_is_not_waited_for(tmp_path: Path) -> None:
    source = a_source(tmp_path, Qmp())
    source.folder.migration.remove_departure()
    await settled(source)
    assert source.qmp.told == ["stop sending"]


async def test_others_are_left_alone(tmp_path: Path) -> None:
    stays, left = Place(tmp_path, "stays", Qmp()), a_source(tmp_path, Qmp("postmigrate"))
    left.has_left = True
    await settled(stays, left)
    assert (stays.qmp.told, left.qmp.told) == ([], [])
