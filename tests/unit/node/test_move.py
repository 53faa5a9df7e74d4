from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.node import move
from livevirt.node.move import Got, Move, Part, Patience, Sent, Side
from livevirt.qemu.migration import Limits, Transfer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = "2026-01-01T12:00:00Z"
GIB = 1024**3


def a_vmi(node: str = "n1", **state: Any) -> Any:
    pods = {"migrationUid": "m", "sourcePod": "s", "targetPod": "t"}
    return {"metadata": {}, "status": {"nodeName": node, "migrationState": {**pods, **state}}}


def told(patch: Any) -> Any:
    """Return what a patch says of the migration, {} if it says nothing."""
    return (patch.get("status") or {}).get("migrationState") or {}


def a_move(vmi: Any, pod: str = "s") -> Move:
    found = move.of(vmi, pod)
    assert found is not None
    return found


def test_a_pod_has_a_part_in_the_migration_that_names_it() -> None:
    assert a_move(a_vmi()).role == "source"
    assert a_move(a_vmi(), "t").role == "target"
    assert move.of(a_vmi(), "another") is None
    assert move.of({"status": {}}, "s") is None
    assert move.of(None, "s") is None


HERE = Side(node="n1", begun=True)
PLACE = Side(node="n2", target=True)
WAITS = replace(PLACE, begun=True, awaits=True)
CAME = replace(PLACE, begun=True)
DONE = {"completed": True, "endTimestamp": AT}
CALLED_OFF = {"abortRequested": True}

PARTS: dict[str, tuple[Any, str, Side, Part]] = {
    "none without a migration": ({"status": {}}, "s", HERE, Part()),
    "none yet while the guest is sent": (a_vmi(startTimestamp=AT), "s", HERE, Part()),
    "left once the instance says that it has arrived": (
        a_vmi("n2", **DONE), "s", HERE, Part(left=True),
    ),
    "left also if QEMU was gone before that was known": (
        a_vmi("n2", **DONE), "s", replace(HERE, ended=True), Part(left=True),
    ),
    "left for ever": ({"status": {}}, "s", replace(HERE, left=True), Part(left=True)),
    "none if it stays": (a_vmi(failed=True, endTimestamp=AT), "s", HERE, Part()),
    "a place for a guest on offer": (a_vmi(), "t", PLACE, Part(awaited=True, offered=True)),
    "no place for a guest that was called off": (
        a_vmi(**CALLED_OFF), "t", PLACE, Part(awaited=True),
    ),
    "waits while the guest is sent": (a_vmi(), "t", WAITS, Part(awaited=True)),
    "waits in vain once it was called off": (
        a_vmi(**CALLED_OFF), "t", WAITS, Part(awaited=True, unneeded=True),
    ),
    "not in vain if the guest has come": (
        a_vmi(**CALLED_OFF), "t", replace(WAITS, awaits=False), Part(),
    ),
    "waits in vain for another's guest": (
        {"status": {}}, "t", WAITS, Part(awaited=True, unneeded=True),
    ),
    "none any more once its QEMU was ended": (
        a_vmi(**CALLED_OFF), "t", replace(WAITS, ended=True), Part(),
    ),
    "home of the guest that came": (a_vmi("n2", **DONE), "t", CAME, Part()),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "pod", "side", "part"), PARTS.values(), ids=PARTS)
def test_part(vmi: Any, pod: str, side: Side, part: Part) -> None:
    assert move.part(move.of(vmi, pod), side, offered=True) == part


SAYS: dict[str, tuple[dict[str, Any], Sent, dict[str, Any]]] = {
    "nothing before it is ready": ({}, Sent(), {}),
    "that the target waits and when it begins": (
        {},
        Sent(ready=True),
        {
            "startTimestamp": AT,
            "targetNodeAddress": "127.0.0.1",
            "targetNodeDomainDetected": True,
        },
    ),
    "that only once": ({"startTimestamp": AT}, Sent(ready=True), {}),
    "that the guest stays": (
        {"startTimestamp": AT},
        Sent(failed="torn"),
        {"failed": True, "failureReason": "torn", "endTimestamp": AT},
    ),
    "that it stays because it was called off": (
        {"abortRequested": True},
        Sent(failed="torn"),
        {"failed": True, "failureReason": "torn", "endTimestamp": AT, "abortStatus": "Succeeded"},
    ),
    "that it takes too long": (
        {"startTimestamp": AT},
        Sent(late="slow"),
        {"abortRequested": True, "failureReason": "slow"},
    ),
    "that only once too": ({"abortRequested": True}, Sent(late="slow"), {}),
    "nothing after the end": ({"endTimestamp": AT}, Sent(failed="torn"), {}),
}


@pytest.mark.parametrize(("state", "has", "says"), SAYS.values(), ids=SAYS)
def test_a_source_says(state: dict[str, Any], has: Sent, says: dict[str, Any]) -> None:
    assert told(move.source_patch(a_move(a_vmi(**state)), has, NOON)) == says


