"""Request bodies: bytes to objects, with every key given twice found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import msgspec
import yaml

from livevirt.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from livevirt.kube.server import protobuf, responses

APPLY = "application/apply-patch+yaml"
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    APPLY,
)
_MAX_DEPTH = 100
ON_LOOP = 128 * 1024  # bytes of a body that are read in the event loop: a few milliseconds
MOST_YAML = 1024 * 1024  # bytes; reading YAML takes a hundred times as long as reading JSON
MOST_VALUES = 50_000  # in a body that is larger than ON_LOOP
MOST_DUPLICATES = 64  # keys given twice that are named
_READERS = ThreadPoolExecutor(2, thread_name_prefix="large-body")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


Body = tuple[Any, tuple[str, ...]]  # decoded, and the paths of duplicate keys


async def off_loop(read: Callable[[], Body], size: int) -> Body:
    """Return what `read` does; of a large body in a thread, so that no other client waits for it.

    Admission looks at every value, in the event loop, so their number is limited too.
    """
    if size <= ON_LOOP:
        return read()
    return await asyncio.get_running_loop().run_in_executor(_READERS, _read_large, read)


def _read_large(read: Callable[[], Body]) -> Body:
    value, twice = read()
    if _values(value) > MOST_VALUES:
        raise RequestEntityTooLarge(f"the body has more than {MOST_VALUES} values")
    return value, twice


def _values(value: Any) -> int:
    """Return the number of values in all objects and lists, or some number beyond the limit."""
    count, left = 0, [value]
    while left and count <= MOST_VALUES:
        here = left.pop()
        inner = here.values() if isinstance(here, dict) else here
        count += len(inner)
        left += (each for each in inner if isinstance(each, dict | list))
    return count


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
    """Return a patch of one of `PATCHES`, decoded; all but JSON patches must be objects."""
    if media == APPLY:
        return _read_configuration(body)
    value, twice = read_json(body)
    if media != PATCHES[0] and not isinstance(value, dict):
        raise BadRequest(f"a patch of type {media} must be a JSON object")
    return value, twice


def _read_configuration(body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return an applied configuration in JSON or YAML."""
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return read_json(body)
        except BadRequest:
            pass  # YAML may begin like JSON
    return read_yaml(body) or {}, ()


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
    members = _Members()
    decoder = json.JSONDecoder(object_pairs_hook=members.collect, parse_constant=_refuse_constant)
    try:
        value = decoder.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {_shown(error)}") from None
    if b"\\ud" in body or b"\\uD" in body:
        _refuse_half_characters(value)
    return value, tuple(_duplicates(body)) if members.twice else ()


def read_yaml(body: bytes) -> Any:
    """Return YAML decoded, restricted to what JSON can say."""
    if len(body) > MOST_YAML:
        raise RequestEntityTooLarge(
            f"the limit for YAML is {MOST_YAML} bytes; send JSON, of which more may be sent"
        )
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
    """Builds the objects of one body from their members and notes whether a key came twice."""

    def __init__(self) -> None:
        self.twice = False

    def collect(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            self.twice = True
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
    found: dict[str, None] = {}  # in order, each once

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen = set()
            for key, inner in value:
                here = f"{path}.{key}" if path else key
                if key in seen and len(found) < MOST_DUPLICATES:
                    found[here] = None
                seen.add(key)
                walk(inner, here)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(inner, f"{path}[{i}]")

    walk(json.loads(body, object_pairs_hook=_Pairs), "")
    return list(found)


def _shown(error: Exception) -> str:
    return str(error).replace("\n", " ")[:200] or type(error).__name__
