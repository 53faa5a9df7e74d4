"""What both commands share: plain errors, exit statuses, no tracebacks."""

from __future__ import annotations

import importlib
import sys
from typing import Any, ClassVar

import click

from livevirt.errors import LivevirtError


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
