"""What a command shows while it waits: a spinner on a terminal, else a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]
Clock = Callable[[], float]


@contextmanager
def waiting(what: str, clock: Clock | None = None) -> Iterator[Tell]:
    """Show on standard error that something is awaited; call the result with each new state.

    Given a clock in seconds, the time since the beginning is shown too; a terminal counts it up.
    """
    last = ""
    began = clock() if clock is not None else 0.0

    def changed(state: str) -> bool:
        nonlocal last
        is_new, last = state != last, state
        return is_new

    def elapsed() -> str:
        return "" if clock is None else f" ({clock() - began:.1f} s)"

    if not sys.stderr.isatty():

        def line(state: str) -> None:
            if changed(state):
                print(f"{what}: {state}{elapsed()}", file=sys.stderr, flush=True)

        yield line
        return

    from rich.console import Console
    from rich.text import Text

    class Shown:
        """The line as it reads now: the spinner asks for it again with every turn."""

        def __rich__(self) -> Text:
            return Text.assemble(f"{what}: ", (last, "bold"), elapsed())

    with Console(stderr=True).status(Text(what)) as spinner:

        def update(state: str) -> None:
            if changed(state):
                spinner.update(Shown())

        yield update
