"""Objects as commands read and print them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from livevirt.cli import cluster
from livevirt.errors import NotFound
from livevirt.kube.objects import names
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds as virt_kinds

if TYPE_CHECKING:
    from livevirt.cli.session import Session


def status_of(obj: Object | None) -> Object:
    """Return the status of an object, {} if there is none."""
    return (obj or {}).get("status") or {}


async def instance(session: Session, name: str) -> Object | None:
    """Return the instance of a name, if there is one."""
    try:
        return await session.client.get(virt_kinds.VMI, name, session.namespace)
    except NotFound:
        return None


# ---------------------------------------------------------------- named by people

INSTANCETYPES = (virt_kinds.CLUSTER_INSTANCETYPE, virt_kinds.INSTANCETYPE)
PREFERENCES = (virt_kinds.CLUSTER_PREFERENCE, virt_kinds.PREFERENCE)


@dataclass(frozen=True, slots=True)
class Named:
    """An object named by the user."""

    kind: Kind
    name: str

    @property
    def title(self) -> str:
        """What people call it: an instance type or a preference, and its name."""
        sort = "instance type" if self.kind in INSTANCETYPES else "preference"
        return f"{sort} {self.name}"


def named(text: str, kinds: Sequence[Kind], kind: str = "") -> Named:
    """Return what `[KIND/]NAME` means; the first of the kinds if none is named."""
    prefix, slash, name = text.rpartition("/")
    if (slash and not prefix) or not name or names.validate_path_segment(name):
        raise click.UsageError(f"{text!r} is not [KIND/]NAME")
    given = {_kind(each, kinds) for each in (prefix, kind) if each}
    if len(given) > 1:
        raise click.UsageError(f"{text!r} is not of --kind {kind}")
    return Named(given.pop() if given else kinds[0], name)


def _kind(text: str, kinds: Sequence[Kind]) -> Kind:
    for kind in kinds:
        if text.lower() in (kind.singular, kind.plural, *kind.short):
            return kind
    supported = ", ".join(kind.singular for kind in kinds)
    raise click.UsageError(f'invalid kind "{text}", supported values are: {supported}')


# ---------------------------------------------------------------- in


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
    """Return the content of a file; `-` is standard input."""
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
