"""Manifests in and out: read from a file or standard input, printed as YAML; and tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from livevirt.cli import cluster

if TYPE_CHECKING:  # costly to import
    from rich.table import Table

# ---------------------------------------------------------------- in

Object = dict[str, Any]


def manifests(filename: str) -> list[tuple[str, Object]]:
    """Return name and object of each VirtualMachine in a file; `-` is standard input."""
    found = []
    for obj in parsed(read_text(filename), filename):
        if isinstance(obj, dict) and obj.get("kind") == "VirtualMachine":
            meta = obj.get("metadata")
            name = meta.get("name") if isinstance(meta, dict) else None
            if not isinstance(name, str) or not name:
                raise click.UsageError(f"{filename} has a VirtualMachine without a name")
            asked, given = cluster.chosen().namespace, namespace_of(obj)
            if asked and given and asked != given:
                raise click.UsageError(f"{name} is in namespace {given}, not in {asked}")
            found.append((name, obj))
    if not found:
        raise click.UsageError(f"{filename} has no VirtualMachine in it")
    return found


def namespace_of(body: Object) -> str:
    """Return the namespace a manifest names."""
    meta = body.get("metadata")
    return str(meta.get("namespace") or "") if isinstance(meta, dict) else ""


def read_text(filename: str) -> str:
    """Return what a file says; `-` is standard input."""
    try:
        with click.open_file(filename, encoding="utf-8") as file:
            return str(file.read())
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{filename} is no text in UTF-8: {error.reason}") from None


def parsed(text: str, source: str) -> list[Any]:
    """Return the documents in a text, fit to be sent; `source` is what an error calls it."""
    import msgspec
    import yaml

    try:
        found = list(yaml.load_all(text, Loader=yaml.CSafeLoader)) or [{}]
    except Exception as error:  # a wrong date or number lets out more than YAMLError
        raise click.UsageError(f"{source} is neither JSON nor YAML: {error}") from None
    try:
        msgspec.json.encode(found)
    except Exception as error:  # a key that is no text, a number too large, a list in itself
        raise click.UsageError(f"{source} cannot be written as JSON: {error}") from None
    return found


# ---------------------------------------------------------------- out

_PIPE_WIDTH = 240  # so much that nothing is cut


def print_yaml(obj: Object) -> None:
    """Print an object as YAML with sorted keys, as KubeVirt's virtctl does."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as such."""

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    text = yaml.dump(obj, Dumper=Dumper, sort_keys=True, allow_unicode=True)
    click.echo(text, nl=False)


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or as wide as it needs to be in a pipe."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False).print(table)
