"""What both commands share: plain errors, exit statuses, progress while waiting."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import click

from livevirt.errors import LivevirtError

Show = Callable[[str], None]
Clock = Callable[[], float]


@contextmanager
def waiting(what: str, clock: Clock | None = None) -> Iterator[Show]:
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


def address(_: click.Context, __: click.Parameter, value: str) -> tuple[str, int]:
    """Return the host and port of a HOST:PORT option."""
    host, _sep, port = value.rpartition(":")
    host = host.strip("[]")
    if not _is_host(host) or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, for example 127.0.0.1:6443")
    return host, int(port)


def _is_host(text: str) -> bool:
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def print_yaml(objects: list[dict[str, Any]]) -> None:
    """Print objects as YAML documents that stand for themselves, without anchors."""
    import msgspec
    import yaml

    plain = msgspec.json.decode(msgspec.json.encode(objects))
    click.echo(yaml.safe_dump_all(plain, sort_keys=False), nl=False)


class LazyGroup(click.Group):
    """Commands by name, each imported only when it is asked for.

    `LAZY` maps a command's name to the module that has it, as `name` with underscores or under
    the attribute after a colon.
    """

    LAZY: ClassVar[dict[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every command."""
        return [*super().list_commands(ctx), *self.LAZY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command."""
        if cmd_name not in self.LAZY:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.LAZY[cmd_name].partition(":")
        found: click.Command = getattr(
            importlib.import_module(module), attribute or cmd_name.replace("-", "_")
        )
        return found


def run(command: click.Command) -> None:
    """Run a command; every error is one message on standard error and exit status 1."""
    try:
        result: Any = command.main(standalone_mode=False)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.exceptions.NoArgsIsHelpError as help_:  # a group without a command
        print(help_.format_message())
        sys.exit(0)
    except click.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(1)
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            print(error.ctx.get_usage(), file=sys.stderr)
        print(f"error: {error.format_message()}", file=sys.stderr)
        sys.exit(1)
    except (LivevirtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(result if isinstance(result, int) else 0)
