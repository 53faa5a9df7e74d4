"""Events under the names of events.k8s.io/v1: the same objects, other words."""

from __future__ import annotations

from livevirt.api.request import Object

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK = {new: old for old, new in _NAMES.items()}


def to_view(event: Object) -> Object:
    """Return a core event in the words of events.k8s.io."""
    found = {_NAMES.get(name, name): value for name, value in event.items()}
    return {**found, "apiVersion": "events.k8s.io/v1"}


def from_view(event: Object) -> Object:
    """Return an events.k8s.io event as a core event."""
    found = {_BACK.get(name, name): value for name, value in event.items()}
    found.setdefault("involvedObject", {})
    found.setdefault("source", {})
    head = {"kind": "Event", "apiVersion": "v1"}
    return {**head, **{k: v for k, v in found.items() if k not in head}}
