"""`status.migrationState`: what is written of it here, as merge patches."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from livevirt.kube.objects import times
from livevirt.kube.objects.request import Object
from livevirt.vm.migration.view import Pod


def handed_over(
    uid: str, source: Pod, target: Pod, configuration: Object, policy: Object | None
) -> Object:
    """Return the state of a migration that its nodes are to begin."""
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
    """Return what is added to the state of a migration that failed."""
    return {
        "failed": True,
        "failureReason": reason,
        "endTimestamp": times.format_time(now),
        **({"abortStatus": "Succeeded"} if aborted else {}),
    }


def replacing(old: Any, new: Object) -> Object:
    """Return the merge patch that leaves nothing of the old object beside the new one."""
    known = old if isinstance(old, dict) else {}
    patch: Object = dict.fromkeys(known)
    for name, value in new.items():
        patch[name] = replacing(known.get(name), value) if isinstance(value, dict) else value
    return patch
