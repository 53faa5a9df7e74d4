from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.kube.objects.conditions import human_readable
from livevirt.node.migration import status
from livevirt.node.migration.facts import Migration, migration_of
from livevirt.node.migration.status import SourceReport

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"


def a_vmi(**state: Any) -> Any:
    pods = {"migrationUid": "m", "sourcePod": "s", "targetPod": "t"}
    return {"metadata": {}, "status": {"nodeName": "n1", "migrationState": {**pods, **state}}}


def a_migration(**state: Any) -> Migration:
    found = migration_of(a_vmi(**state))
    assert found is not None
    return found


def written(patch: Any) -> Any:
    """Return what a patch writes to the migration's state, {} if nothing."""
    return (patch.get("status") or {}).get("migrationState") or {}


REPORTS: dict[str, tuple[dict[str, Any], SourceReport, dict[str, Any]]] = {
    "nothing before it is ready": ({}, SourceReport(), {}),
    "that the target listens and when sending starts": (
        {},
        SourceReport(ready=True),
        {
            "startTimestamp": AT,
            "targetNodeAddress": "127.0.0.1",
            "targetNodeDomainDetected": True,
        },
    ),
    "that only once": ({"startTimestamp": AT}, SourceReport(ready=True), {}),
    "that the guest stays": (
        {"startTimestamp": AT},
        SourceReport(failed="torn"),
        {"failed": True, "failureReason": human_readable("torn"), "endTimestamp": AT},
    ),
    "that it stays because the migration was cancelled": (
        {"abortRequested": True},
        SourceReport(failed="torn"),
        {
            "failed": True,
            "failureReason": human_readable("torn"),
            "endTimestamp": AT,
            "abortStatus": "Succeeded",
        },
    ),
    "that it takes too long": (
        {"startTimestamp": AT},
        SourceReport(overdue="slow"),
        {"abortRequested": True, "failureReason": human_readable("slow")},
    ),
    "that only once too": ({"abortRequested": True}, SourceReport(overdue="slow"), {}),
    "nothing after the end": ({"endTimestamp": AT}, SourceReport(failed="torn"), {}),
}


@pytest.mark.parametrize(("state", "report", "patch"), REPORTS.values(), ids=REPORTS)
def test_a_source_reports(
    state: dict[str, Any], report: SourceReport, patch: dict[str, Any]
) -> None:
    assert written(status.source_patch(a_migration(**state), report, NOON)) == patch


def test_a_guest_that_has_arrived_is_at_its_new_node_in_one_write() -> None:
    migration = a_migration(targetNodeDomainDetected=True, startTimestamp=AT)
    patch = status.arrival_patch(migration, "n2", NOON)
    assert patch["status"]["nodeName"] == "n2"
    assert patch["metadata"]["labels"] == {"kubevirt.io/nodeName": "n2"}
    assert (written(patch)["completed"], written(patch)["endTimestamp"]) == (True, AT)
    assert "abortStatus" not in written(patch)


def test_given_it_was_cancelled_too_late_then_that_is_written_beside_the_success() -> None:
    patch = written(status.arrival_patch(a_migration(abortRequested=True), "n2", NOON))
    assert (patch["completed"], patch["abortStatus"]) == (True, "Failed")


def test_a_lost_target_reports_why_the_guest_stays_and_keeps_an_earlier_reason() -> None:
    def failure(**state: Any) -> Any:
        vmi = a_vmi(**state)
        return written(status.failure_patch(vmi, a_migration(**state), "crashed", NOON))

    assert failure() == {
        "failed": True,
        "failureReason": human_readable("crashed"),
        "endTimestamp": AT,
    }
    late = failure(abortRequested=True, failureReason="slow")
    assert (late["failureReason"], late["abortStatus"]) == ("slow", "Succeeded")
    assert failure(endTimestamp=AT) == {}


def test_only_the_report_that_sending_starts_starts_it() -> None:
    ready, stays = SourceReport(ready=True), SourceReport(failed="torn")
    assert status.starts(status.source_patch(a_migration(), ready, NOON))
    assert not status.starts(status.source_patch(a_migration(), stays, NOON))
    assert not status.starts({})
