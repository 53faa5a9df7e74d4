"""Each status field has the writers that docs/architecture.md names, and no other.

The server that the guest suites share records every writer of a status field. This module runs
last; the more suites ran before it in the same session, the more it checks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from .guest_host import GuestHost
from .live_guest import LiveGuest, a_live_vm

pytestmark = [pytest.mark.guest, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
_ROW = re.compile(r"\| (VirtualMachine\w*|Pod) \| (.*) \| (.*) \|")
_FIELD = re.compile(r"`([^`]+)`")
_NOTE = re.compile(r"\([^)]*\)")
#: Conditions that several components write, as the table says: a kubelet writes it, too.
SHARED = {("Pod", "conditions[PodScheduled]")}


def table() -> dict[tuple[str, str], set[str]]:
    """Return the components of each field in the table; `conditions[*]` stands for all others."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for kind, fields, components in _ROW.findall(PAGE.read_text()):
        named = {each.strip() for each in _NOTE.sub("", components).split(",")}
        for field in _FIELD.findall(_NOTE.sub("", fields)):
            found[kind, field] |= named
    return found


def writers(recorded: str) -> dict[tuple[str, str], set[str]]:
    """Return the components that were seen to write each field."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in recorded.splitlines():
        kind, component, field = line.split(" ", 2)
        found[kind, field].add(component)
    return found


def expected(owners: dict[tuple[str, str], set[str]], kind: str, field: str) -> set[str]:
    """Return the components that may write a field."""
    others = (
        owners.get((kind, "conditions[*]"), set()) if field.startswith("conditions[") else set()
    )
    return owners.get((kind, field)) or others


def test_given_the_table_then_each_condition_has_one_writer() -> None:
    for (kind, field), components in table().items():
        if field.startswith("conditions[") and (kind, field) not in SHARED:
            assert len(components) == 1, f"{kind} {field}: {components}"


def test_given_a_guest_that_changes_then_only_the_components_of_the_table_write_its_status(
    guest_host: GuestHost, status_writers: Path
) -> None:
    guest = LiveGuest(guest_host, a_live_vm("writers"))
    guest_host.apply(guest.manifest)
    guest.begin()
    guest.becomes(2, "768Mi")
    guest_host.discard("writers")
    owners, seen = table(), writers(status_writers.read_text())
    assert ("VirtualMachineInstance", "conditions[AgentConnected]") in seen
    strangers = {
        field: components - expected(owners, *field)
        for field, components in seen.items()
        if components - expected(owners, *field)
    }
    assert strangers == {}
