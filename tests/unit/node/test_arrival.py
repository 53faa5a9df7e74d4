from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from livevirt.node import arrival
from livevirt.node.arrival import Arrival
from livevirt.node.handover import Handovers
from livevirt.node.intent import Incoming
from livevirt.node.move import Got
from livevirt.node.pod_dir import PodDir

from .moving_qemu import MACHINE, Qmp, a_guest


class Watched(PodDir):
    """Says when the arrival is noted among what QEMU is told."""

    qmp: Qmp

    def begin_arrival(self) -> None:
        super().begin_arrival()
        self.qmp.told.append("noted")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def soon(_: object) -> None:
        await asyncio.sleep(0.01)

    monkeypatch.setattr(arrival, "_next", soon)
    monkeypatch.setattr(arrival, "PEACE_SECONDS", 0.0)


def a_place(folder: Path, qmp: Qmp, **facts: Any) -> tuple[Arrival, Handovers, Watched]:
    files = Watched(folder / "nodes" / "n" / "pods", folder / "run", "uid")
    files.qmp = qmp
    files.create(None)
    handovers = Handovers()
    incoming = Incoming(uid="m", **facts)
    return Arrival(a_guest(qmp), incoming, files, handovers, lambda: None), handovers, files


async def has_arrived(place: Arrival) -> None:
    async with asyncio.timeout(10):
        while True:
            if place.told == Got(arrived=True):
                return
            await asyncio.sleep(0.01)


async def test_a_guest_is_waited_for_noted_and_only_then_let_run(tmp_path: Path) -> None:
    qmp = Qmp("inmigrate")
    place, handovers, files = a_place(tmp_path, qmp)
    async with asyncio.timeout(10):
        while True:
            if handovers.socket("m"):
                break
            await asyncio.sleep(0.01)
    assert handovers.socket("m") == MACHINE.migration_socket
    assert "migrate-incoming" in qmp.told
    assert (place.told, files.arrived.exists()) == (Got(), False)
    qmp.told.clear()
    qmp.run_state = "paused"
    await has_arrived(place)
    assert qmp.told[:2] == ["noted", "cont"]


@pytest.mark.parametrize(
    ("state", "paused", "told"),
    [
        ("paused", True, ["noted"]),
        ("io-error", False, ["noted"]),
        ("running", False, ["noted"]),  # a server died after it had let it run
    ],
)
async def test_a_guest_that_stood_still_or_runs_already_is_not_told_to(
    tmp_path: Path, state: str, paused: bool, told: list[str]
) -> None:
    qmp = Qmp(state, "completed")
    place, _, _ = a_place(tmp_path, qmp, paused=paused)
    await has_arrived(place)
    assert [each for each in qmp.told if each != "look"] == told
