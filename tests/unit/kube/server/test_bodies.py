"""Request bodies: what is read, and what is refused before it can do harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import BadRequest
from livevirt.kube.server import bodies

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


def escaped(text: str) -> str:
    return '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'


#: JSON as somebody may have written it: with spaces, escapes, colons anywhere, keys given twice.
strings = st.builds(
    lambda text, write: write(text),
    st.text(st.sampled_from(':"{[\\,ab \u00e9'), max_size=4),
    st.sampled_from([json.dumps, lambda text: json.dumps(text, ensure_ascii=False), escaped]),
)
numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
scalars = strings | st.one_of(numbers, st.booleans(), st.none()).map(json.dumps)
members = st.tuples(strings, st.sampled_from([":", " :", ": ", "\n:\t"]))
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.builds(lambda member, value: "".join(member) + value, members, inner)).map(
            lambda pairs: f"{{{','.join(pairs)}}}"
        ),
    ),
    max_leaves=12,
)


@given(documents)
def test_given_any_json_when_read_then_its_value_is_right_and_a_key_given_twice_is_seen(
    text: str,
) -> None:
    repeated = False

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        repeated |= len(dict(pairs)) < len(pairs)
        return dict(pairs)

    expected = json.loads(text, object_pairs_hook=note)
    value, twice = bodies.read_json(text.encode())
    assert value == expected
    assert bool(twice) == repeated


COLONS = {
    "in a text": b'{"a":"x:y","a":"z"}',
    "in a key": b'{":":1,":":2}',
    "as many escaped in texts as dropped": b'{"a":1,"a":"\\u003a"}',
    "escaped in a key": b'{"\\u003a":1,":":2}',
    "far from its key": b'{"a" : 1, "a"\n:\t2}',
}


@pytest.mark.parametrize("body", COLONS.values(), ids=COLONS)
def test_a_key_given_twice_is_seen_wherever_colons_are(body: bytes) -> None:
    assert bodies.read_json(body)[1] != ()
