from datetime import UTC, datetime
from typing import Any

from livevirt.kube.objects import conditions
from livevirt.vm.sizing import hot_change
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.live_patch import MEMORY, SOCKETS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_change(
    path: str,
    verdict: Verdict,
    running: Any = 1,
    wanted: Any = 3,
    reason: Reason = Reason.POD_RESIZE,
) -> Ruling:
    return Ruling(verdict, reason, "why", path=path, running=running, wanted=wanted)


def test_what_goes_live_is_announced_with_its_values() -> None:
    judgement = Judgement(
        (
            a_change(SOCKETS, Verdict.LIVE_AFTER_RESIZE),
            a_change(MEMORY, Verdict.LIVE, "1Gi", "512Mi"),
            a_change("spec.template.spec.nodeSelector", Verdict.LIVE),
        )
    )
    found = hot_change.begun(judgement, None, NOON)
    assert [(c["type"], c["status"], c["reason"]) for c in found] == [
        ("HotVCPUChange", "True", "WaitingForResize"),
        ("HotMemoryChange", "True", "Unplugging"),
    ]
    assert "1Gi -> 512Mi" in found[1]["message"]


def test_what_waits_for_a_restart_is_not_announced() -> None:
    judgement = Judgement((a_change(SOCKETS, Verdict.RESTART),))
    listed: list[Any] = [{"type": "Ready", "status": "True"}]
    assert hot_change.begun(judgement, listed, NOON) is listed


def test_what_needs_a_migration_says_so() -> None:
    judgement = Judgement((a_change(SOCKETS, Verdict.LIVE_AFTER_MIGRATION),))
    [found] = hot_change.begun(judgement, [], NOON)
    assert found["reason"] == "WaitingForMigration"
    assert found["message"].endswith("why")


def test_given_a_smaller_size_by_migration_then_the_guest_gives_it_back_first() -> None:
    judgement = Judgement((a_change(MEMORY, Verdict.LIVE_AFTER_MIGRATION, "1Gi", "512Mi"),))
    [found] = hot_change.begun(judgement, [], NOON)
    assert found["reason"] == "Unplugging"


def test_given_less_of_a_growth_that_is_held_up_then_it_waits_as_any_growth() -> None:
    for verdict in (Verdict.LIVE_AFTER_RESIZE, Verdict.LIVE_AFTER_MIGRATION):
        change = a_change(SOCKETS, verdict, 3, 2, Reason.NODE_FULL)
        [found] = hot_change.begun(Judgement((change,)), [], NOON)
        assert found["reason"] == "WaitingForResize"


def test_given_a_full_node_then_the_pod_is_to_be_resized_first_all_the_same() -> None:
    change = a_change(SOCKETS, Verdict.LIVE_AFTER_MIGRATION, reason=Reason.NODE_FULL)
    [found] = hot_change.begun(Judgement((change,)), [], NOON)
    assert found["reason"] == "WaitingForResize"


def test_a_newer_edit_starts_the_story_again() -> None:
    old = [hot_change.condition("HotVCPUChange", "GuestNotAccepting", "m")]
    judgement = Judgement((a_change(SOCKETS, Verdict.LIVE_AFTER_RESIZE),))
    [found] = hot_change.begun(judgement, old, NOON)
    assert found["reason"] == "WaitingForResize"


def test_a_reason_is_given_to_every_change_under_way_and_to_no_other_condition() -> None:
    listed: list[Any] = [
        {"type": "Ready", "status": "True"},
        hot_change.condition("HotMemoryChange", "WaitingForResize", "m"),
    ]
    found = hot_change.with_reason(listed, "OverQuota", "short", NOON)
    assert hot_change.under_way({"status": {"conditions": found}}) == ["HotMemoryChange"]
    assert conditions.find(found, "HotMemoryChange") == {
        "type": "HotMemoryChange",
        "status": "True",
        "reason": "OverQuota",
        "message": "short",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    assert found[0] is listed[0]
    assert hot_change.with_reason(found, "OverQuota", "short", NOON) is found
