"""Flags as KubeVirt's virtctl takes them: `name:value,…` parameters and `--switch=true`.

Beside them the flags that several commands have: `--dry-run`, `--wait`, `--timeout`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_BOOLEANS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


class FlagError(click.ClickException):
    """A flag's value cannot be used; the message names the flag."""

    def __init__(self, flag: str, why: str) -> None:
        super().__init__(f'failed to parse "--{flag}" flag: {why}')


class Command(click.Command):
    """A command whose switches may be given a value, as in `--force=true`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, `--force=true` as `--force`."""
        switches = {
            name: option
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and option.is_flag
            for name in option.opts
        }
        return super().parse_args(ctx, [w for word in args for w in _plain(word, switches)])


def _plain(word: str, switches: dict[str, click.Option]) -> list[str]:
    name, equals, value = word.partition("=")
    if not equals or name not in switches or value.lower() not in _BOOLEANS:
        return [word]
    if _BOOLEANS[value.lower()]:
        return [name]
    return list(switches[name].secondary_opts[:1])


def dry_runs(text: str = "Only check; change nothing.") -> Callable[[F], F]:
    """Give a command `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help=text)


def takes_over(command: F) -> F:
    """Give a command `--take-over`."""
    return click.option(
        "--take-over",
        is_flag=True,
        help="Remove what the VM sets itself and the instance type sets too, such as its memory.",
    )(command)


def announce(dry_run: bool) -> None:
    """Print that nothing will be changed, if so."""
    if dry_run:
        click.echo("Dry Run execution")


def waits(text: str) -> Callable[[F], F]:
    """Give a command `--wait`, the text saying for what, and `--timeout`."""

    def add(command: F) -> F:
        command = times_out("How long --wait waits")(command)
        return click.option("-w", "--wait", "waits", is_flag=True, help=text)(command)

    return add


def times_out(text: str) -> Callable[[F], F]:
    """Give a command `--timeout`: seconds, None for no limit."""
    return click.option(
        "--timeout", default="5m", show_default=True, metavar="DURATION", callback=_seconds,
        help=f"{text}, such as 90s or 1m30s; a plain number is seconds, 0 waits forever.",
    )  # fmt: skip


def _seconds(_: click.Context, __: click.Parameter, text: str) -> float | None:
    from livevirt.cli import session  # costly to import, and some commands need none of it

    return session.seconds(text)


def params(flag: str, text: str, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters of `name:value,name:value`; raises FlagError."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, colon, value = part.partition(":")
        if not colon:
            raise FlagError(flag, f"params need to have at least one colon: {part}")
        found[name.strip().lower()] = value.strip()
    unknown = [f"{name}:{value}" for name, value in found.items() if name not in known]
    if unknown:
        raise FlagError(flag, f"unknown param(s): {','.join(unknown)}")
    return {name: value for name, value in found.items() if value}


def required(flag: str, given: dict[str, str], name: str) -> str:
    """Return a parameter that must be given."""
    if name not in given:
        raise FlagError(flag, f"{name} must be specified")
    return given[name]


def prefixed(flag: str, text: str, sort: str, kinds: Sequence[str]) -> tuple[str, str]:
    """Return kind, empty if not given, and name of `[kind/]name`."""
    *prefix, name = text.split("/")
    kind = "/".join(prefix).lower()
    if not name or len(prefix) > 1:
        raise FlagError(flag, f"{text!r} is not [kind/]name")
    if kind and kind not in kinds:
        supported = ", ".join(kinds)
        raise FlagError(flag, f'invalid {sort} kind "{kind}", supported values are: {supported}')
    return kind, name


def quantity(flag: str, text: str) -> str:
    """Return a size as it was given, if it is one above zero."""
    from livevirt.kube.objects.quantity import QuantityError, parse

    try:
        amount = parse(text).nano
    except QuantityError:
        amount = 0
    if amount <= 0:
        raise FlagError(flag, f"{text!r} is no size; write for example 512Mi or 10Gi")
    return text
