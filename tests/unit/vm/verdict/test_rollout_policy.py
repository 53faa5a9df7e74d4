"""When edits of a VM are rolled out: by its annotations, its namespace's and the cluster's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.verdict import rollout_policy as policy
from livevirt.vm.verdict import summary
from livevirt.vm.verdict.live_patch import live_patch, settles
from livevirt.vm.verdict.rollout_policy import (
    ROLLOUT,
    WINDOW,
    Rollout,
    Window,
    WindowError,
    parse_window,
)

from ..cases import GATES, LIVE, NOON, STAGE, a_claim, a_spec, judged, rulings, running

SATURDAYS = "0 2 * * 6 2h Europe/Berlin"
OPENS = datetime(2026, 11, 21, 1, tzinfo=UTC)  # 02:00 in Berlin, the Saturday after NOON
ALLOWED = Config(strategy="Stage", gates=GATES, looser_rollout=True)
CLOSED = Config(strategy="LiveUpdate", looser_rollout=True)


def an_object(rollout: str = "", window: str = "") -> Object:
    given = {ROLLOUT: rollout, WINDOW: window}
    return {"metadata": {"annotations": {name: text for name, text in given.items() if text}}}


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# ---------------------------------------------------------------- windows

STARTS: dict[str, tuple[str, str, str]] = {
    "in winter": (SATURDAYS, "2026-11-16T12:00", "2026-11-21T01:00"),
    "in summer": (SATURDAYS, "2026-07-01T12:00", "2026-07-04T00:00"),
    "not at the moment itself": (SATURDAYS, "2026-11-21T01:00", "2026-11-28T01:00"),
    "in the skipped hour, at its end": (
        "30 2 29 3 * 1h Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00",
    ),
    "in the repeated hour, in the first": (
        "30 2 25 10 * 1h Europe/Berlin", "2026-10-24T12:00", "2026-10-25T00:30",
    ),
    "in the repeated hour, not again in the second": (
        "30 2 * * * 1h Europe/Berlin", "2026-10-25T01:00", "2026-10-26T01:30",
    ),
    "midnight that is skipped": (
        "0 0 * * * 1h America/Santiago", "2026-09-05T12:00", "2026-09-06T04:00",
    ),
    "once in four years": ("0 0 29 2 * 1h UTC", "2026-01-01T00:00", "2028-02-29T00:00"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "after", "start"), STARTS.values(), ids=STARTS)
def test_the_next_start(text: str, after: str, start: str) -> None:
    assert parse_window(text).start_after(utc(after)) == utc(start)


WRONG = {
    "nothing": "",
    "no duration and zone": "0 2 * * 6",
    "no zone": "0 2 * * 6 2h",
    "a macro": "@daily 2h UTC",
    "seconds": "0 0 2 * * 6 2h UTC",
    "a minute that does not exist": "61 2 * * 6 2h UTC",
    "a day that never comes": "0 0 30 2 * 2h UTC",
    "a duration without a unit": "0 2 * * 6 2 UTC",
    "a duration of nothing": "0 2 * * 6 0s UTC",
    "a negative duration": "0 2 * * 6 -2h UTC",
    "a duration beyond a week": "0 2 * * 6 169h UTC",
    "an unknown zone": "0 2 * * 6 2h Europe/Nowhere",
    "a part of a zone": "0 2 * * 6 2h Europe",
    "a path": "0 2 * * 6 2h ../../etc/passwd",
    "a long number": f"{'1' * 5000} 2 * * 6 2h UTC",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(WindowError):
        parse_window(text)


@given(st.text("0123456789*/-,#LWMONSUhms. @", max_size=60), st.sampled_from(["", " 1h UTC"]))
def test_any_text_is_a_window_or_refused(text: str, rest: str) -> None:
    try:
        found = parse_window(text + rest)
    except WindowError:
        return
    assert found.start_after(NOON) > NOON


ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe",
     "Asia/Kathmandu", "Africa/Casablanca"]
)  # fmt: skip
DURATIONS = st.integers(1, 7 * 24 * 60).map(lambda minutes: timedelta(minutes=minutes))
MOMENTS = st.datetimes(
    datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)
)  # summer time begins and ends often enough in it
CRONS = st.builds(
    "{} {} * * {}".format,
    st.one_of(st.integers(0, 59), st.just("*/20")),
    st.one_of(st.integers(0, 23), st.just("*"), st.just("1-3")),
    st.one_of(st.integers(0, 6), st.just("*")),
)
WINDOWS = st.builds(Window, CRONS, DURATIONS, ZONES.map(ZoneInfo))
#: Around the moments at which clocks change, where mistakes would be.
CHANGES = st.builds(
    lambda year, day, minutes: (
        datetime(year, *day, tzinfo=UTC) + timedelta(days=6, minutes=minutes)
    ),
    st.integers(2024, 2030),
    st.sampled_from([(3, 7), (3, 25), (3, 28), (4, 1), (9, 1), (10, 1), (10, 25), (11, 1)]),
    st.integers(-8 * 24 * 60, 24 * 60),
)
INSTANTS = st.one_of(MOMENTS, CHANGES)


@given(WINDOWS, INSTANTS)
def test_a_start_is_later_and_none_lies_between(window: Window, moment: datetime) -> None:
    start = window.start_after(moment)
    assert start > moment
    between = moment + (start - moment) / 2
    assert window.start_after(between) == start


@given(WINDOWS, INSTANTS)
def test_a_window_is_open_from_its_start_for_its_duration(window: Window, moment: datetime) -> None:
    start = window.start_after(moment)
    assert window.opens(start) is None
    assert window.opens(start + window.duration - timedelta(seconds=1)) is None
    closes = window.opens(start + window.duration)
    assert closes is None or closes > start + window.duration


@given(WINDOWS, INSTANTS)
def test_a_closed_window_opens_at_its_next_start(window: Window, moment: datetime) -> None:
    opens = window.opens(moment)
    if opens is None:
        start = window.start_after(moment - window.duration)
        assert start <= moment < start + window.duration
    else:
        assert opens == window.start_after(moment)
        assert window.opens(opens - timedelta(seconds=1)) == opens


@given(st.integers(0, 23), st.integers(0, 59), ZONES, INSTANTS)
def test_a_daily_window_opens_once_a_day_by_the_clock_on_the_wall(
    hour: int, minute: int, zone: str, moment: datetime
) -> None:
    window = Window(f"{minute} {hour} * * *", timedelta(hours=1), ZoneInfo(zone))
    first = window.start_after(moment)
    second = window.start_after(first)
    days = [each.astimezone(window.zone).date() for each in (first, second)]
    assert days[1] - days[0] == timedelta(days=1)
    local = first.astimezone(window.zone)
    skipped = local.utcoffset() != (local - timedelta(hours=2)).utcoffset()
    assert (local.hour, local.minute) == (hour, minute) or skipped


# ---------------------------------------------------------------- strategies

NOBODY = an_object()
IN_WINDOW = an_object("Window", SATURDAYS)
DECISIONS: dict[str, tuple[Object, Object, Config, str, datetime | None]] = {
    "nobody asks": (NOBODY, NOBODY, LIVE, "LiveUpdate", None),
    "nobody asks, the cluster stages": (NOBODY, NOBODY, STAGE, "Stage", None),
    "the VM is stricter": (an_object("Stage"), NOBODY, LIVE, "Stage", None),
    "the namespace is stricter": (NOBODY, an_object("Stage"), LIVE, "Stage", None),
    "the VM wins": (an_object("LiveUpdate"), an_object("Stage"), LIVE, "LiveUpdate", None),
    "a window that is closed": (IN_WINDOW, NOBODY, LIVE, "Window", OPENS),
    "a window of the namespace": (NOBODY, IN_WINDOW, LIVE, "Window", OPENS),
    "the VM's strategy, the namespace's window": (
        an_object("Window"), an_object(window=SATURDAYS), LIVE, "Window", OPENS,
    ),
    "the VM's window wins": (
        an_object(window="0 12 * * * 1h UTC"), IN_WINDOW, LIVE, "Window", None,
    ),
    "a window alone changes nothing": (
        an_object(window=SATURDAYS), NOBODY, LIVE, "LiveUpdate", None,
    ),
    "looser than the cluster": (an_object("LiveUpdate"), NOBODY, STAGE, "Stage", None),
    "a window is looser than Stage": (IN_WINDOW, NOBODY, STAGE, "Stage", None),
    "looser, and allowed": (an_object("LiveUpdate"), NOBODY, ALLOWED, "LiveUpdate", None),
    "a window, and allowed": (IN_WINDOW, NOBODY, ALLOWED, "Window", OPENS),
    "allowed, and nobody asks": (NOBODY, NOBODY, ALLOWED, "Stage", None),
    "the gate is closed": (an_object("LiveUpdate"), NOBODY, CLOSED, "Stage", None),
    "the gate is closed, a window": (IN_WINDOW, NOBODY, CLOSED, "Stage", None),
    "a namespace with a wrong strategy": (NOBODY, an_object("Live"), LIVE, "Stage", None),
    "a namespace with a wrong window": (
        NOBODY, an_object("Window", "at night"), LIVE, "Stage", None,
    ),
    "a namespace without a window": (NOBODY, an_object("Window"), LIVE, "Stage", None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("vm", "namespace", "cluster", "strategy", "opens"), DECISIONS.values(), ids=DECISIONS
)
def test_the_strategy_of_a_vm(
    vm: Object, namespace: Object, cluster: Config, strategy: str, opens: datetime | None
) -> None:
    found = policy.decide(vm, namespace, cluster, NOON)
    assert (found.strategy, found.opens) == (strategy, opens)
    assert policy.config_of(found, cluster).live_update is (strategy != "Stage")


ASKED = st.builds(
    an_object, st.sampled_from(["", *policy.STRATEGIES]), st.sampled_from(["", SATURDAYS])
)


@given(ASKED, ASKED, st.sampled_from(["", "Stage", "LiveUpdate"]), st.booleans(), INSTANTS)
def test_nothing_gets_past_a_closed_gate(
    vm: Object, namespace: Object, strategy: str, looser: bool, now: datetime
) -> None:
    cluster = Config(strategy=strategy, looser_rollout=looser)
    assert policy.decide(vm, namespace, cluster, now) == Rollout("Stage")


@given(ASKED, ASKED, INSTANTS)
def test_nothing_is_looser_than_the_cluster_unless_allowed(
    vm: Object, namespace: Object, now: datetime
) -> None:
    assert policy.decide(vm, namespace, STAGE, now).strategy == "Stage"


# ---------------------------------------------------------------- the verdict

WAITS = {"opens": OPENS}


def test_what_is_live_waits_for_the_window_with_its_verdict() -> None:
    spec = a_spec()
    wanted = a_spec(domain__cpu__sockets=2, nodeSelector={"disk": "ssd"})
    found = judged(spec, wanted, around=WAITS)
    assert {change.reason for change in found.changes} == {"MaintenanceWindow"}
    assert (found.waits, found.window) == (True, OPENS)
    assert found.verdict is judged(spec, wanted).verdict
    assert live_patch(found, running(spec)) == {}
    assert not settles(found)


def test_volumes_do_not_wait_for_the_window() -> None:
    spec = a_spec()
    wanted = a_spec(volumes=[*spec["volumes"][:1], a_claim("data", "other")])
    assert rulings(judged(spec, wanted, around=WAITS)) == rulings(judged(spec, wanted))
    assert not judged(spec, wanted, around=WAITS).waits


def test_what_needs_a_restart_needs_it_in_a_window_too() -> None:
    spec, wanted = a_spec(), a_spec(hostname="other", domain__cpu__sockets=2)
    assert rulings(judged(spec, wanted, around=WAITS)) == rulings(judged(spec, wanted))


def test_status_plan_and_warnings_have_the_time() -> None:
    found = judged(a_spec(), a_spec(domain__cpu__sockets=2), around=WAITS)
    [pending] = summary.pending(found).items
    assert pending["appliesAt"] == "2026-11-21T01:00:00Z"
    [planned] = summary.plan_document(found, "web", {})["changes"]
    assert (planned["appliesAt"], planned["waits"]) == ("2026-11-21T01:00:00Z", True)
    [warning] = summary.warnings(found, "web")
    assert "2026-11-21T01:00:00Z" in warning
    assert summary.condition(found) is None


# ---------------------------------------------------------------- admission

AT = "metadata.annotations"
ERRORS: dict[str, tuple[Object, Object, list[str]]] = {
    "a strategy": (an_object("Stage"), NOBODY, []),
    "a window": (IN_WINDOW, NOBODY, []),
    "a window of the namespace": (an_object("Window"), an_object(window=SATURDAYS), []),
    "an unknown strategy": (an_object("Live"), NOBODY, [f"{AT}[{ROLLOUT}]"]),
    "a wrong window": (an_object("Window", "0 2 * * 6"), NOBODY, [f"{AT}[{WINDOW}]"]),
    "no window": (an_object("Window"), NOBODY, [f"{AT}[{WINDOW}]"]),
}


@pytest.mark.parametrize(("vm", "namespace", "at"), ERRORS.values(), ids=ERRORS)
def test_what_admission_refuses(vm: Object, namespace: Object, at: list[str]) -> None:
    assert [error.field for error in policy.errors(vm, namespace)] == at


def test_a_strategy_that_is_not_in_force_is_warned_of() -> None:
    vm = an_object("LiveUpdate")
    assert policy.warnings(vm, None, STAGE, NOON)
    assert policy.warnings(vm, None, CLOSED, NOON)
    assert not policy.warnings(vm, None, ALLOWED, NOON)
    assert not policy.warnings(vm, None, LIVE, NOON)
