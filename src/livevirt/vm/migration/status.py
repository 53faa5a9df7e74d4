"""The status of a migration: a pure function of what was seen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object
from livevirt.vm.migration import state as states
from livevirt.vm.migration.plan import failure, phases
from livevirt.vm.migration.view import Seen

ABORT_REQUESTED = "migrationAbortRequested"
OVER_QUOTA = "migrationRejectedByResourceQuota"
BLOCKED_BY_VOLUMES = "migrationBlockedByVolumesChange"


def changes(
    migration: Object, vmi: Object | None, seen: Seen, over_quota: str | None = None
) -> dict[str, Any]:
    """Return the fields of the status that must change, as a merge patch.

    `over_quota` is what a quota said about the target pod in this pass, nothing if it did not.
    """
    if seen.migration.final:
        return {}
    status, passed, now = migration.get("status") or {}, phases(seen), seen.now
    phase = passed[-1] if passed else seen.migration.phase
    wanted: dict[str, Any] = {"conditions": _conditions(status, seen, phase, over_quota)}
    if passed:
        moment = times.format_time(now)
        wanted["phase"] = phase
        wanted["phaseTransitionTimestamps"] = [
            *(status.get("phaseTransitionTimestamps") or ()),
            *({"phase": each, "phaseTransitionTimestamp": moment} for each in passed),
        ]
    told = _state(status.get("migrationState"), vmi, seen)
    if told is not None and told != status.get("migrationState"):
        wanted["migrationState"] = states.replacing(status.get("migrationState"), told)
    return {name: value for name, value in wanted.items() if value != status.get(name)}


def _state(known: Object | None, vmi: Object | None, seen: Seen) -> Object | None:
    """Return what is known of the migration: what the instance tells, and why it failed."""
    told = vmi["status"]["migrationState"] if vmi is not None and seen.state is not None else known
    why = failure(seen)
    if not why or (told or {}).get("endTimestamp"):
        return told
    return {**(told or {"migrationUid": seen.migration.uid}), **states.failed(why, seen.now)}


def _conditions(
    status: Object, seen: Seen, phase: str, over_quota: str | None
) -> list[Condition] | None:
    listed: list[Condition] | None = status.get("conditions")
    if seen.migration.deleting:
        listed = _put(listed, seen.now, ABORT_REQUESTED, "Deleted", "the migration was deleted")
    if over_quota is not None:
        listed = _put(listed, seen.now, OVER_QUOTA, "ExceededQuota", over_quota)
    elif phase not in ("", "Pending", "Failed") and not seen.outgrown:
        listed = _without(listed, OVER_QUOTA)
    copying = seen.vmi.copying if seen.vmi is not None else ""
    if copying and seen.state is None and phase not in ("Failed", "Succeeded"):
        listed = _put(listed, seen.now, BLOCKED_BY_VOLUMES, "VolumesChange", copying)
    elif phase != "Failed":
        listed = _without(listed, BLOCKED_BY_VOLUMES)
    return listed


def _put(
    listed: list[Condition] | None, now: datetime, type_: str, reason: str, message: str
) -> list[Condition] | None:
    """Return the list with a condition; one that is there already keeps its words."""
    if conditions.is_true(listed, type_):
        return listed
    wanted = {"type": type_, "status": "True", "reason": reason, "message": message}
    return conditions.with_condition(listed, wanted, now)


def _without(listed: list[Condition] | None, type_: str) -> list[Condition] | None:
    return conditions.without_condition(listed, type_) if listed else listed
