"""Requests and limits that change by themselves, before and after changes of the guest's size."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.sizing import baseline, hot_change
from livevirt.vm.sizing.reservation import qos_class
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import live_patch, settles

from ..cases import KVM, a_spec, edited, judged, running

MIB = 1 << 20


def a_guest(sockets: int, mib: int, **resources: Any) -> Object:
    edits = {"domain.cpu.sockets": sockets, "domain.memory.guest": f"{mib}Mi"}
    return edited(a_spec(), {**edits, "domain.resources": resources})


def followed(judgement: Judgement, vmi: Object) -> Object:
    assert settles(judgement)
    found: Object = apply(live_patch(judgement, vmi), vmi)
    return found


def judge(started: Object, wanted: Object, vmi: Object) -> Judgement:
    return judged(started, wanted, vmi=vmi, around=KVM)


def one_side(least: int) -> st.SearchStrategy[Object]:
    cpu = st.integers(1, 4).map(lambda n: f"{n * least}")
    memory = st.integers(4, 8).map(lambda n: f"{n * least}Gi")
    return st.fixed_dictionaries({}, optional={"cpu": cpu, "memory": memory})


amounts = st.fixed_dictionaries({}, optional={"requests": one_side(1), "limits": one_side(10)})
sizes = st.tuples(st.integers(1, 4), st.integers(4, 16).map(lambda n: n * 256))


@given(amounts, st.lists(st.tuples(sizes, amounts), min_size=1, max_size=5))
def test_given_any_edits_when_followed_then_nothing_is_left_to_do_and_a_revert_restores_all(
    given_amounts: Object, edits: list[tuple[tuple[int, int], Object]]
) -> None:
    started = a_guest(1, 1024, **given_amounts)
    first = vmi = running(started)
    for (sockets, mib), resources in edits:
        wanted = a_guest(sockets, mib, **resources)
        vmi = followed(judge(started, wanted, vmi), vmi)
        assert judge(started, wanted, vmi).changes == ()
    vmi = followed(judge(started, started, vmi), vmi)
    assert _sides(vmi) == _sides(first)


def _sides(vmi: Object) -> dict[tuple[str, str], int]:
    found = vmi["spec"]["domain"].get("resources") or {}
    return {
        (side, name): parse(amount).nano
        for side in baseline.SIDES
        for name, amount in (found.get(side) or {}).items()
    }


def test_amounts_count_from_the_size_they_were_written_for() -> None:
    started = a_guest(1, 1024, requests={"memory": "1Gi"})
    vmi = running(started)
    grown = a_guest(1, 2048, requests={"memory": "1Gi"})
    vmi = followed(judge(started, grown, vmi), vmi)
    assert _sides(vmi)["requests", "memory"] == parse("2Gi").nano
    less = a_guest(1, 2048, requests={"memory": "1536Mi"})
    vmi = followed(judge(started, less, vmi), vmi)
    assert _sides(vmi)["requests", "memory"] == parse("1536Mi").nano
    more = a_guest(1, 3072, requests={"memory": "1536Mi"})
    vmi = followed(judge(started, more, vmi), vmi)
    assert _sides(vmi)["requests", "memory"] == parse("2560Mi").nano


def test_a_change_of_amounts_alone_is_a_change_of_size_that_is_waited_for() -> None:
    started = a_guest(1, 1024, limits={"cpu": "2"})
    found = judge(started, a_guest(1, 1024, limits={"cpu": "3"}), running(started))
    assert hot_change.requested(found, running(started)) == {"cpu": 1}


def test_a_limit_that_is_removed_is_lost_by_leaving_the_node() -> None:
    started = a_guest(1, 1024, limits={"cpu": "2"})
    vmi = running(started, nodeName="node01")
    vmi = followed(judge(started, a_guest(1, 1024), vmi), vmi)
    container = {"limits": {"cpu": "2"}}
    assert baseline.left_behind(vmi, container) == ["cpu"]
    assert baseline.left_behind(vmi, {"limits": {"memory": "2Gi"}}) == []
    moved = apply({"status": {"nodeName": "node02"}}, vmi)
    assert baseline.left_behind(moved, container) == []
    back = followed(judge(started, started, vmi), vmi)
    assert baseline.left_behind(back, container) == []


def test_the_qos_class_of_a_pod() -> None:
    both = {"cpu": "1", "memory": "1Gi"}
    assert qos_class({"requests": both, "limits": both}) == "Guaranteed"
    assert qos_class({"limits": both}) == "Guaranteed"
    assert qos_class({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": both}) == "Burstable"
    assert qos_class({"requests": both}) == "Burstable"
    assert qos_class({}) == "BestEffort"
