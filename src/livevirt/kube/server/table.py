"""Answers in the forms clients ask for instead of whole objects: tables and bare metadata.

A custom kind prints the columns of its registry entry, by JSONPath; a built-in kind those of
`cells` and `storage_cells`. Everything here is a pure function of the objects and the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

from livevirt.kube.objects import jsonpath
from livevirt.kube.objects.kind import Column, Kind
from livevirt.kube.objects.times import TimeError, age
from livevirt.kube.server import cells, storage_cells
from livevirt.kube.server.cells import DEFAULT, NAME, Printer

Object = dict[str, Any]
Include = Literal["None", "Metadata", "Object"]

_API = "meta.k8s.io/v1"
_PRINTERS = {**cells.PRINTERS, **storage_cells.PRINTERS}
_CUSTOM_AGE = Column(
    "Age", ".metadata.creationTimestamp", "date", description="how long ago it was created"
)
_ENDED = {
    "Succeeded": "every container of the pod ended well",
    "Failed": "a container of the pod ended badly",
}


def table(
    kind: Kind,
    objects: Iterable[Object],
    *,
    now: datetime,
    include: Include = "Metadata",
    list_meta: Object | None = None,
    headers: bool = True,
) -> Object:
    """Return objects as a Table, one row each.

    `list_meta` is the metadata of the list (of the object itself where there is only one);
    `headers=False` leaves the columns out, as every event of a watch but the first does.
    """
    printer = _printer(kind)
    return {
        "kind": "Table",
        "apiVersion": _API,
        "metadata": list_meta or {},
        "columnDefinitions": [_definition(c) for c in printer.columns] if headers else None,
        "rows": [_row(kind, obj, printer.cells(obj, now), _CARRY[include]) for obj in objects],
    }


def partial_metadata(obj: Object) -> Object:
    """Return the object with nothing but its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _API, "metadata": obj["metadata"]}


def partial_metadata_list(objects: Iterable[Object], list_meta: Object) -> Object:
    """Return a list of objects with nothing but their metadata."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _API,
        "metadata": list_meta,
        "items": [partial_metadata(obj) for obj in objects],
    }


_CARRY: dict[Include, Callable[[Object], Object | None]] = {
    "None": lambda _: None,
    "Metadata": partial_metadata,
    "Object": lambda obj: obj,
}


def _row(
    kind: Kind, obj: Object, made: list[Any], carry: Callable[[Object], Object | None]
) -> Object:
    row: Object = {"cells": made, "object": carry(obj)}
    if kind.kind == "Pod" and not kind.group:
        phase = (obj.get("status") or {}).get("phase")
        if phase in _ENDED:
            row["conditions"] = [
                {
                    "type": "Completed",
                    "status": "True",
                    "reason": phase,
                    "message": _ENDED[phase],
                }
            ]
    return row


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _printer(kind: Kind) -> Printer:
    if not kind.custom:
        return _PRINTERS.get((kind.group, kind.kind), DEFAULT)
    columns = kind.columns or (_CUSTOM_AGE,)
    return Printer(
        (NAME, *columns),
        lambda obj, now: [obj["metadata"]["name"], *(_cell(c, obj, now) for c in columns)],
    )


def _cell(column: Column, obj: Object, now: datetime) -> Any:
    """Return the first value the column's path finds, or None if it does not fit its type."""
    found = jsonpath.find(column.path, obj)
    if not found or found[0] is None:
        return None
    match column.type, found[0]:
        case "date", str() as text:
            try:
                return age(text, now)
            except TimeError:
                return "<invalid>"
        case "string", str() as text:
            return text
        case "string", value:
            return json.dumps(value, separators=(",", ":"))
        case "boolean", bool() as flag:
            return flag
        case "integer", int() | float() as number if not isinstance(number, bool):
            return int(number)
        case "number", int() | float() as number if not isinstance(number, bool):
            return number
        case _:
            return None
