"""VirtualMachines as a person writes them: in a file, on standard input, on the command line."""

from __future__ import annotations

from typing import Any

import click

from livevirt.cli import cluster

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
