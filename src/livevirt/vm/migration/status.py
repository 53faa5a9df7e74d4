"""What is written to `status` of a migration and to `status.migrationState` of its instance.

Pure: merge patches are computed from the snapshot.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.migration.phases import failure, phases
from livevirt.vm.migration.snapshot import Pod, Snapshot

ABORT_REQUESTED = "migrationAbortRequested"
OVER_QUOTA = "migrationRejectedByResourceQuota"
BLOCKED_BY_VOLUMES = "migrationBlockedByVolumesChange"


def changes(
    migration: Object, vmi: Object | None, snapshot: Snapshot, over_quota: str | None = None
) -> dict[str, Any]:
    """Return the fields of a migration's status that must change, as a merge patch.

    `over_quota` is the quota's refusal of the target pod in this pass, None if there was none.
    """
    if snapshot.migration.final:
        return {}
    status, passed = status_of(migration), phases(snapshot)
    phase = passed[-1] if passed else snapshot.migration.phase
    wanted: dict[str, Any] = {"conditions": _conditions(status, snapshot, phase, over_quota)}
    if passed:
        moment = times.format_time(snapshot.now)
        wanted["phase"] = phase
        wanted["phaseTransitionTimestamps"] = [
            *(status.get("phaseTransitionTimestamps") or ()),
            *({"phase": each, "phaseTransitionTimestamp": moment} for each in passed),
        ]
    recorded = status.get("migrationState")
    state = _state(recorded, vmi, snapshot)
    if state is not None and state != recorded:
        wanted["migrationState"] = replacing(recorded, state)
    return {name: value for name, value in wanted.items() if value != status.get(name)}


def handed_over(
    uid: str, source: Pod, target: Pod, configuration: Object, policy: Object | None
) -> Object:
    """Return the `migrationState` that lets the nodes begin."""
    return {
        "migrationUid": uid,
        "sourceNode": source.node,
        "sourcePod": source.name,
        "targetNode": target.node,
        "targetPod": target.name,
        "mode": "PreCopy",
        "migrationConfiguration": configuration,
        **({"migrationPolicyName": policy["metadata"]["name"]} if policy is not None else {}),
    }


def failed(reason: str, now: datetime, *, aborted: bool = False) -> Object:
    """Return the fields that a failure adds to a `migrationState`."""
    return {
        "failed": True,
        "failureReason": conditions.human_readable(reason),
        "endTimestamp": times.format_time(now),
        **({"abortStatus": "Succeeded"} if aborted else {}),
    }


def replacing(old: Any, new: Object) -> Object:
    """Return the merge patch that makes one object another, keeping nothing of the old one."""
    known = old if isinstance(old, dict) else {}
    patch: Object = dict.fromkeys(known)
    for name, value in new.items():
        patch[name] = replacing(known.get(name), value) if isinstance(value, dict) else value
    return patch


def _state(recorded: Object | None, vmi: Object | None, snapshot: Snapshot) -> Object | None:
    """Return the instance's `migrationState` if it is this migration's, and why it failed."""
    mine = vmi is not None and snapshot.state is not None
    state = vmi["status"]["migrationState"] if vmi is not None and mine else recorded
    why = failure(snapshot)
    if not why or (state or {}).get("endTimestamp"):
        return state
    return {**(state or {"migrationUid": snapshot.migration.uid}), **failed(why, snapshot.now)}


def _conditions(
    status: Object, snapshot: Snapshot, phase: str, over_quota: str | None
) -> list[Condition] | None:
    listed: list[Condition] | None = status.get("conditions")
    now = snapshot.now
    if snapshot.migration.deleting:
        listed = _put(listed, now, ABORT_REQUESTED, "Deleted", "the migration was deleted")
    if over_quota is not None:
        listed = _put(listed, now, OVER_QUOTA, "ExceededQuota", over_quota)
    elif phase not in ("", "Pending", "Failed") and not snapshot.target_replaced:
        listed = _without(listed, OVER_QUOTA)
    copying = snapshot.vmi.copying_volume if snapshot.vmi is not None else ""
    if copying and snapshot.state is None and phase not in ("Failed", "Succeeded"):
        listed = _put(listed, now, BLOCKED_BY_VOLUMES, "VolumesChange", copying)
    elif phase != "Failed":
        listed = _without(listed, BLOCKED_BY_VOLUMES)
    return listed


def _put(
    listed: list[Condition] | None, now: datetime, type_: str, reason: str, message: str
) -> list[Condition] | None:
    """Return the list with a condition; one that is True already keeps its message."""
    if conditions.is_true(listed, type_):
        return listed
    wanted = conditions.condition(type_, True, reason, message)
    return conditions.with_condition(listed, wanted, now)


def _without(listed: list[Condition] | None, type_: str) -> list[Condition] | None:
    return conditions.without_condition(listed, type_) if listed else listed
