"""ControllerRevisions of instance types and preferences: what a VM keeps of what it was given.

A VM goes by the revision, not by the object, so editing or deleting the object changes no VM. One
revision is taken for each VM and generation of the object; those of earlier choices stay, so that
going back needs nothing but their name.
"""

from __future__ import annotations

import hashlib
from typing import Any

from livevirt.kube.objects import core
from livevirt.kube.objects.quantity import QuantityError, parse
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.matchers import Role
from livevirt.vm.kinds import conversion

PREFIX = "instancetype.kubevirt.io/object"
NAME, KIND, UID = f"{PREFIX}-name", f"{PREFIX}-kind", f"{PREFIX}-uid"
GENERATION, VERSION = f"{PREFIX}-generation", f"{PREFIX}-version"
#: Metadata of the object that a revision does not keep.
_LEFT_OUT = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_LONGEST_NAME, _LONGEST_LABEL, _DIGEST = 253, 63, 8


class Unreadable(ValueError):
    """A revision holds something else than what it should."""


def name_of(vm: Object, obj: Object) -> str:
    """Return the name of the revision a VM takes of an object."""
    meta = obj["metadata"]
    uid, generation = meta.get("uid", ""), meta.get("generation", 0)
    name = f"{vm['metadata']['name']}-{meta['name']}-{conversion.STORED}-{uid}-{generation}"
    return _shortened(name, _LONGEST_NAME)


def revision_of(vm: Object, obj: Object) -> Object:
    """Return the revision a VM takes of an object of the stored version."""
    owner, meta = vm["metadata"], obj["metadata"]
    return {
        "apiVersion": core.REVISION.api_version,
        "kind": core.REVISION.kind,
        "metadata": {
            "name": name_of(vm, obj),
            "namespace": owner["namespace"],
            "labels": {
                GENERATION: str(meta.get("generation", 0)),
                KIND: obj["kind"],
                NAME: _shortened(meta["name"], _LONGEST_LABEL),
                UID: str(meta.get("uid", "")),
                VERSION: conversion.STORED,
            },
            "ownerReferences": [
                {
                    "apiVersion": kinds.VM.api_version,
                    "kind": kinds.VM.kind,
                    "name": owner["name"],
                    "uid": owner["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "data": {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "metadata": {name: value for name, value in meta.items() if name not in _LEFT_OUT},
            "spec": obj["spec"],
        },
        "revision": 0,
    }


def content(role: Role, revision: Object) -> Object:
    """Return the object a revision was taken of, in the stored version; raises Unreadable."""
    data, name = revision.get("data"), revision["metadata"]["name"]
    if not isinstance(data, dict) or not isinstance(data.get("spec"), dict):
        raise Unreadable(f"failed to decode object in ControllerRevision: {name} holds no object")
    kind = role.kind(str(data.get("kind") or "none"))
    if kind is None:
        raise Unreadable(f"unexpected type in ControllerRevision: {data.get('kind')} in {name}")
    group, _, version = str(data.get("apiVersion") or "").rpartition("/")
    if group != kind.group or version not in kind.versions:
        raise Unreadable(
            f"failed to decode object in ControllerRevision: {name} holds version"
            f" {data.get('apiVersion')}, known are {', '.join(kind.versions)}"
        )
    meta = data.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise Unreadable(
            f"failed to decode object in ControllerRevision: {name} holds an object without a name"
        )
    return kind.as_version(kind.stored_version, data)


def is_current(revision: Object) -> bool:
    """Return whether a revision holds the version we store; others are to be taken again."""
    labels = revision["metadata"].get("labels") or {}
    return labels.get(VERSION) == conversion.STORED


def is_owned(revision: Object, vm: Object) -> bool:
    """Return whether a revision goes with a VM, and not with an earlier one of its name."""
    owners = revision["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == vm["metadata"]["uid"] for owner in owners)


def is_named_for(name: str, vm: Object, obj: str) -> bool:
    """Return whether a revision, by its name, is one a VM took of the object of that name."""
    at = f"{vm['metadata']['name']}-{obj}-"
    return any(
        name.startswith(f"{at}{version}-") for version in (conversion.OLD, conversion.STORED)
    )


def is_same(revision: Object, wanted: Object) -> bool:
    """Return whether a stored revision holds what one to be made would, amounts by value."""
    stored, data = revision.get("data") or {}, wanted["data"]
    return bool(
        stored.get("kind") == data["kind"]
        and _meaning(stored.get("spec")) == _meaning(data["spec"])
    )


def unexpected(name: str) -> str:
    """Return the message for the case that a revision of the right name holds something else."""
    return f"found existing ControllerRevision with unexpected data: {name}"


def _meaning(value: Any, field: str = "") -> Any:
    """Return a spec with the amounts in it read."""
    if isinstance(value, dict):
        return {name: _meaning(inner, name) for name, inner in value.items() if inner is not None}
    if field in ("guest", "maxGuest"):
        try:
            return parse(value)
        except QuantityError:
            return value
    return value


def _shortened(text: str, longest: int) -> str:
    """Return a shortened text that is still unique."""
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{text[: longest - _DIGEST - 1].rstrip('.-')}-{digest}"
