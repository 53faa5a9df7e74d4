"""The table of what is live, for the docs, from the same rules that give the verdicts."""

from __future__ import annotations

from livevirt.rollout.changes import in_vm
from livevirt.rollout.fields import FIELDS, VOLUME_ROWS

_REST = (
    "every other field of the template",
    "no: it waits for a restart, as RestartRequired and status.pendingChanges say",
    "",
)


def live_table() -> str:
    """Return the table in Markdown."""
    rows = [(f"`{in_vm(field.path)}`", field.way, field.unless) for field in FIELDS]
    lines = ["| field | live | a restart (or a refusal) if |", "|---|---|---|"]
    lines += (f"| {' | '.join(row)} |" for row in (*rows, *VOLUME_ROWS, _REST))
    return "\n".join(lines) + "\n"
