"""Conditions and phases of an object's status: build one, read one, set one, remove one.

A condition is a dict with a `type` and a `status` of `True`, `False` or `Unknown`. Lists are never
changed in place; when nothing changes, the very list given is returned, so `is` shows whether a
status needs writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from livevirt.kube.objects.times import format_time

Condition = dict[str, Any]
LONGEST_MESSAGE = 32768  # characters, as in meta/v1


def human_readable(text: str) -> str:
    """Return a message as a status field or an event holds it.

    Every message that we write passes through here. It is for people: no decision may depend on
    its text, and the test mode `--scramble-messages` replaces it to prove that none does.
    """
    return text[:LONGEST_MESSAGE]


def condition(type: str, status: bool | str, reason: str = "", message: str = "") -> Condition:
    """Return a condition without times, and without a reason or message that is empty."""
    built: Condition = {"type": type, "status": str(status)}
    if reason:
        built["reason"] = reason
    if message:
        built["message"] = human_readable(message)
    return built


def replaced(
    conditions: list[Condition] | None, condition: Condition, now: datetime
) -> list[Condition]:
    """Return the list with the condition, the very list if it differs at most in its times."""
    present = conditions if conditions is not None else []
    old = find(present, condition["type"])
    fields = ("status", "reason", "message")
    if old is not None and all(old.get(name) == condition.get(name) for name in fields):
        return present
    return with_condition(present, condition, now)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, as conditions and events report it."""

    reason: str  # in CamelCase
    message: str


def find(conditions: list[Condition] | None, type: str) -> Condition | None:
    """The condition of this type, if the object has it."""
    return next((each for each in conditions or () if each.get("type") == type), None)


def is_true(conditions: list[Condition] | None, type: str) -> bool:
    """Whether the object has the condition and its status is `True`."""
    found = find(conditions, type)
    return found is not None and found.get("status") == "True"


def with_condition(
    conditions: list[Condition] | None, condition: Condition, now: datetime
) -> list[Condition]:
    """The list in which `condition` stands in place of the one of its type, or at the end.

    `lastTransitionTime` is kept while the status stays the same. When it changes, the time in
    `condition` counts, or else `now`.
    """
    present = conditions if conditions is not None else []
    old = find(present, condition["type"])
    since = condition.get("lastTransitionTime") or format_time(now)
    if old is not None and old.get("status") == condition["status"]:
        since = old.get("lastTransitionTime") or since
    new = {**condition, "lastTransitionTime": since}
    if old is None:
        return [*present, new]
    if _said(old) == _said(new):
        return present
    return [new if each is old else each for each in present]


def without_condition(conditions: list[Condition] | None, type: str) -> list[Condition]:
    """The list without the condition of this type."""
    present = conditions if conditions is not None else []
    if find(present, type) is None:
        return present
    return [each for each in present if each.get("type") != type]


def _said(condition: Condition) -> Condition:
    """A condition without its nulls: the server adds a null `lastProbeTime` to those of pods."""
    return {name: value for name, value in condition.items() if value is not None}


#: Where pods, instances, migrations and DataVolumes stay for good.
FINAL = ("Succeeded", "Failed")
