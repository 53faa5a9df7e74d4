"""The second half of a reboot by the power button: that the guest is to be switched on again.

The button only has the guest shut down, and nobody but us knows that more was meant. So the wish
is in a file, for whoever takes the guest over, and it holds for a while only: a guest that ignores
the button now may be switched off from inside next week, and then that is meant.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from livevirt.files import durable

LEAST_SECONDS = 60.0  # that a guest is given to shut down before a reboot, whatever it has else


class Reboot:
    """The wish that one guest be switched on again. It is about as old as its file."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        """`now` must go on for as long as the machine does; a guest ends with it."""
        self._path, self._now = path, now

    @property
    def wished(self) -> bool:
        """Whether the guest is to be switched on if it is found off now."""
        try:
            return self._now() < float(self._path.read_text())
        except FileNotFoundError:
            return False

    def wish(self, seconds: float) -> None:
        """Keep the wish durably; a guest that has not shut down by then did not want to."""
        until = self._now() + max(seconds, LEAST_SECONDS)
        durable.write(self._path, str(until).encode())

    def forget(self) -> None:
        """Let the guest be off once it has shut down."""
        self._path.unlink(missing_ok=True)
