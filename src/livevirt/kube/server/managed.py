"""managedFields of every write: which client owns which fields of an object."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any

from livevirt.kube.objects import core, managed_fields, merge_types, times
from livevirt.kube.objects.field_sets import LEAF, FieldSet
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.managed_fields import Entry, Versions, Writer
from livevirt.kube.objects.merge_types import MergeType
from livevirt.kube.objects.metadata import FIELD_MANAGER_MAX
from livevirt.kube.objects.request import Object, Request
from livevirt.kube.server import objects

_SIZE_FIELDS = ("f:resources", "f:resizePolicy")


def track_create(request: Request, obj: Object, now: datetime) -> None:
    """Record the creator of a new object as the owner of all its fields."""
    versions = versions_of(request.kind, request.version)
    record(obj, managed_fields.updated(versions, versions.empty, obj, [], writer(request, now)))


def track_update(request: Request, new: Object, old: Object, now: datetime) -> None:
    """Record who owns which fields after a change that is not an apply."""
    sent, stored = new["metadata"].get("managedFields"), stored_entries(old)
    if not request.subresource and sent is not None and sent != stored:
        stored = [] if managed_fields.is_reset(sent) else managed_fields.usable(sent) or stored
    if stored:  # else there are no owners until the first apply
        versions = versions_of(request.kind, request.version)
        stored = managed_fields.updated(versions, old, new, stored, writer(request, now))
    record(new, stored)


def with_reset(body: Any) -> Any:
    """Return a body with an empty list of entries as one empty entry, which typed objects keep."""
    meta = body.get("metadata") if isinstance(body, dict) else None
    if isinstance(meta, dict) and meta.get("managedFields") == []:
        return {**body, "metadata": {**meta, "managedFields": [{}]}}
    return body


def stored_entries(obj: Object) -> list[Entry]:
    """Return the entries of a stored object."""
    found: list[Entry] = obj["metadata"].get("managedFields") or []
    return found


def record(obj: Object, entries: list[Entry]) -> None:
    """Write the entries into an object."""
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def changes(new: Object, old: Object) -> bool:
    """Return whether there is something to write; new times alone are set back."""
    if new == old:
        return False
    entries, before = stored_entries(new), stored_entries(old)
    if entries == before or not managed_fields.same_but_times(entries, before):
        return True
    record(new, before)
    if new == old:
        return False
    record(new, entries)
    return True


def writer(request: Request, now: datetime, config: FieldSet = LEAF) -> Writer:
    """Return who writes; `config` has the fields of an applied configuration."""
    kind = request.kind
    return Writer(
        request.options.get("fieldManager") or request.manager,
        kind.api_version_of(request.version),
        request.subresource,
        times.format_time(now),
        _ignored(kind, request.subresource) or _outside_resize(request.subresource, config),
    )


def manager_of(user_agent: str) -> str:
    """Return the field manager that a User-Agent header stands for: its first product."""
    name = user_agent.partition("/")[0]
    if not name.isprintable():
        name = "".join(letter for letter in name if letter.isprintable())
    return name.encode()[:FIELD_MANAGER_MAX].decode(errors="ignore")


@functools.cache
def _ignored(kind: Kind, subresource: str) -> FieldSet:
    """Return the fields that a resource or subresource leaves as they are."""
    match subresource:
        case "status" if kind.custom:
            return {"f:metadata": LEAF, "f:spec": LEAF}
        case "status" if kind is core.POD:
            return {
                "f:metadata": {"f:deletionTimestamp": LEAF, "f:ownerReferences": LEAF},
                "f:spec": LEAF,
            }
        case "status":
            return {"f:spec": LEAF}
        case "resize":
            return LEAF
        case _:
            return {"f:status": LEAF} if kind.has_status else LEAF


def _outside_resize(subresource: str, fields: FieldSet) -> FieldSet:
    """Return what a resize does not write of some fields: all but the sizes of containers."""
    if subresource != "resize" or not fields:
        return LEAF
    found: dict[str, Any] = {name: LEAF for name in fields if name != "f:spec"}
    spec = fields.get("f:spec", LEAF)
    found["f:spec"] = {name: LEAF for name in spec if not name.endswith("ontainers")}
    for name in ("f:containers", "f:initContainers"):
        for item, inner in spec.get(name, LEAF).items():
            left = {part: LEAF for part in inner if part not in _SIZE_FIELDS}
            found["f:spec"].setdefault(name, {})[item] = left or LEAF
    return found


# ---------------------------------------------------------------- versions


@functools.cache
def versions_of(kind: Kind, version: str) -> Versions:
    """Return the versions that the fields of a kind's objects may be written in."""
    known = {kind.api_version_of(each): (kind, each) for each in kind.versions}
    if kind in (core.EVENT, core.EVENT_VIEW):  # two views of the same objects
        known = {each.api_version: (each, each.version) for each in (core.EVENT, core.EVENT_VIEW)}

    def type_of(api_version: str) -> MergeType | None:
        found = known.get(api_version)
        return None if found is None else merge_types.of_kind(*found)

    def convert(obj: Object, api_version: str) -> Object:
        if len(known) == 1 or obj.get("apiVersion", api_version) == api_version:
            return obj
        if kind in (core.EVENT, core.EVENT_VIEW):
            view = api_version == core.EVENT_VIEW.api_version
            return objects.event_view(obj) if view else objects.core_event(obj)
        return kind.as_version(api_version.rpartition("/")[2], obj)

    return Versions(type_of, convert, merge_types.empty_object(kind, version))
