"""A judgement as status, condition, warnings and plan show it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.schema import definitions
from livevirt.vm.kinds import support
from livevirt.vm.spec.effective import SPEC
from livevirt.vm.verdict import not_live
from livevirt.vm.verdict.comparison import VOLUME_PATHS
from livevirt.vm.verdict.fields import BY_PATH, FIELDS, live_table, not_live_table
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.summary import (
    CHANGED,
    compact,
    condition,
    exit_status,
    pending,
    plan_document,
    redacted,
    warnings,
)
from livevirt.vm.verdict.verdict_inputs import Bound

from ..cases import KVM, TEMPLATE, a_claim, a_spec, edited, judged

SECRET = "hunter2-" * 3
SEED = {"name": "seed", "cloudInitNoCloud": {"userData": SECRET, "networkDataBase64": SECRET}}


def test_pending_changes_say_what_runs_what_waits_and_why() -> None:
    found = pending(judged(a_spec(), a_spec(domain__cpu__sockets=9, domain__memory__guest="2Gi")))

    assert found.items == [
        {"path": f"{TEMPLATE}domain.cpu.sockets", "from": "1", "to": "9", "verdict": "Restart",
         "reason": "AboveMaximum", "nearestLive": "4"},
        {"path": f"{TEMPLATE}domain.memory.guest", "from": '"1Gi"', "to": '"2Gi"',
         "verdict": "Restart", "reason": "HeldBack"},
    ]  # fmt: skip
    assert found.omitted == 0


@pytest.mark.wording
def test_what_nobody_can_judge_needs_a_restart_and_is_warned_of_in_the_same_words() -> None:
    unknown = Judgement(unknown="lost")
    assert condition(unknown) == {"type": "RestartRequired", "status": "True", "message": "lost"}
    assert warnings(unknown, "web") == ["lost"]


def test_what_is_live_is_not_pending() -> None:
    found = judged(a_spec(), a_spec(domain__cpu__sockets=2))

    assert pending(found) == ([], 0)
    assert condition(found) is None


def test_long_lists_and_long_values_are_cut() -> None:
    devices = [{"name": f"d{n}", "deviceName": "x" * 500} for n in range(60)]
    found = pending(judged(a_spec(), a_spec(domain__devices__hostDevices=devices)))

    assert (len(found.items), found.omitted) == (50, 10)
    assert all(len(item[side]) <= 120 for item in found.items for side in ("from", "to"))


def test_given_fields_that_wait_then_the_condition_is_true() -> None:
    found = condition(judged(a_spec(), a_spec(domain__cpu__cores=4, domain__cpu__sockets=2)))

    assert found is not None
    assert (found["type"], found["status"]) == ("RestartRequired", "True")


@pytest.mark.wording
def test_the_condition_names_the_fields_that_wait() -> None:
    found = condition(judged(a_spec(), a_spec(domain__cpu__cores=4, domain__cpu__sockets=2)))

    assert found is not None
    assert "2 fields wait for a restart: " in found["message"]
    assert "domain.cpu.cores (NotLiveUpdatable)" in found["message"]
    assert "domain.cpu.sockets (HeldBack)" in found["message"]


SECRETS = {
    "a new volume": {"volumes.+": SEED},
    "user data": {"volumes.0": {"name": "root", "cloudInitNoCloud": {"userData": SECRET}}},
    "a password": {"domain.chassis": {"sku": "1", "password": SECRET}},
    "a key": {"domain.devices.interfaces.0.sshKeys": [SECRET]},
    "a token": {"readinessProbe": {"httpGet": {"apiToken": SECRET}}},
    "a selector": {"nodeSelector": {"access-token": SECRET}},
}


@pytest.mark.parametrize("edits", SECRETS.values(), ids=SECRETS)
def test_secrets_are_shown_nowhere(edits: dict[str, Any]) -> None:
    found = judged(a_spec(), edited(a_spec(), edits))
    shown = [pending(found), condition(found), warnings(found, "web")]

    text = msgspec.json.encode([*shown, plan_document(found, "web", {})]).decode()

    assert found.changes
    assert SECRET not in text
    assert CHANGED in text


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("volumes[a].cloudInitNoCloud.userData", "x", CHANGED),
        ("volumes[a].cloudInitNoCloud.networkDataSecretRef", {"name": "x"}, CHANGED),
        ("domain.firmware.PASSWORD", "x", CHANGED),
        ("domain.cpu.sockets", 3, "3"),
        ("hostname", None, "null"),
        ("volumes[a]", {"name": "a", "emptyDisk": {"capacity": "1Gi"}},
         '{"name":"a","emptyDisk":{"capacity":"1Gi"}}'),
    ],
)  # fmt: skip
def test_values_are_compact_json(path: str, value: Any, shown: str) -> None:
    assert compact(path, value) == shown


def test_a_secret_that_comes_or_goes_shows_that_it_does() -> None:
    assert redacted("userData", None) is None


def test_warnings_are_one_for_each_verdict_the_worst_first() -> None:
    edits = {"domain.cpu.cores": 4, "domain.cpu.sockets": 2, "volumes.1": a_claim("data", "b")}

    lines = warnings(judged(a_spec(), edited(a_spec(), edits)), "web", "prod")

    assert lines == [
        "at the next restart only: domain.cpu.sockets 1 -> 2 (HeldBack), domain.cpu.cores 2 -> 4"
        " (NotLiveUpdatable); see virtctl plan web -n prod",
        "live: volumes[data].persistentVolumeClaim.claimName data -> b (VolumeHotplug);"
        " see virtctl plan web -n prod",
    ]


changes = st.builds(
    Ruling,
    st.sampled_from(Verdict),
    st.sampled_from(Reason),
    st.text(max_size=300),
    path=st.text(st.characters(codec="utf-8"), max_size=300).map(lambda text: TEMPLATE + text),
    running=st.none() | st.text(max_size=300) | st.integers(),
    wanted=st.none() | st.text(max_size=300) | st.integers(),
)


@given(st.lists(changes, max_size=80).map(tuple), st.text("abc-", min_size=1, max_size=253))
def test_warnings_fit_into_headers(changed: tuple[Ruling, ...], name: str) -> None:
    lines = warnings(Judgement(changed), name)

    assert len(lines) == len({change.verdict for change in changed})
    assert all(len(line) <= 256 and line.isascii() and "virtctl plan " in line for line in lines)
    assert sum(map(len, lines)) <= 2048
    assert not any(character in line for line in lines for character in "\r\n\0")


def test_the_plan_shows_every_change_with_its_reason() -> None:
    quota = Bound("ResourceQuota", "team", {"requests.cpu": parse("100m")})
    around = {"accelerator": "kvm", "bounds": (quota,)}
    found = judged(a_spec(), a_spec(domain__cpu__sockets=2), around=around)

    document = plan_document(found, "web", {"vm": "12", "vmi": "13"})

    assert document["verdict"] == "LiveAfterResize"
    assert document["observed"] == {"vm": "12", "vmi": "13"}
    assert document["changes"] == [
        {
            "path": f"{TEMPLATE}domain.cpu.sockets", "from": 1, "to": 2,
            "verdict": "LiveAfterResize", "reason": "OverQuota", "waits": True,
            "message": "ResourceQuota team is missing 100m of requests.cpu; it resumes"
            " automatically when there is room",
        }
    ]  # fmt: skip
    assert exit_status(document) == 4


EXITS = {
    "nothing": ({}, 0),
    "live": ({"nodeSelector": {"a": "b"}}, 0),
    "live after a resize": ({"domain.cpu.sockets": 2}, 0),
    "restart": ({"domain.cpu.cores": 4}, 2),
    "refused": ({"domain.cpu.maxSockets": 2, "domain.cpu.sockets": 3}, 3),
}


@pytest.mark.parametrize(("edits", "status"), EXITS.values(), ids=EXITS)
def test_virtctl_plan_exits_by_the_verdict(edits: dict[str, Any], status: int) -> None:
    found = judged(a_spec(), edited(a_spec(), edits), around=KVM)

    assert exit_status(plan_document(found, "web", {})) == status


def test_the_table_names_every_field_that_can_be_live() -> None:
    table = live_table()

    for field in FIELDS:
        assert f"`{TEMPLATE}{'.'.join(field.path)}`" in table
    rows = table.splitlines()
    assert len({row.count("|") for row in rows}) == 1


def test_every_field_is_live_or_has_a_reason_why_it_is_not() -> None:
    every = set(not_live.paths(definitions()[SPEC]))
    live = {*BY_PATH, *VOLUME_PATHS}
    rows = not_live_table().splitlines()[2:]

    assert {path for path, _ in not_live.rows(live)} == every - live
    assert len(rows) == len(every - live)
    assert not set(not_live.REASONS) & live  # a field that becomes live loses its reason
    for path in every - live:  # what is acted on has a reason of its own
        if support.is_acted_on(".".join(path)):
            assert any(path[:end] in not_live.REASONS for end in range(1, len(path) + 1)), path
