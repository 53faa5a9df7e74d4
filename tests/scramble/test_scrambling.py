"""Scrambled messages: gibberish that is stable, and that reaches every message we build."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import conditions

from .scrambling import SEED_VARIABLE, SWITCH_VARIABLE, scrambled

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUOTA = "ResourceQuota tight is missing 1m of cpu; it resumes automatically when there is room"


@given(st.text())
def test_gibberish_is_stable_and_stays_as_it_is(text: str) -> None:
    found = scrambled(text)
    assert scrambled(text) == found == scrambled(found)
    assert bool(found) == bool(text)
    assert abs(len(found) - len(text)) <= 11


def test_no_word_of_the_message_is_left() -> None:
    assert not set(QUOTA.split()) & set(scrambled(QUOTA).split())
    assert scrambled(QUOTA) != scrambled(QUOTA + ".")


@pytest.fixture
def scrambling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "human_readable", scrambled)


@pytest.mark.usefixtures("scrambling")
def test_conditions_are_scrambled_and_not_written_again() -> None:
    built = conditions.condition("Ready", False, "OverQuota", QUOTA)
    assert built == {
        "type": "Ready", "status": "False", "reason": "OverQuota", "message": scrambled(QUOTA),
    }  # fmt: skip
    listed = conditions.replaced([], built, NOON)
    again = conditions.condition("Ready", False, "OverQuota", QUOTA)
    assert conditions.replaced(listed, again, NOON) is listed


@pytest.mark.usefixtures("scrambling")
async def test_events_are_scrambled() -> None:
    created: list[str] = []

    class Client:
        async def create(self, _kind: object, event: dict[str, str], _namespace: str) -> None:
            created.append(event["message"])

    recorder = Recorder(Client(), "test", lambda: NOON)  # type: ignore[arg-type]
    recorder.event({"metadata": {"name": "a", "namespace": "b"}}, "Normal", "Because", QUOTA)
    await recorder.close()
    assert created == [scrambled(QUOTA)]


def test_a_process_with_the_folder_in_its_path_scrambles_by_the_seed_it_is_given() -> None:
    folders = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), SWITCH_VARIABLE: "yes"}
    program = (
        "from livevirt.kube.objects import conditions;"
        "print(conditions.human_readable('out of room'))"
    )
    said = [
        subprocess.check_output(
            [sys.executable, "-c", program], env={**environment, SEED_VARIABLE: seed}, text=True
        )
        for seed in ("one", "one", "two")
    ]
    assert said[0] == said[1] != said[2]
    assert all("room" not in each for each in said)
