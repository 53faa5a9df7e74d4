"""Tables are no wider than the terminal and lose nothing but the end of a long value."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.cli.table import Row, lines
from livevirt.cli.vm import plan

WORDS = st.text(alphabet="abcdefg.[]", min_size=1, max_size=24)
ROWS = st.builds(
    lambda name, cells, words: Row((name, *cells), " ".join(words), "green"),
    st.text(alphabet="abcdefg.[]", min_size=1, max_size=70),
    st.tuples(*[st.text(alphabet="xyz0", max_size=30)] * 3),
    st.lists(WORDS, max_size=20),
)


@given(st.lists(ROWS, min_size=1, max_size=5), st.integers(80, 200))
def test_no_line_is_too_long_and_no_name_or_text_is_lost(rows: list[Row], width: int) -> None:
    printed = [click.unstyle(line) for line in lines(("A", "B", "C", "D", "WHY"), rows, width)]
    assert all(len(line) <= width for line in printed)
    everything = "".join("".join(printed).split())
    for row in rows:
        assert row.cells[0] in everything
        assert "".join(row.text.split()) in everything


def test_a_text_stands_beside_its_cells_or_below_them() -> None:
    rows = [Row(("web", "live"), "short"), Row(("db", "no"), "much too long for this table")]
    assert list(lines(("VM", "REACHED", "WHY"), rows, 30)) == [
        "VM   REACHED  WHY",
        "web  live     short",
        "db   no",
        "    much too long for this",
        "    table",
    ]


def test_cells_that_do_not_fit_beside_a_name_are_put_below_it() -> None:
    rows = [Row(("a", "1")), Row(("a-name-that-is-too-long", "2"))]
    assert list(lines(("NAME", "N"), rows, 20)) == [
        "NAME  N",
        "a     1",
        "a-name-that-is-too-",
        "    long",
        "      2",
    ]


@pytest.mark.parametrize("columns", ["", "80", "132"])
def test_a_plan_fits_the_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    change = {
        "path": "spec.template.spec.domain.devices.disks[web-containerdisk-0].disk.bus",
        "from": "virtio", "to": "scsi", "verdict": "Restart", "reason": "NotLive",
        "message": "the bus of a disk changes when the guest is restarted, not before",
    }  # fmt: skip
    plan.show("web", {"running": True, "verdict": "Restart", "waits": False, "changes": [change]})
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= int(columns or 80)
    assert "domain.devices.disks[web-containerdisk-0].disk.bus" in printed
    assert change["message"].split() == printed.split()[-len(change["message"].split()) - 4 : -4]
