"""The VM controller is called again when the maintenance window opens that edits wait for."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from livevirt.kube.control.controller import DONE, Result
from livevirt.vm.lifecycle.vm.controller import LONGEST_WAIT, until_window

from ...cases import NOON

SOON, NEVER = timedelta(seconds=90), None
CASES: dict[str, tuple[datetime | None, Result, timedelta | None]] = {
    "no window": (None, DONE, NEVER),
    "no window, but something else": (None, Result(SOON), SOON),
    "a window that opens soon": (NOON + SOON, DONE, SOON),
    "a window that opens later than something else": (NOON + 2 * SOON, Result(SOON), SOON),
    "a window that opens before something else": (NOON + SOON, Result(2 * SOON), SOON),
    "a window that has just opened": (NOON - SOON, DONE, timedelta()),
    "a window of next week": (NOON + timedelta(days=7), DONE, LONGEST_WAIT),
}


@pytest.mark.parametrize(("window", "result", "after"), CASES.values(), ids=CASES)
def test_when_it_is_called_again(
    window: datetime | None, result: Result, after: timedelta | None
) -> None:
    assert until_window(window, NOON, result).after == after
