from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from livevirt.node.intent import Incoming
from livevirt.node.migration import target
from livevirt.node.migration.handover import Handovers, MigrationNotes
from livevirt.node.migration.target import TargetMigration

from ..moving_qemu import MACHINE, Qmp, a_guest


class Watched(MigrationNotes):
    """Says when the arrival is noted among what QEMU is told."""

    qmp: Qmp

    def write_arrived(self) -> None:
        super().write_arrived()
        self.qmp.told.append("noted")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def soon(_: object) -> None:
        await asyncio.sleep(0.01)

    monkeypatch.setattr(target, "_next", soon)
    monkeypatch.setattr(target, "SETTLE_SECONDS", 0.0)


def a_target(folder: Path, qmp: Qmp, **facts: Any) -> tuple[TargetMigration, Handovers, Watched]:
    notes = Watched(folder)
    notes.qmp = qmp
    handovers = Handovers()
    incoming = Incoming(uid="m", **facts)
    return TargetMigration(a_guest(qmp), incoming, notes, handovers, lambda: None), handovers, notes


async def has_arrived(migration: TargetMigration) -> None:
    async with asyncio.timeout(10):
        while True:
            if migration.arrived:
                return
            await asyncio.sleep(0.01)


async def test_a_guest_is_waited_for_noted_and_only_then_let_run(tmp_path: Path) -> None:
    qmp = Qmp("inmigrate")
    migration, handovers, notes = a_target(tmp_path, qmp)
    async with asyncio.timeout(10):
        while True:
            if handovers.get("m").socket:
                break
            await asyncio.sleep(0.01)
    assert handovers.get("m").socket == MACHINE.migration_socket
    assert "migrate-incoming" in qmp.told
    assert (migration.arrived, notes.arrived) == (False, False)
    qmp.told.clear()
    qmp.run_state = "paused"
    await has_arrived(migration)
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
    migration, _, _ = a_target(tmp_path, qmp, paused=paused)
    await has_arrived(migration)
    assert [each for each in qmp.told if each != "look"] == told
