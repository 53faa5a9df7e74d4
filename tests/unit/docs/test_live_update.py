"""The pages on live edits say what the verdicts say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from livevirt.vm.verdict.fields import live_table, not_live_table
from livevirt.vm.verdict.kubevirt_differences import differences_table
from livevirt.vm.verdict.verdict_inputs import NOT_YET

DOCS = Path(__file__).resolve().parents[3] / "docs"
TABLES = {
    "live_table": ("live-update.md", live_table()),
    "not_live_table": ("live-update.md", not_live_table()),
    "differences_table": ("differences.md", differences_table()),
}


@pytest.mark.parametrize(("name", "page", "table"), [(n, *rest) for n, rest in TABLES.items()])
def test_the_table_of_a_page_is_the_one_the_code_makes(name: str, page: str, table: str) -> None:
    text = (DOCS / page).read_text()
    found = re.search(rf"<!-- {name}: [^\n]*-->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None
    assert found[1] == table


def test_the_page_on_differences_owns_up_to_what_this_release_lacks() -> None:
    text = (DOCS / "differences.md").read_text()
    assert bool(NOT_YET) == ("reason `NotAvailable`" in text)
