"""Request bodies: bytes to objects, with every key given twice found."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
import yaml

from livevirt.errors import BadRequest, UnsupportedMediaType
from livevirt.kube.server import protobuf, responses

PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_MAX_DEPTH = 100
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read(content_type: str, body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the decoded body of a write and the paths of duplicate keys."""
    match responses.media_type(content_type):
        case responses.JSON:
            return read_json(body)
        case responses.YAML:
            return read_yaml(body), ()
        case responses.PROTOBUF:
            api_version, kind, obj = protobuf.decode(body)
            return {"apiVersion": api_version, "kind": kind, **obj}, ()
        case other:
            raise UnsupportedMediaType(
                f"the body of the request was in an unknown format ({other}) - accepted media"
                f" types include: {responses.JSON}, {responses.YAML}, {responses.PROTOBUF}"
            )


def read_patch(media: str, body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return a patch of one of `PATCHES`, decoded; merge patches must be objects."""
    value, twice = read_json(body)
    if media != PATCHES[0] and not isinstance(value, dict):
        raise BadRequest(f"a patch of type {media} must be a JSON object")
    return value, twice


def read_json(body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return JSON decoded, and the paths of keys that were given twice (the last one wins)."""
    try:
        value = _decode(body)
        # The decoder silently drops a member whose key comes again. As many colons in what was
        # read as in the body means that none is missing, unless some are written as escapes.
        escapes = b"\\" in body and b"\\u" in body
        complete = not escapes and _encode(value).count(b":") == body.count(b":")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        complete = False
    if complete:
        twice: tuple[str, ...] = ()
    else:
        value, twice = _read_slowly(body)
    may_be_deep = body.count(b"{") + body.count(b"[") > _MAX_DEPTH
    if may_be_deep and _too_deep(value, _MAX_DEPTH):
        raise BadRequest(f"the body is nested more than {_MAX_DEPTH} levels deep")
    return value, twice


def _read_slowly(body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return what `read_json` does, for bodies with duplicate keys, escapes or mistakes."""
    _Members.twice = False
    try:
        value = _DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {_shown(error)}") from None
    if b"\\ud" in body or b"\\uD" in body:
        _refuse_half_characters(value)
    return value, tuple(_duplicates(body)) if _Members.twice else ()


def read_yaml(body: bytes) -> Any:
    """Return YAML decoded, restricted to what JSON can say."""
    try:
        _check_yaml(body)
        value = yaml.load(body, Loader=_Loader)
        return read_json(json.dumps(value, allow_nan=False).encode())[0]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"the body is not valid YAML: {_shown(error)}") from None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML without dates, which Kubernetes reads as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Members:
    """Builds objects from their members and notes whether a key came twice.

    One for all: a body is decoded in one go, in the event loop's thread.
    """

    twice = False

    @staticmethod
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            _Members.twice = True
        return found


def _check_yaml(body: bytes) -> None:
    """Refuse what a few bytes could make endless: aliases, and nesting that libyaml follows down.

    It reads one event after the other; loading descends in C, where no depth is too deep but one.
    """
    depth = 0
    for event in yaml.parse(body, Loader=_Loader):
        match event:
            case yaml.AliasEvent():
                raise yaml.YAMLError("aliases are not supported")
            case yaml.CollectionStartEvent():
                depth += 1
                if depth > _MAX_DEPTH:
                    raise yaml.YAMLError(f"it is nested more than {_MAX_DEPTH} levels deep")
            case yaml.CollectionEndEvent():
                depth -= 1


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_Members.collect, parse_constant=_refuse_constant)


def _refuse_half_characters(value: Any) -> None:
    """Refuse text that UTF-8 cannot hold: an escaped surrogate without its other half."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequest("the body is not valid JSON: half a surrogate pair") from None


def _too_deep(value: Any, left: int) -> bool:
    if left == 0:
        return True
    if isinstance(value, dict):
        return any(_too_deep(v, left - 1) for v in value.values() if isinstance(v, dict | list))
    if isinstance(value, list):
        return any(_too_deep(v, left - 1) for v in value if isinstance(v, dict | list))
    return False


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, duplicates included."""


def _duplicates(body: bytes) -> list[str]:
    """Return the paths of keys given twice; slow, so only called when there are some."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen = set()
            for key, inner in value:
                here = f"{path}.{key}" if path else key
                if key in seen and here not in found:
                    found.append(here)
                seen.add(key)
                walk(inner, here)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(inner, f"{path}[{i}]")

    walk(json.loads(body, object_pairs_hook=_Pairs), "")
    return found


def _shown(error: Exception) -> str:
    return str(error).replace("\n", " ")[:200] or type(error).__name__
