"""Exponential back-off: how long to wait before the next attempt."""

from __future__ import annotations

_MOST_DOUBLINGS = 64  # beyond it no wait is longer, and numbers stay finite


def delay(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after that many failures in a row: doubled by each but the first.

    No failure means no wait.
    """
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest) if failures > 0 else 0.0
