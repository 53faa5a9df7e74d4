"""Manifests as text: YAML that reads as if a person had written it."""

from __future__ import annotations

from typing import Any

import click
import yaml


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
