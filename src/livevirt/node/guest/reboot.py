"""A reboot by the power button: the guest shuts down, and the agent starts it again.

The button only makes the guest shut down, and nobody but us knows that more was asked for. So the
request is a file, for a later agent too, and it expires: a guest that ignores the button now may be
shut down from inside next week, and then it is to stay off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from livevirt.files import durable

LEAST_SECONDS = 60.0  # a guest has at least so long to shut down for a reboot


class RebootRequest:
    """The request that one guest be started again after it shuts down."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        """`now` must continue for as long as the machine runs; a guest ends with it."""
        self._path, self._now = path, now

    @property
    def pending(self) -> bool:
        """Whether a guest that is found off now is to be started again."""
        try:
            return self._now() < float(self._path.read_text())
        except FileNotFoundError:
            return False

    def write(self, seconds: float) -> None:
        """Record the request durably, for so long."""
        until = self._now() + max(seconds, LEAST_SECONDS)
        durable.write(self._path, str(until).encode())

    def remove(self) -> None:
        """Withdraw the request: a guest that shuts down stays off."""
        self._path.unlink(missing_ok=True)
