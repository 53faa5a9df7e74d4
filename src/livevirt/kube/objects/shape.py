"""A body given the shape of its kind: typed metadata, known fields only."""

from __future__ import annotations

from livevirt.kube.objects import structural, typed
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import definitions


def shape(kind: Kind, version: str, body: Object) -> tuple[Object, list[str]]:
    """Return a body with typed metadata and known fields only, and what was unknown."""
    unknown: list[str] = []
    api_version = kind.api_version_of(version)
    if not kind.custom:
        found = typed.decode(kind.schema(version), body, unknown)
        return {"kind": kind.kind, "apiVersion": api_version, **found}, unknown
    metadata = body.get("metadata")
    meta_type = definitions()["meta.ObjectMeta"]
    meta_unknown: list[str] = []
    clean = typed.decode(meta_type, {} if metadata is None else metadata, meta_unknown)
    unknown += [f"metadata.{path}" for path in meta_unknown]
    rest = structural.prune(kind.schema(version), body, unknown)
    for name in ("apiVersion", "kind", "metadata"):
        rest.pop(name, None)
    return {"apiVersion": api_version, "kind": kind.kind, "metadata": clean, **rest}, unknown
