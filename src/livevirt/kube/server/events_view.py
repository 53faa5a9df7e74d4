"""Events under the names of events.k8s.io/v1: the same objects, other words."""

from __future__ import annotations

import copy

from livevirt.kube.objects.request import Object

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OPTIONAL = ("reportingComponent", "reportingInstance")  # empty means absent in the view
_ALWAYS: Object = {
    "involvedObject": {},
    "source": {},
    "reportingComponent": "",
    "reportingInstance": "",
    "firstTimestamp": None,
    "lastTimestamp": None,
}
_BACK = {new: old for old, new in _NAMES.items()}


def to_view(event: Object) -> Object:
    """Return a core event in the words of events.k8s.io."""
    found = {_NAMES.get(n, n): v for n, v in event.items() if v != "" or n not in _OPTIONAL}
    return {"eventTime": None, **found, "apiVersion": "events.k8s.io/v1"}


def from_view(event: Object) -> Object:
    """Return an events.k8s.io event as a core event."""
    found = {_BACK.get(name, name): value for name, value in event.items()}
    for name, empty in _ALWAYS.items():
        found.setdefault(name, copy.copy(empty))
    if found.get("eventTime", "") is None:
        del found["eventTime"]
    head = {"kind": "Event", "apiVersion": "v1"}
    return {**head, **{k: v for k, v in found.items() if k not in head}}
