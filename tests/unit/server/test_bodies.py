"""Request bodies: what is read, and what is refused before it can do harm."""

from __future__ import annotations

import pytest

from livevirt.errors import BadRequest
from livevirt.server import bodies

DEEP = 100  # levels that are still read


def bomb(levels: int) -> bytes:
    """A few lines that stand for ten times as much with every level."""
    lines = ["a0: &a0 [x]"]
    for n in range(levels):
        lines.append(f"a{n + 1}: &a{n + 1} [{','.join([f'*a{n}'] * 10)}]")
    return "\n".join(lines).encode()


READ = {
    "JSON": ("application/json", b'{"a":1}', {"a": 1}),
    "JSON with a parameter": ("application/json; charset=utf-8", b'{"a":1}', {"a": 1}),
    "no type at all": ("", b'{"a":1}', {"a": 1}),
    "an escaped pair of surrogates": ("", b'{"a":"\\ud83d\\ude00"}', {"a": "\N{GRINNING FACE}"}),
    "as deep as may be": ("", b'{"a":' * DEEP + b"1" + b"}" * DEEP, None),
    "YAML": ("application/yaml", b"a: [1, x]", {"a": [1, "x"]}),
    "YAML dates are text": ("application/yaml", b"a: 2020-01-02", {"a": "2020-01-02"}),
    "YAML as deep as may be": ("application/yaml", b"[" * DEEP + b"]" * DEEP, None),
}


@pytest.mark.parametrize(("kind", "body", "value"), READ.values(), ids=READ)
def test_read(kind: str, body: bytes, value: object) -> None:
    read, twice = bodies.read(kind, body)
    assert value is None or read == value
    assert twice == ()


REFUSED = {
    "cut off": ("", b'{"a":'),
    "a number that is none": ("", b'{"a":NaN}'),
    "UTF-16": ("", '{"a":1}'.encode("utf-16")),
    "a byte order mark": ("", b'\xef\xbb\xbf{"a":1}'),
    "no UTF-8": ("", b'{"a":"\xff"}'),
    "surrogates as bytes": ("", b'{"a":"\xed\xa0\x80"}'),
    "half a pair of surrogates": ("", b'{"a":"\\ud800"}'),
    "half a pair in a key": ("", b'{"\\uDC00":1}'),
    "too deep": ("", b'{"a":' * (DEEP + 1) + b"1" + b"}" * (DEEP + 1)),
    "far too deep": ("", b"[" * 200_000),
    "YAML that grows": ("application/yaml", bomb(9)),
    "YAML that holds itself": ("application/yaml", b"&a [*a]"),
    "YAML too deep": ("application/yaml", b"[" * (DEEP + 1) + b"]" * (DEEP + 1)),
    "YAML far too deep": ("application/yaml", b"- " * 200_000),
    "YAML that runs code": ("application/yaml", b"!!python/object/apply:os.system [ls]"),
}


@pytest.mark.parametrize(("kind", "body"), REFUSED.values(), ids=REFUSED)
def test_refused(kind: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        bodies.read(kind, body)


def test_keys_given_twice_are_named() -> None:
    value, twice = bodies.read("", b'{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}')
    assert value == {"a": {"b": 2}, "c": [{"d": 1}]}
    assert twice == ("a.b", "c[0].d")
