"""Conditions of an object's status: read one, set one, remove one.

A condition is a dict with a `type` and a `status` of `True`, `False` or `Unknown`. Lists are never
changed in place; when nothing changes, the very list given is returned, so `is` tells whether a
status needs writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from livevirt.kube.objects.times import format_time

Condition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, as conditions and events report it."""

    reason: str  # a word in CamelCase
    message: str


def condition(type: str, status: str, reason: str = "", message: str = "") -> Condition:
    """Return a condition; an empty reason or message is left out."""
    given = {"type": type, "status": status, "reason": reason, "message": message}
    return {name: value for name, value in given.items() if value}


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
