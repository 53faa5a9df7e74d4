"""Migrations, instances and pods as the decisions see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from livevirt.vm.migration.snapshot import Instance, Migration, MigrationState, Pod, Snapshot

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
UID = "m1"


def a_migration(phase: str = "Pending", **rest: Any) -> Migration:
    return Migration("move", UID, phase, **{"created": NOON, **rest})


def a_state(**rest: Any) -> MigrationState:
    return replace(MigrationState(UID, "target", "source", "n1"), **rest)


def an_instance(state: MigrationState | None = None, **rest: Any) -> Instance:
    return Instance("v1", "n1", state=state, **rest)


def a_target(phase: str = "Running", node: str = "n2", **rest: Any) -> Pod:
    return Pod("target", "t1", node, phase, **{"created": NOON, **rest})


SOURCE = Pod("source", "s1", "n1", "Running")
WAITING = a_target("Pending", "")
READY = a_target()
ENDED = a_target("Failed")


def at(
    phase: str | Migration = "Pending",
    vmi: Instance | None = None,
    target: Pod | None = None,
    **rest: Any,
) -> Snapshot:
    """A migration of a running instance that the queue admits."""
    mine = a_migration(phase) if isinstance(phase, str) else phase
    around = {"source": SOURCE, "admitted": True, **rest}
    return Snapshot(mine, around.pop("now", NOON), vmi or an_instance(), target, **around)


def later(**time: int) -> datetime:
    return NOON + timedelta(**time)
