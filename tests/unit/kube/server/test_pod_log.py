"""Which part of a log somebody asks for."""

from __future__ import annotations

import io
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.errors import BadRequest
from livevirt.kube.server import pod_log
from livevirt.kube.server.pod_log import Wanted, next_part, read_options, tail_start

texts = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b""]), max_size=30).map(b"".join)


@given(texts, st.integers(0, 12), st.integers(1, 7))
def test_the_tail_is_the_last_lines_however_the_file_is_read(
    text: bytes, lines: int, chunk: int
) -> None:
    with mock.patch.object(pod_log, "_CHUNK", chunk):
        start = tail_start(io.BytesIO(text), lines)
    pieces = text.split(b"\n")
    whole = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    assert text[start:] == b"".join(whole[-lines:] if lines else [])


def test_a_log_that_is_cut_while_it_is_followed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "serial.log"
    path.write_bytes(b"one\ntwo\nthree\n")
    with path.open("rb") as follower, path.open("ab", buffering=0) as writer:
        assert next_part(follower, 100) == b"one\ntwo\nthree\n"
        assert next_part(follower, 100) == b""
        writer.truncate(0)
        writer.write(b"three\n")
        assert next_part(follower, 100) == b""  # it was told of that
        writer.write(b"four\n")
        assert next_part(follower, 100) == b"four\n"


READ = {
    "nothing asked is QEMU's log": ({}, Wanted("compute")),
    "the console": ({"container": "guest-console-log"}, Wanted("guest-console-log")),
    "numbers": ({"tailLines": "0", "limitBytes": "9"}, Wanted("compute", tail=0, limit=9)),
    "follow": ({"follow": "true", "timestamps": "false"}, Wanted("compute", follow=True)),
}


@pytest.mark.parametrize(("options", "wanted"), READ.values(), ids=READ)
def test_options(options: dict[str, str], wanted: Wanted) -> None:
    assert read_options(options, "web") == wanted


def test_what_has_no_effect_is_said() -> None:
    notes = read_options({"sinceSeconds": "5", "timestamps": "true"}, "web").notes
    assert [note.partition(" ")[0] for note in notes] == ["timestamps", "sinceSeconds"]


@pytest.mark.parametrize(
    "options",
    [
        {"tailLines": "-1"},
        {"tailLines": "9" * 5000},
        {"limitBytes": "0"},
        {"container": "sidecar"},
        {"previous": "true"},
    ],
)
def test_what_cannot_be_had_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        read_options(options, "web")
