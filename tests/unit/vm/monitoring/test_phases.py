"""Durations between phases, by a clock of our own."""

from __future__ import annotations

from typing import Any

from livevirt.kube.control.cache import Change, Key
from livevirt.kube.control.metrics import Histogram, text
from livevirt.vm.monitoring.phases import Phases

NOON = 1_767_268_800.0  # 2026-01-01T12:00:00Z
KEY = Key("team", "web")
Object = dict[str, Any]


def an_object(phase: str = "", **metadata: Any) -> Object:
    meta = {"uid": "u1", "creationTimestamp": "2026-01-01T12:00:00Z", **metadata}
    return {"metadata": meta, "status": {"phase": phase} if phase else {}}


def follow(phases: Phases, *steps: tuple[float, Object | None], migration: bool = False) -> None:
    old: Object | None = None
    take = phases.migration_changed if migration else phases.instance_changed
    for at, new in steps:
        take(Change(KEY, old, new), NOON + at)
        old = new


def sums(phases: Phases) -> dict[str, float]:
    """Return the sum of every histogram, by name and labels."""
    lines = text(each for each in phases.samples() if isinstance(each, Histogram)).splitlines()
    found = (line.rpartition(" ") for line in lines if "_sum{" in line)
    return {name.removeprefix("kubevirt_vmi_"): float(value) for name, _, value in found}


def test_given_an_instance_that_starts_then_every_step_is_timed_to_the_fraction() -> None:
    phases = Phases()
    follow(phases, (0.5, an_object()), (0.75, an_object("Scheduling")), (2.0, an_object("Running")))
    assert sums(phases) == {
        'phase_transition_time_seconds_sum{phase="Scheduling",last_phase=""}': 0.25,
        'phase_transition_time_seconds_sum{phase="Running",last_phase="Scheduling"}': 1.25,
        'phase_transition_time_from_creation_seconds_sum{phase="Scheduling"}': 0.25,
        'phase_transition_time_from_creation_seconds_sum{phase="Running"}': 1.5,
    }


def test_given_an_instance_found_at_our_start_then_its_own_timestamp_counts() -> None:
    phases = Phases()
    follow(phases, (60.0, an_object("Scheduling")), (61.0, an_object("Running")))
    assert sums(phases) == {
        'phase_transition_time_from_creation_seconds_sum{phase="Running"}': 61.0
    }


def test_given_a_deleted_instance_then_the_time_to_its_end_is_counted() -> None:
    phases, going = Phases(), {"deletionTimestamp": "2026-01-01T12:00:10Z"}
    follow(
        phases,
        (60.0, an_object("Running")),
        (70.0, an_object("Running", **going)),
        (73.0, an_object("Succeeded", **going)),
        (74.0, None),
    )
    assert sums(phases)['phase_transition_time_from_deletion_seconds_sum{phase="Succeeded"}'] == 3.0
    assert phases._tracks == {}


def test_given_migrations_then_their_phases_and_results_are_counted() -> None:
    phases = Phases()
    steps = ((0.0, an_object()), (1.0, an_object("Running")), (4.0, an_object("Failed")))
    follow(phases, *steps, migration=True)
    name = "migration_phase_transition_time_from_creation_seconds_sum"
    assert sums(phases) == {f'{name}{{phase="Running"}}': 1.0, f'{name}{{phase="Failed"}}': 4.0}
    written = text(phases.samples())
    assert 'livevirt_migrations_total{result="failed"} 1' in written
    assert 'livevirt_migrations_total{result="succeeded"} 0' in written


def test_given_a_migration_that_had_ended_at_our_start_then_it_is_not_counted() -> None:
    phases = Phases()
    follow(phases, (60.0, an_object("Failed")), migration=True)
    assert 'livevirt_migrations_total{result="failed"} 0' in text(phases.samples())
