"""What each side of a migration writes to the instance's `status.migrationState`. Pure.

The source writes that sending starts, that the stream broke, or that it takes too long. The target
writes that the guest has arrived, or that it never will. Neither writes anything after the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from livevirt.kube.objects.conditions import human_readable
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import format_time
from livevirt.node.migration.facts import Migration
from livevirt.vm.migration.migratability import NODE_NAME


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What the source has to report."""

    ready: bool = False  # the target listens, and sending can start
    failed: str = ""  # why the guest stays
    overdue: str = ""  # why the migration should be cancelled


def source_patch(migration: Migration, report: SourceReport, now: datetime) -> Object:
    """Return the patch of the instance with what its source reports."""
    if migration.ended:
        return {}
    if report.failed:
        return _state(_failure(migration, human_readable(report.failed), now))
    if report.overdue and not migration.abort:
        return _state({"abortRequested": True, "failureReason": human_readable(report.overdue)})
    if report.ready and not migration.started:  # the target has published its socket
        target = {"targetNodeAddress": "127.0.0.1", "targetNodeDomainDetected": True}
        return _state({**target, "startTimestamp": format_time(now)})
    return {}


def starts(patch: Object) -> bool:
    """Return whether a patch of the instance reports that sending starts."""
    return "startTimestamp" in (status_of(patch).get("migrationState") or {})


def arrival_patch(migration: Migration, node: str, now: datetime) -> Object:
    """Return the patch of the instance whose guest has arrived on a node."""
    at = format_time(now)
    state: Object = {"completed": True, "endTimestamp": at}
    state |= {"targetNodeDomainReadyTimestamp": at, "failed": None, "failureReason": None}
    if migration.abort:
        state["abortStatus"] = "Failed"
    return {
        "metadata": {"labels": {NODE_NAME: node}},
        "status": {"nodeName": node, "migrationState": state},
    }


def failure_patch(vmi: Object, migration: Migration, why: str, now: datetime) -> Object:
    """Return the patch of the instance whose guest will not arrive; an earlier reason stays."""
    if migration.ended:
        return {}
    state = vmi["status"]["migrationState"]
    return _state(_failure(migration, state.get("failureReason") or human_readable(why), now))


def _failure(migration: Migration, reason: str, now: datetime) -> Object:
    found: Object = {
        "failed": True,
        "failureReason": reason,
        "endTimestamp": format_time(now),
    }
    return found | ({"abortStatus": "Succeeded"} if migration.abort else {})


def _state(changes: Object) -> Object:
    return {"status": {"migrationState": changes}}
