from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.node.migration.handover import Departure, MigrationNotes


def test_notes_outlive_the_agent_that_wrote_them(tmp_path: Path) -> None:
    notes = MigrationNotes(tmp_path)
    assert (notes.arrived, notes.left, notes.read_departure()) == (False, False, None)
    departure = Departure(uid="m", stopped=True)
    notes.write_departure(departure)
    notes.write_arrived()
    notes.sync()
    notes.write_left()
    later = MigrationNotes(tmp_path)
    assert (later.arrived, later.left, later.read_departure()) == (True, True, departure)


def test_a_departure_is_removed_however_often(tmp_path: Path) -> None:
    notes = MigrationNotes(tmp_path)
    notes.write_departure(Departure(uid="m"))
    notes.remove_departure()
    notes.remove_departure()
    assert notes.read_departure() is None


@pytest.mark.parametrize(
    ("written", "departure"),
    [
        (b'{"uid":"m"}', Departure(uid="m")),
        (b'{"uid":"m","stopped":false,"paused":true}', Departure(uid="m", paused=True)),
    ],
)
def test_what_earlier_releases_wrote_is_understood(
    tmp_path: Path, written: bytes, departure: Departure
) -> None:
    (tmp_path / "departure.json").write_bytes(written)
    assert MigrationNotes(tmp_path).read_departure() == departure
