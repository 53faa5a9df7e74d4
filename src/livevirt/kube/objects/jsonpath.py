"""The part of JSONPath that printer columns use.

`.a.b`, `['a.b']`, `.a\\.b` (a dot inside a name), `[0]`, `[-1]`, `[*]` and filters such as
`[?(@.type=='Ready')]`, `[?(@.n!=3)]` or `[?(@.name)]`. Braces around a path and a leading `$` are
allowed. A path that leads nowhere finds nothing; only a path that cannot be parsed is an error.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _Key:
    name: str


@dataclass(frozen=True, slots=True)
class _Index:
    at: int


@dataclass(frozen=True, slots=True)
class _Every:
    pass


@dataclass(frozen=True, slots=True)
class _Where:
    path: tuple[_Step, ...]
    operator: str  # "==", "!=" or "" for "is there"
    value: Any


_Step = _Key | _Index | _Every | _Where

_TOKEN = re.compile(
    r"""
      (?P<every>\[\*\]|\.\*)
    | \.(?P<key>(?:\\.|[^.\[\]\\\s])+)
    | \[(?P<index>-?\d+)\]
    | \[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
    | \[\?\(\s*@(?P<path>[^=!\s)]*)\s*(?:(?P<operator>==|!=)\s*(?P<value>.+?))?\s*\)\]
    """,
    re.VERBOSE,
)


def find(path: str, value: Any) -> list[Any]:
    """Return everything in `value` that the path leads to, in order."""
    return _walk(_steps(path), value)


def _walk(steps: tuple[_Step, ...], value: Any) -> list[Any]:
    found = [value]
    for step in steps:
        found = [inner for outer in found for inner in _take(step, outer)]
    return found


def _take(step: _Step, value: Any) -> list[Any]:
    match step, value:
        case _Key(name), dict() if name in value:
            return [value[name]]
        case _Index(at), list() if -len(value) <= at < len(value):
            return [value[at]]
        case _Every(), list():
            return value
        case _Every(), dict():
            return list(value.values())
        case _Where(), list():
            return [item for item in value if _holds(step, item)]
        case _:
            return []


def _holds(where: _Where, item: Any) -> bool:
    found = _walk(where.path, item)
    match where.operator:
        case "==":
            return where.value in found
        case "!=":
            return bool(found) and where.value not in found
        case _:
            return bool(found)


@functools.lru_cache(maxsize=256)
def _steps(path: str) -> tuple[_Step, ...]:
    text = path.removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[_Step] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"cannot read JSONPath {path!r} at {text[at:]!r}")
        steps.append(_step(token))
        at = token.end()
    return tuple(steps)


def _step(token: re.Match[str]) -> _Step:
    match token.lastgroup:
        case "every":
            return _Every()
        case "key":
            return _Key(re.sub(r"\\(.)", r"\1", token["key"]))
        case "index":
            return _Index(int(token["index"]))
        case "quoted" | "quote":
            return _Key(token["quoted"])
        case _:
            value = token["value"]
            return _Where(_steps(token["path"]), token["operator"] or "", value and _literal(value))


def _literal(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"cannot read {text!r} in a JSONPath filter") from None
