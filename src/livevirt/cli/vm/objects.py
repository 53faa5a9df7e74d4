"""Objects of the cluster: those the server has, and those people name as `NAME` or `KIND/NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livevirt.errors import NotFound
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds as virt_kinds

if TYPE_CHECKING:
    from livevirt.cli.session import Session
from collections.abc import Sequence
from dataclasses import dataclass

import click

from livevirt.kube.objects import names
from livevirt.kube.objects.kind import Kind


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
    """An object somebody named."""

    kind: Kind
    name: str

    @property
    def title(self) -> str:
        """What people call it: an instance type or a preference, and its name."""
        sort = "instance type" if self.kind in INSTANCETYPES else "preference"
        return f"{sort} {self.name}"


def named(text: str, kinds: Sequence[Kind], kind: str = "") -> Named:
    """Return what `[KIND/]NAME` means; the first of the kinds if neither it nor `kind` says."""
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
