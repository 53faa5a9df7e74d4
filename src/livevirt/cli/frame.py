"""What both commands share: plain errors, exit statuses, no tracebacks."""

from __future__ import annotations

import sys
from typing import Any

import click

from livevirt.errors import LivevirtError


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