def test_a_guest_that_has_arrived_is_at_its_new_node_in_one_write() -> None:
    vmi = a_vmi(targetNodeDomainDetected=True, startTimestamp=AT)
    got = Got(arrived=True)
    patch = move.target_patch(vmi, a_move(vmi, "t"), got, "n2", NOON)
    assert patch["status"]["nodeName"] == "n2"
    assert patch["metadata"]["labels"] == {"kubevirt.io/nodeName": "n2"}
    assert (told(patch)["completed"], told(patch)["endTimestamp"]) == (True, AT)
    assert "abortStatus" not in told(patch)
    assert move.target_patch(a_vmi("n2"), a_move(vmi, "t"), got, "n2", NOON) == {}


def test_given_it_was_called_off_too_late_then_that_is_said_beside_the_success() -> None:
    vmi = a_vmi(abortRequested=True)
    got = Got(arrived=True)
    patch = move.target_patch(vmi, a_move(vmi, "t"), got, "n2", NOON)
    assert (told(patch)["completed"], told(patch)["abortStatus"]) == (True, "Failed")


def test_a_place_that_is_gone_says_why_the_guest_stays_and_keeps_a_reason_given_before() -> None:
    vmi = a_vmi()
    assert told(move.lost_patch(vmi, a_move(vmi, "t"), "crashed", NOON)) == {
        "failed": True, "failureReason": "crashed", "endTimestamp": AT,
    }  # fmt: skip
    late = a_vmi(abortRequested=True, failureReason="slow")
    found = told(move.lost_patch(late, a_move(late, "t"), "crashed", NOON))
    assert (found["failureReason"], found["abortStatus"]) == ("slow", "Succeeded")
    ended = a_vmi(endTimestamp=AT)
    assert move.lost_patch(ended, a_move(ended, "t"), "crashed", NOON) == {}


def test_only_the_word_that_a_guest_is_being_sent_begins_it() -> None:
    ready, stays = Sent(ready=True), Sent(failed="torn")
    assert move.begins(move.source_patch(a_move(a_vmi()), ready, NOON))
    assert not move.begins(move.source_patch(a_move(a_vmi()), stays, NOON))
    assert not move.begins({})


def test_settings_become_limits() -> None:
    assert move.limits({}) == Limits()
    settings = {"bandwidthPerMigration": "64Mi", "allowAutoConverge": True, "maxDowntimeMs": 50}
    assert move.limits(settings) == Limits(64 << 20, auto_converge=True, downtime_ms=50)
    assert move.limits({"bandwidthPerMigration": "0"}) == Limits()


def test_patience_ends_by_the_size_of_the_guest() -> None:
    patience = Patience({"completionTimeoutPerGiB": 10}, 0)
    sending = Transfer("active", total=2 * GIB, remaining=GIB)
    assert patience.over(sending, 20) == ""
    assert "20 s" in patience.over(sending, 20.1)


def test_patience_ends_when_nothing_gets_any_less() -> None:
    patience = Patience({"progressTimeout": 5}, 0)
    assert patience.over(Transfer("active", total=100, remaining=100), 0) == ""
    assert patience.over(Transfer("active", total=100, remaining=90), 4) == ""
    assert patience.over(Transfer("active", total=100, remaining=95), 9) == ""
    assert "5 s" in patience.over(Transfer("active", total=100, remaining=90), 9.1)


def test_what_is_left_counts_only_once_qemu_tells_it() -> None:
    """At first, in its state `setup`, it does not; that is not the end."""
    patience = Patience({"progressTimeout": 5}, 0)
    assert patience.over(Transfer("setup"), 1) == ""
    assert patience.over(Transfer("active", total=100, remaining=100), 4) == ""
    assert patience.over(Transfer("active", total=100, remaining=90), 8) == ""
    assert "5 s" in patience.over(Transfer("active", total=100, remaining=90), 13.1)


def test_without_limits_patience_never_ends() -> None:
    assert Patience({}, 0).over(Transfer("active", remaining=1), 1e9) == ""


LATER = {"migrationUid": "m2", "sourcePod": "t", "targetPod": "u"}


@pytest.mark.parametrize(
    ("noted", "state", "passed"),
    [
        ("m", LATER, True),  # the next migration begins elsewhere
        ("m", {**LATER, "sourcePod": "s"}, False),  # it begins here: the one before failed
        ("m", {}, False),  # it is under way, or ends just now
        ("", LATER, False),  # none was sent from here
        ("m2", LATER, False),
    ],
)
def test_a_guest_runs_where_the_next_migration_begins(
    noted: str, state: dict[str, Any], passed: bool
) -> None:
    assert move.passed(a_vmi(**state), "s", noted) is passed
    assert not move.passed(None, "s", noted)
