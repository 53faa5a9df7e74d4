from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.node.scratch import Scratch


def test_disks_are_made_found_and_removed_by_the_uid_of_their_guest(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "guests")
    (scratch.create("a") / "root.qcow2").touch()
    assert scratch.create("a") == scratch.of("a")
    assert (scratch.of("a") / "root.qcow2").exists()
    scratch.remove("a")
    scratch.remove("a")
    assert not scratch.of("a").exists()


def test_only_the_disks_of_guests_that_nobody_runs_are_swept(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "guests")
    scratch.sweep(set())  # nothing is there yet
    for uid in ("kept", "lost"):
        (scratch.create(uid) / "disk").touch()
    scratch.sweep({"kept"})
    assert (scratch.of("kept") / "disk").exists()
    assert not scratch.of("lost").exists()


@pytest.mark.parametrize("uid", ["", "../x", ".", "a/b"])
def test_a_path_is_no_uid(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="is not a uid"):
        Scratch(tmp_path).of(uid)
