"""Objects in and out of the store: keys, encoding and versions.

Events of events.k8s.io/v1 are core events under other field names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from livevirt.kube.objects.core import EVENT, EVENT_VIEW
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.store import Key, Stored

# ---------------------------------------------------------------- events.k8s.io

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OPTIONAL_IN_EVENT = ("reportingComponent", "reportingInstance")  # empty means absent in the view
_EVENT_DEFAULTS: Object = {
    "involvedObject": {},
    "source": {},
    "reportingComponent": "",
    "reportingInstance": "",
    "firstTimestamp": None,
    "lastTimestamp": None,
}
_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}


def event_view(event: Object) -> Object:
    """Return a core event with the fields of events.k8s.io."""
    found = {
        _EVENT_NAMES.get(n, n): v
        for n, v in event.items()
        if v != "" or n not in _OPTIONAL_IN_EVENT
    }
    return {"eventTime": None, **found, "apiVersion": "events.k8s.io/v1"}


def core_event(event: Object) -> Object:
    """Return an events.k8s.io event as a core event."""
    found = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    for name, empty in _EVENT_DEFAULTS.items():
        found.setdefault(name, copy.copy(empty))
    if found.get("eventTime", "") is None:
        del found["eventTime"]
    head = {"kind": "Event", "apiVersion": "v1"}
    return {**head, **{k: v for k, v in found.items() if k not in head}}


# ---------------------------------------------------------------- stored objects

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
encode: Callable[[Any], bytes] = _encoder.encode
decode: Callable[[bytes | str], Any] = _decoder.decode


def stored_kind(kind: Kind) -> Kind:
    """Return the kind objects are kept as: events.k8s.io is a view of core events."""
    return EVENT if kind is EVENT_VIEW else kind


def key_of(kind: Kind, namespace: str, name: str) -> Key:
    """Return where an object lies in the store."""
    return Key(stored_kind(kind).resource, namespace if kind.namespaced else "", name)


def read(kind: Kind, version: str, value: bytes) -> Object:
    """Return a stored object in a version, as a new dict."""
    return as_version(kind, version, decode(value))


def as_version(kind: Kind, version: str, obj: Object) -> Object:
    """Return an object of the storage version in another one."""
    if kind is EVENT_VIEW:
        return event_view(obj)
    return kind.as_version(version, obj)


def for_storage(kind: Kind, obj: Object) -> Object:
    """Return an object in the version it is kept in, its type first."""
    if kind is EVENT_VIEW:
        return core_event(obj)
    return kind.as_version(kind.stored_version, obj)


def body(kind: Kind, version: str, stored: Stored) -> bytes:
    """Return a stored object as the JSON to answer with."""
    if kind is not EVENT_VIEW and version == kind.stored_version:
        return stored.value
    return encode(read(kind, version, stored.value))


def writer(kind: Kind, obj: Object) -> Callable[[int], bytes]:
    """Return what the store calls with the new revision to get the bytes to keep."""
    kept = for_storage(kind, obj)
    metadata = kept["metadata"]

    def with_revision(revision: int) -> bytes:
        metadata["resourceVersion"] = str(revision)
        return encode(kept)

    return with_revision


def list_prefix(kind: Kind) -> bytes:
    """Return the type at the start of every stored object of a built-in kind; lists omit it."""
    return f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
