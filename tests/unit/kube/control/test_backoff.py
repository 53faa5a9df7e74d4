"""Exponential back-off."""

from __future__ import annotations

import pytest

from livevirt.kube.control.backoff import delay

DELAYS = {
    "no failure": (0, 0.0),
    "the first": (1, 2.0),
    "the second": (2, 4.0),
    "the fifth": (5, 32.0),
    "up to the longest": (6, 60.0),
    "and no number is too large": (10_000, 60.0),
}


@pytest.mark.parametrize(("failures", "seconds"), DELAYS.values(), ids=DELAYS)
def test_each_failure_but_the_first_doubles_the_delay(failures: int, seconds: float) -> None:
    assert delay(failures, 2.0, 60.0) == seconds
