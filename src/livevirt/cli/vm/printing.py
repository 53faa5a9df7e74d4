"""Manifests as YAML that reads as if a person had written it, and tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import yaml

if TYPE_CHECKING:  # costly to import
    from rich.table import Table

_PIPE_WIDTH = 240  # so much that nothing is cut


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def print_yaml(obj: dict[str, Any]) -> None:
    """Print an object as YAML with sorted keys, as KubeVirt's virtctl does."""
    text = yaml.dump(obj, Dumper=_Dumper, sort_keys=True, allow_unicode=True)
    click.echo(text, nl=False)


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or as wide as it needs to be in a pipe."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False).print(table)
