"""OpenAPI documents of every group and version, made from the schema tables.

`index` is `/openapi/v3`, `document` one of the documents it names, `swagger` is `/openapi/v2` and
`swagger_protobuf` the same in protobuf. They are made when first asked for and kept compressed: the
largest is a few hundred kilobytes that few clients ever read twice.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from livevirt import __version__
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.schema import Field, Type, definitions, merging
from livevirt.kube.server.openapi import operations
from livevirt.kube.server.openapi.swagger import convert, encode_protobuf

Object = dict[str, Any]

_MACHINERY = "io.k8s.apimachinery.pkg"
_REFS = {
    "quantity": f"{_MACHINERY}.api.resource.Quantity",
    "intorstring": f"{_MACHINERY}.util.intstr.IntOrString",
    "time": f"{_MACHINERY}.apis.meta.v1.Time",
    "microtime": f"{_MACHINERY}.apis.meta.v1.MicroTime",
    "duration": f"{_MACHINERY}.apis.meta.v1.Duration",
}
_SCALARS: dict[str, Object] = {
    _REFS["quantity"]: {
        "description": "An amount such as 500m, 2, 512Mi or 10G.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _REFS["intorstring"]: {
        "description": "A number or a text.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    _REFS["time"]: {
        "description": "A moment to the second, as RFC 3339 writes it.",
        "type": "string",
        "format": "date-time",
    },
    _REFS["microtime"]: {
        "description": "A moment to the microsecond, as RFC 3339 writes it.",
        "type": "string",
        "format": "date-time",
    },
    _REFS["duration"]: {"description": "A length of time such as 1h30m.", "type": "string"},
}
_TYPE_META: Object = {
    "apiVersion": {
        "description": "Group and version of the API this object is written in.",
        "type": "string",
    },
    "kind": {"description": "What kind of object this is.", "type": "string"},
}


@dataclass(frozen=True, slots=True)
class Document:
    """A document ready to be sent, compressed."""

    compressed: bytes  # gzip
    hash: str

    @property
    def etag(self) -> str:
        """The value of the ETag header."""
        return f'"{self.hash}"'

    def plain(self) -> bytes:
        """Return it as it is, for clients that do not take gzip."""
        return gzip.decompress(self.compressed)


@dataclass(frozen=True, slots=True)
class Moved:
    """The client knows an older document: send it to this address (301)."""

    location: str


@functools.cache
def index(registry: Registry) -> Document:
    """Return `/openapi/v3`: the address of each document, with its hash."""
    paths = {path: {"serverRelativeURL": _address(registry, path)} for path in _paths(registry)}
    return _pack({"paths": paths})


def document(registry: Registry, path: str, hash_: str = "") -> Document | Moved | None:
    """Return the document at `/openapi/v3/<path>`, such as `apis/kubevirt.io/v1`.

    With the right `hash` the answer never changes (`Cache-Control: public, immutable`); with a
    wrong one the client is to be sent elsewhere. None: there is no such group and version.
    """
    if path not in _paths(registry):
        return None
    if hash_ and hash_ != _document(registry, path).hash:
        return Moved(_address(registry, path))
    return _document(registry, path)


@functools.cache
def swagger(registry: Registry) -> Document:
    """Return `/openapi/v2` as JSON: every group and version in one document."""
    return _pack(_swagger(registry))


@functools.cache
def swagger_protobuf(registry: Registry) -> Document:
    """Return `/openapi/v2` as protobuf: what kubectl checks a `kind: List` with."""
    return _compress(encode_protobuf(_swagger(registry)))


def _swagger(registry: Registry) -> Object:
    return convert(describe(registry, *at) for at in _paths(registry).values())


@functools.cache
def _paths(registry: Registry) -> dict[str, tuple[str, str]]:
    served = registry.groups()
    if registry.actions is not None:
        served[registry.actions.group] = list(registry.actions.versions)
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, versions in served.items()
        for version in versions
    }


@functools.cache
def _document(registry: Registry, path: str) -> Document:
    return _pack(describe(registry, *_paths(registry)[path]))


def _address(registry: Registry, path: str) -> str:
    return f"/openapi/v3/{path}?hash={_document(registry, path).hash}"


def _pack(content: Object) -> Document:
    return _compress(msgspec.json.encode(content))


def _compress(encoded: bytes) -> Document:
    # mtime=0: the same content compresses to the same bytes
    return Document(
        gzip.compress(encoded, compresslevel=6, mtime=0),
        hashlib.sha512(encoded).hexdigest().upper(),
    )


def describe(registry: Registry, group: str, version: str) -> Object:
    """Return the OpenAPI 3.0 description of one group and version."""
    schemas: dict[str, Object] = {}
    paths: Object = {}
    if registry.actions is not None and group == registry.actions.group:
        paths = operations.of_actions(registry.actions, version)
    for kind in registry.of(group, version):
        _add_kind(schemas, kind, version)
        paths |= operations.of_kind(kind, version)
    for name in operations.bodies(registry, group, version):
        _add(schemas, definitions()[name], with_type_meta=True)
    return {
        "openapi": "3.0.0",
        "info": {"title": "livevirt", "version": f"v{__version__}"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _add_kind(schemas: dict[str, Object], kind: Kind, version: str) -> None:
    type_ = kind.schema(version)
    _add(schemas, type_, with_type_meta=True)
    named = {"group": kind.group, "version": version, "kind": kind.kind}
    schemas[type_.name]["x-kubernetes-group-version-kind"] = [named]
    if "list" not in kind.verbs:
        return
    list_meta = definitions()["meta.ListMeta"]
    _add(schemas, list_meta)
    schemas[f"{type_.name}List"] = {
        "description": f"Several {kind.kind} objects.",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_TYPE_META,
            "items": {"type": "array", "items": use(type_), "description": "The objects."},
            "metadata": use(list_meta),
        },
        "x-kubernetes-group-version-kind": [{**named, "kind": f"{kind.kind}List"}],
    }


def _add(schemas: dict[str, Object], type_: Type, *, with_type_meta: bool = False) -> None:
    """Add a type and everything it uses."""
    if type_.name in schemas:
        return
    schemas[type_.name] = _object(type_)
    if with_type_meta:
        schemas[type_.name]["properties"] = {**_TYPE_META, **schemas[type_.name]["properties"]}
    for used in _uses(type_):
        if used.form == "object":
            _add(schemas, used)
        elif used.form in _REFS:
            schemas[_REFS[used.form]] = _SCALARS[_REFS[used.form]]


def _uses(type_: Type) -> Iterator[Type]:
    for entry in type_.fields.values():
        inner = entry.type
        while inner.element is not None:
            inner = inner.element
        yield inner


def _object(type_: Type) -> Object:
    described: Object = {"description": type_.description} if type_.description else {}
    described["type"] = "object"
    required = [entry.name for entry in type_.fields.values() if entry.required]
    if required:
        described["required"] = required
    described["properties"] = {name: _property(entry) for name, entry in type_.fields.items()}
    if type_.atomic:
        described["x-kubernetes-map-type"] = "atomic"
    return described


def use(type_: Type) -> Object:
    """Return what stands where a value of the type is: a reference, or the scalar itself."""
    match type_.form:
        case "object":
            return {"$ref": f"#/components/schemas/{type_.name}"}
        case "list" if type_.element is not None:
            return {"type": "array", "items": use(type_.element)}
        case "map" if type_.element is not None:
            return {"type": "object", "additionalProperties": use(type_.element)}
        case "any":
            return {"x-kubernetes-preserve-unknown-fields": True}
        case "object-any":
            return {"type": "object"}
        case "bytes":
            return {"type": "string", "format": "byte"}
        case "nullable-time":
            return {"type": "string", "format": "date-time", "nullable": True}
        case form if form in _REFS:
            return {"$ref": f"#/components/schemas/{_REFS[form]}"}
        case form:
            return {"type": form, "format": type_.format} if type_.format else {"type": form}


def _property(entry: Field) -> Object:
    described = use(entry.type)
    extra: Object = {}
    if entry.description:
        extra["description"] = entry.description
    if entry.enum:
        extra["enum"] = list(entry.enum)
    if entry.minimum is not None:
        extra["minimum"] = entry.minimum
    if entry.default is not None:
        extra["default"] = entry.default
    elif entry.always and entry.type.form == "object":
        extra["default"] = {}
    extra |= merging(entry)
    if entry.merge is not None or entry.retain_keys or entry.replace:
        extra |= _patching(entry)
    if entry.open:
        extra["x-kubernetes-preserve-unknown-fields"] = True
    if extra and "$ref" in described:
        # Nothing may stand beside a $ref, so it goes one level down.
        return {"allOf": [described], **extra}
    return {**described, **extra}


def _patching(entry: Field) -> Object:
    """Return how a strategic merge patch merges a field."""
    words = [
        word
        for word, applies in (
            ("merge", entry.merge is not None),
            ("replace", entry.replace),
            ("retainKeys", entry.retain_keys),
        )
        if applies
    ]
    found: Object = {"x-kubernetes-patch-strategy": ",".join(words)}
    if entry.merge:
        found["x-kubernetes-patch-merge-key"] = entry.merge
    return found
