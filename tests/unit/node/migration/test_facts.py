"""Which side of a migration a pod is on, and where its guest runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.node.migration.facts import (
    Migration,
    PodFacts,
    Side,
    has_left,
    is_home,
    is_leaving,
    may_run_elsewhere,
    migration_of,
    side,
)
from livevirt.node.migration.handover import Departure

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"


def moved(source_pod: str = "s", target_pod: str = "t", **facts: Any) -> Migration:
    return Migration("m", source_pod, target_pod, **facts)


DONE = moved(completed=True, ended=True)
CANCELLED = moved(abort=True)
LATER = Migration("m2", "t", "u")  # the next migration starts where the guest is
NOTED = Departure(uid="m")
HERE = PodFacts(pod="s", node="n1", vmi_node="n1", intended=True)
RESERVED = PodFacts(pod="t", node="n2", vmi_node="n1", reserved=True)
WAITS = replace(RESERVED, incoming="m", intended=True)
CAME = replace(WAITS, arrived=True)

SIDES: dict[str, tuple[PodFacts, Side]] = {
    "none without a migration": (HERE, Side.NONE),
    "none in the migration of other pods": (replace(HERE, migration=LATER), Side.NONE),
    "the source that the instance names": (replace(HERE, migration=moved()), Side.SOURCE),
    "the target that the instance names": (replace(WAITS, migration=moved()), Side.TARGET),
    "the target that it names, also after the arrival": (
        replace(CAME, migration=DONE), Side.TARGET,
    ),
    "a target by its pod alone": (RESERVED, Side.TARGET),
    "a target by its notes alone": (WAITS, Side.TARGET),
    "none by the notes of a guest that arrived": (CAME, Side.NONE),
    "the source of the next migration of a guest that arrived": (
        replace(CAME, migration=LATER), Side.SOURCE,
    ),
    "a source by its notes alone": (replace(HERE, departure=NOTED), Side.SOURCE),
    "a source that was left": (replace(HERE, left=True), Side.SOURCE),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), SIDES.values(), ids=SIDES)
def test_side(facts: PodFacts, expected: Side) -> None:
    assert side(facts) is expected


LEFT: dict[str, tuple[PodFacts, bool]] = {
    "not without a migration": (HERE, False),
    "not while it is sent": (replace(HERE, migration=moved(started=True)), False),
    "once the instance says that it arrived": (
        replace(HERE, migration=DONE, vmi_node="n2"), True,
    ),
    "also if QEMU was gone before that was known": (
        replace(HERE, migration=DONE, vmi_node="n2", exited=True), True,
    ),
    "not of a pod that never had a guest": (
        replace(HERE, migration=DONE, vmi_node="n2", intended=False), False,
    ),
    "not if it stays": (replace(HERE, migration=moved(failed=True, ended=True)), False),
    "for ever once it is noted": (replace(HERE, left=True), True),
    "when the next migration starts elsewhere": (
        replace(HERE, departure=NOTED, migration=LATER), True,
    ),
    "not when the next one starts here: the one before failed": (
        replace(HERE, departure=NOTED, migration=replace(LATER, source_pod="s")), False,
    ),
    "not while the noted one is the last": (
        replace(HERE, departure=NOTED, migration=moved(source_pod="x")), False,
    ),
    "not when none was sent from here": (replace(HERE, migration=LATER), False),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), LEFT.values(), ids=LEFT)
def test_has_left(facts: PodFacts, expected: bool) -> None:
    assert has_left(facts) is expected


def test_one_node_reports_the_status_of_a_guest_whatever_is_known() -> None:
    assert is_home(HERE)
    assert is_home(replace(HERE, vmi_node=""))
    assert not is_home(replace(HERE, vmi_node="n2"))
    assert not is_home(replace(HERE, left=True))
    assert not is_home(replace(WAITS, vmi_node="n2"))  # not before it is noted
    assert is_home(replace(CAME, vmi_node="n2"))


def test_the_disks_of_a_guest_are_kept_while_it_may_run_elsewhere() -> None:
    assert not may_run_elsewhere(HERE)
    assert may_run_elsewhere(replace(HERE, left=True))
    assert may_run_elsewhere(replace(HERE, vmi_node="n2"))
    assert may_run_elsewhere(WAITS)
    assert not may_run_elsewhere(CAME)
    assert may_run_elsewhere(replace(HERE, migration=moved(started=True)))
    assert not may_run_elsewhere(replace(HERE, migration=moved(started=True, ended=True)))


def test_a_guest_leaves_until_it_is_known_where_it_runs() -> None:
    assert is_leaving(replace(HERE, migration=moved()))
    assert is_leaving(replace(HERE, departure=NOTED))
    assert not is_leaving(replace(HERE, departure=NOTED, left=True))
    assert not is_leaving(replace(HERE, migration=moved(ended=True, failed=True)))
    assert not is_leaving(replace(WAITS, migration=moved()))


def read(**state: Any) -> Migration:
    pods = {"migrationUid": "m", "sourcePod": "s", "targetPod": "t"}
    found = migration_of({"status": {"nodeName": "n1", "migrationState": {**pods, **state}}})
    assert found is not None
    return found


def test_a_migration_is_read_from_the_instance() -> None:
    begun = read(startTimestamp=AT, migrationConfiguration={"progressTimeout": 5})
    assert begun == Migration(
        "m", "s", "t", started=True, settings={"progressTimeout": 5}, since=NOON
    )
    assert read(completed=True, endTimestamp=AT).completed
    assert not read(abortRequested=True).wanted
    assert migration_of({"status": {}}) is None
    assert migration_of(None) is None
