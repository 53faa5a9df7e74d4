"""What a command shows while it waits: a spinner on a terminal, else a line for each change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str], None]


@contextmanager
def waiting(what: str) -> Iterator[Tell]:
    """Show on standard error that something is awaited; call the result with each new state."""
    last = ""

    def changed(state: str) -> bool:
        nonlocal last
        is_new, last = state != last, state
        return is_new

    if not sys.stderr.isatty():

        def line(state: str) -> None:
            if changed(state):
                print(f"{what}: {state}", file=sys.stderr, flush=True)

        yield line
        return

    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(what)) as spinner:

        def update(state: str) -> None:
            if changed(state):
                spinner.update(f"{escape(what)}: [bold]{escape(state)}[/bold]")

        yield update
