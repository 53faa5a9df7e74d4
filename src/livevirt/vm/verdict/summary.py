"""A judgement as each reader gets it: status, condition, warnings, the `plan` subresource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.times import format_time
from livevirt.vm.sizing.guest_size import UNCONFIRMED
from livevirt.vm.verdict.comparison import TEMPLATE
from livevirt.vm.verdict.judgement import Judgement, Ruling, Verdict

CHANGED = "<changed>"
LONGEST = 120
_BEGINNINGS = ("userdata", "networkdata")
_WORDS = ("password", "key", "token")


def secret(path: str) -> bool:
    """Return whether a field, given its path or its own name, may hold a secret."""
    lower = path.lower()
    return any(word in lower for word in (*_WORDS, *_BEGINNINGS))


def redacted(path: str, value: Any) -> Any:
    """Return a value with all that may be secret in it made unreadable; None stays None."""
    if value is None:
        return None
    if secret(path):
        return CHANGED
    if isinstance(value, dict):
        return {name: redacted(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [redacted("", item) for item in value]
    return value


def compact(path: str, value: Any) -> str:
    """Return a value as short JSON, at most 120 characters of it."""
    shown = redacted(path, value)
    text = CHANGED if shown == CHANGED else msgspec.json.encode(shown).decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


RESTART_REQUIRED = "RestartRequired"
RELABELLED = "at the next restart only: labels and annotations of the template"
MOST_PENDING = 50
MOST_NAMED = 5  # fields a condition's message names
LONGEST_WARNING, LONGEST_WARNINGS = 256, 2048

_LEADS = {
    Verdict.REFUSED: "refused",
    Verdict.RESTART: "at the next restart only",
    Verdict.LIVE_AFTER_MIGRATION: "live, by migration",
    Verdict.LIVE_AFTER_RESIZE: "live, after a resize of the pod",
    Verdict.LIVE: "live",
}
_UNSAFE = re.compile(r"[^ -~]")  # beyond what every HTTP header can carry
_EXITS = {Verdict.RESTART: 2, Verdict.REFUSED: 3}
_WILL_WAIT = 4


class Pending(NamedTuple):
    """`status.pendingChanges`, and how many more there are than it lists."""

    items: list[Object]
    omitted: int


def pending(judgement: Judgement) -> Pending:
    """Return the changes that wait for a restart or a window, as the VM's status shows them."""
    waiting = [*judgement.of(Verdict.RESTART), *_in_window(judgement)]
    shown = [_pending(change) for change in waiting[:MOST_PENDING]]
    return Pending(shown, len(waiting) - len(shown))


def condition(judgement: Judgement) -> Condition | None:
    """Return the VM's RestartRequired condition, None when nothing waits for a restart.

    As upstream it has no reason: its message changes with what waits. Where it is unknown what
    waits, only a restart is sure to apply all.
    """
    if judgement.unknown:
        return conditions.condition(RESTART_REQUIRED, "True", message=judgement.unknown)
    waiting = judgement.of(Verdict.RESTART)
    if not waiting:
        return None
    named = [f"{_short(change)} ({change.reason})" for change in waiting[:MOST_NAMED]]
    if len(waiting) > MOST_NAMED:
        named.append(f"{len(waiting) - MOST_NAMED} more")
    fields = "1 field waits" if len(waiting) == 1 else f"{len(waiting)} fields wait"
    message = (
        f"{fields} for a restart: {', '.join(named)}. See status.pendingChanges; setting them back"
        " to what runs clears this"
    )
    return conditions.condition(RESTART_REQUIRED, "True", message=message)


