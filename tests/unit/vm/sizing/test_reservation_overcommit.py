"""Requests for memory that are a part of the guest's, as an instance type that overcommits asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.sizing.reservation import asked, held, reported_size, reservation
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import live_patch, settles

from ..cases import STAGE, a_spec, judged, rulings, running

GUEST, REQUEST = "domain.memory.guest", "domain.resources.requests.memory"
MIB = 1 << 20
LIVE = dict.fromkeys((GUEST, REQUEST), ("LiveAfterResize", "PodResize"))


def overcommitted(mib: int, percent: int = 50, **edits: Any) -> Object:
    """Return what a template becomes with an instance type that overcommits so much."""
    amounts = {"domain__memory__guest": f"{mib}Mi"}
    requests = {"memory": f"{mib * (100 - percent) // 100}Mi"}
    return a_spec(**amounts, domain__resources={"requests": requests}, **edits)


def request(vmi: Object) -> int:
    return parse(vmi["spec"]["domain"]["resources"]["requests"]["memory"]).bytes


def followed(judgement: Judgement, vmi: Object) -> Object:
    patched: Object = apply(live_patch(judgement, vmi), vmi)
    return patched


ONE, TWO = overcommitted(1024), overcommitted(2048)
RULES: dict[str, tuple[Object, Object, dict[str, tuple[str, str]]]] = {
    "with the size it is live": (ONE, TWO, LIVE),
    "without the size it is live too": (
        ONE, overcommitted(1024, 25), {REQUEST: ("LiveAfterResize", "PodResize")},
    ),
    "with a size that is not live it is held back": (
        ONE, overcommitted(64 * 1024),
        {GUEST: ("Restart", "AboveMaximum"), REQUEST: ("Restart", "HeldBack")},
    ),
    "where there was none": (a_spec(), TWO, LIVE),
    "where there shall be none": (ONE, a_spec(domain__memory__guest="2Gi"), LIVE),
    "beside a limit": (
        overcommitted(1024, domain__resources__limits={"memory": "4Gi"}),
        overcommitted(2048, domain__resources__limits={"memory": "4Gi"}),
        LIVE,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("started", "wanted", "expected"), RULES.values(), ids=RULES)
def test_verdict(started: Object, wanted: Object, expected: dict[str, tuple[str, str]]) -> None:
    assert rulings(judged(started, wanted)) == expected


def test_given_stage_then_both_wait() -> None:
    found = rulings(judged(ONE, TWO, config=STAGE))
    assert found == dict.fromkeys((GUEST, REQUEST), ("Restart", "StageStrategy"))


sizes = st.integers(1, 4).map(lambda number: number * 1024)


@given(st.lists(sizes, min_size=1, max_size=4), st.sampled_from((25, 50, 75)))
def test_given_any_edits_when_followed_then_the_instance_asks_for_what_the_last_one_says(
    wanted: list[int], percent: int
) -> None:
    started = overcommitted(1024, percent)
    vmi = running(started)
    for mib in wanted:
        judgement = judged(started, overcommitted(mib, percent), vmi=vmi)
        assert settles(judgement)
        vmi = followed(judgement, vmi)
        assert request(vmi) == mib * MIB * (100 - percent) // 100
        assert judged(started, overcommitted(mib, percent), vmi=vmi).changes == ()


def test_the_plan_tells_from_what_the_instance_asks_for_now() -> None:
    vmi = followed(judged(ONE, TWO), running(ONE))
    judgement = judged(ONE, overcommitted(3072), vmi=vmi)
    change = judgement.change(f"spec.template.spec.{REQUEST}")
    assert change is not None
    assert (change.running, change.wanted) == ("1Gi", "1536Mi")


@given(sizes, sizes, st.sampled_from((25, 50, 75)))
def test_given_a_change_under_way_then_the_pod_never_asks_for_less_than_the_part_the_guest_has(
    has: int, wanted: int, percent: int
) -> None:
    part = (100 - percent) / 100
    vmi = running(overcommitted(wanted, percent), memory={"guestCurrent": f"{has}Mi"})
    now, most = held(vmi, reported_size(vmi)), reservation(vmi, reported_size(vmi))
    for found, mib in ((now, has), (most, max(has, wanted))):
        amount = parse(found.requests["memory"]).bytes - found.overhead
        assert amount >= int(mib * MIB * part)
    done = held(vmi, asked(vmi))
    assert parse(done.requests["memory"]).bytes - done.overhead == int(wanted * MIB * part)
