"""The table of what is live, for the docs, from the same rules that give the verdicts."""

from __future__ import annotations

from livevirt.vm.verdict.case import NOT_YET
from livevirt.vm.verdict.changes import in_vm
from livevirt.vm.verdict.fields import FIELDS, VOLUME_ROWS
from livevirt.vm.verdict.judgement import Reason

_REST = (
    "every other field of the template",
    "no: it waits for a restart, as RestartRequired and status.pendingChanges say",
    "",
)
_LACKING = "not in this release: it waits for a restart (reason NotAvailable)"


def live_table(lacking: frozenset[Reason] = NOT_YET) -> str:
    """Return the table in Markdown, for nodes that lack some ways to go live."""
    known = [
        *((field.by, f"`{in_vm(field.path)}`", field.way, field.unless) for field in FIELDS),
        *VOLUME_ROWS,
    ]
    rows = [
        (name, _LACKING, "") if by in lacking else (name, way, unless)
        for by, name, way, unless in known
    ]
    lines = ["| field | live | a restart (or a refusal) if |", "|---|---|---|"]
    lines += (f"| {' | '.join(row)} |" for row in (*rows, _REST))
    return "\n".join(lines) + "\n"