def warnings(judgement: Judgement, name: str, namespace: str = "") -> list[str]:
    """Return a line for each verdict there is, the worst first, short enough for a header."""
    if judgement.unknown:
        return [judgement.unknown]
    command = f"virtctl plan {name}" + (f" -n {namespace}" if namespace else "")
    if len(command) > LONGEST_WARNING // 2:
        command = "virtctl plan -f FILE"
    found = [
        _warning(_LEADS[verdict], changes, command)
        for verdict in _LEADS
        if (changes := [c for c in judgement.of(verdict) if c.applies_at is None])
    ]
    if judgement.window is not None:
        lead = f"in the maintenance window at {format_time(judgement.window)}"
        found.append(_warning(lead, _in_window(judgement), command))
    assert sum(map(len, found)) <= LONGEST_WARNINGS  # there are five verdicts, and the window
    return found


def plan_document(
    judgement: Judgement, name: str, observed: Mapping[str, Any], namespace: str = ""
) -> Object:
    """Return the answer of the `plan` subresource.

    `observed` are the resourceVersions of what it was made from: the outcome differs only if one of
    those changed.
    """
    return {
        "verdict": str(judgement.verdict),
        "waits": judgement.waits,
        "running": judgement.running,
        "changes": [_planned(change) for change in judgement.changes],
        "warnings": warnings(judgement, name, namespace),
        "observed": dict(observed),
    }


def exit_status(document: Mapping[str, Any]) -> int:
    """Return how `virtctl plan` exits: 0 live, 2 restart, 3 refused, 4 live but it will wait."""
    worst = _EXITS.get(Verdict(document["verdict"]))
    return worst or (_WILL_WAIT if document.get("waits") else 0)


def _pending(change: Ruling) -> Object:
    path = change.path
    found = {
        "path": path,
        "from": compact(path, change.running),
        "to": compact(path, change.wanted),
        "verdict": str(change.verdict),
        "reason": str(change.reason),
    }
    if change.nearest is not None:
        found["nearestLive"] = compact(path, change.nearest)
    if change.applies_at is not None:
        found["appliesAt"] = format_time(change.applies_at)
    return found


def _planned(change: Ruling) -> Object:
    path = change.path
    found = {
        "path": path,
        "from": redacted(path, change.running),
        "to": redacted(path, change.wanted),
        "verdict": str(change.verdict),
        "reason": str(change.reason),
        "message": change.message,
    }
    if change.nearest is not None:
        found["nearestLive"] = redacted(path, change.nearest)
    if change.waits:
        found["waits"] = True
    if change.applies_at is not None:
        found["appliesAt"] = format_time(change.applies_at)
    if change.unconfirmed:
        found["confirmed"] = False
        found["message"] += f"; it will be {UNCONFIRMED[change.unconfirmed]}"
    return found


def _in_window(judgement: Judgement) -> list[Ruling]:
    """List the changes that wait for a maintenance window."""
    return [change for change in judgement.changes if change.applies_at is not None]


def _warning(lead: str, changes: list[Ruling], command: str) -> str:
    """Return one line that names as many fields as fit and ends in the command for the rest."""
    named: list[str] = []
    for change in changes:
        left = len(changes) - len(named) - 1
        line = _line(lead, [*named, _brief(change)], left, command)
        if len(line) > LONGEST_WARNING:
            break
        named.append(_brief(change))
    return _line(lead, named, len(changes) - len(named), command)


def _line(lead: str, named: list[str], more: int, command: str) -> str:
    rest = f"{more} more" if named else "1 field" if more == 1 else f"{more} fields"
    listed = [*named, rest] if more else named
    return f"{lead}: {', '.join(listed)}; see {command}"


def _brief(change: Ruling) -> str:
    """Return a change as short ASCII text, because HTTP headers carry nothing else safely."""
    values = [compact(change.path, value) for value in (change.running, change.wanted)]
    text = f"{_short(change)} {values[0]} -> {values[1]} ({change.reason})"
    brief = text if len(text) <= LONGEST_WARNING // 2 else _short(change)
    return _UNSAFE.sub("?", brief.replace('"', ""))


def _short(change: Ruling) -> str:
    return change.path.removeprefix(f"{TEMPLATE}.")
