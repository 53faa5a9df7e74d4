"""What a change of size costs, and who has too little left for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.sizing import resizing
from livevirt.vm.spec import instance
from livevirt.vm.spec.resources import Compute, Namespace, compute
from livevirt.vm.verdict.growth import BY_MIGRATION, amounts, growth, pod_changes, shortages
from livevirt.vm.verdict.judgement import Verdict
from livevirt.vm.verdict.live_patch import live_patch
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.verdict.verdict_inputs import Bound, VerdictInputs

from ..cases import KVM, LIVE, a_spec, edited, running

SMALL = Compute({"cpu": "100m", "memory": "1Gi"}, {"memory": "2Gi"}, 0)
LARGE = Compute({"cpu": "300m", "memory": "1024Mi"}, {"memory": "3Gi"}, 0)


def test_amounts_are_named_as_quotas_name_them() -> None:
    assert {name: str(amount) for name, amount in amounts(SMALL).items()} == {
        "cpu": "100m",
        "requests.cpu": "100m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.memory": "2Gi",
    }


def test_growth_is_the_difference_either_way() -> None:
    def told(before: Compute, after: Compute) -> dict[str, str]:
        return {name: str(more) for name, more in growth(before, after).items()}

    assert told(SMALL, LARGE) == {"cpu": "200m", "requests.cpu": "200m", "limits.memory": "1Gi"}
    assert told(LARGE, SMALL) == {"cpu": "-200m", "requests.cpu": "-200m", "limits.memory": "-1Gi"}
    assert told(SMALL, SMALL) == {}


SHORT: dict[str, tuple[dict[str, str], str]] = {
    "enough": ({"cpu": "200m"}, ""),
    "a little too little": ({"cpu": "199m"}, "ResourceQuota team is missing 1m of cpu"),
    "something else": ({"limits.cpu": "0"}, ""),
    "two things": (
        {"cpu": "0", "limits.memory": "512Mi"},
        "ResourceQuota team is missing 200m of cpu, 512Mi of limits.memory",
    ),
    "less than nothing of what does not grow": (
        {"memory": "-64Mi"},
        "ResourceQuota team is missing 64Mi of memory",
    ),
}


@pytest.mark.parametrize(("left", "words"), SHORT.values(), ids=SHORT)
def test_what_is_missing_is_told(left: dict[str, str], words: str) -> None:
    bound = Bound("ResourceQuota", "team", {name: parse(text) for name, text in left.items()})
    found = shortages(growth(SMALL, LARGE), (bound,))
    assert [text for _, text in found] == ([words] if words else [])


def test_what_shrinks_needs_no_more_than_is_owed() -> None:
    shrinks = growth(LARGE, SMALL)
    assert not list(shortages(shrinks, (Bound("Node", "a", {"cpu": parse("-200m")}),)))
    assert list(shortages(shrinks, (Bound("Node", "a", {"cpu": parse("-201m")}),)))


# ---------------------------------------------------------------- what a plan says of the pod


def plan(started: Object, wanted: Object, vmi: Object) -> tuple[list[dict[str, str]], Object]:
    """Return what the pod is said to ask for otherwise, and the instance after the edit."""
    inputs = VerdictInputs(started, wanted, vmi, LIVE, **KVM)
    judgement = judge(inputs)
    return pod_changes(inputs, judgement), apply(live_patch(judgement, vmi), vmi)


def pod(vmi: Object) -> dict[str, str]:
    """Return what the pod of an instance asks for."""
    found = compute(instance.read(vmi["spec"]), LIVE.defaults)
    sides = (("requests", found.requests), ("limits", found.limits))
    return {f"{side}.{name}": text for side, amounts in sides for name, text in amounts.items()}


def test_a_plan_counts_what_the_owner_wrote() -> None:
    amounts = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    started = a_spec(domain__resources=amounts)
    wanted = edited(started, {"domain.cpu.sockets": 3, "domain.memory.guest": "2Gi"})

    said, _ = plan(started, wanted, running(started))

    assert [(each["resource"], each["from"], each["to"]) for each in said] == [
        ("requests.cpu", "1", "1400m"),
        ("requests.memory", "1434Mi", "2492Mi"),
        ("limits.cpu", "2", "2400m"),
        ("limits.memory", "1434Mi", "2492Mi"),
    ]


_sides = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(["1", "2"]), "memory": st.sampled_from(["1Gi", "2Gi"])}
)
_resources = st.fixed_dictionaries({}, optional={"requests": _sides, "limits": _sides})
_sizes = st.fixed_dictionaries(
    {},
    optional={
        "domain.cpu.sockets": st.integers(1, 4),
        "domain.memory.guest": st.sampled_from(["1Gi", "1536Mi", "2Gi"]),
    },
)


@given(_resources, st.booleans(), st.lists(_sizes, min_size=1, max_size=3))
def test_given_any_live_edits_then_the_plan_says_what_the_pod_asks_for_after_each(
    amounts: Object, dedicated: bool, edits: list[dict[str, Any]]
) -> None:
    started = a_spec(domain__resources=amounts, domain__cpu__dedicatedCpuPlacement=dedicated)
    vmi = running(started)
    for edit in edits:
        wanted = edited(started, edit)
        said, after = plan(started, wanted, vmi)
        before = pod(vmi)
        assert {each["resource"]: each["from"] for each in said}.items() <= before.items()
        assert before | {each["resource"]: each["to"] for each in said} == pod(after)
        assert plan(started, wanted, after)[0] == []  # it is settled
        vmi = after


def test_what_comes_after_a_migration_is_counted() -> None:
    vmi = running(a_spec(), migrationState={"migrationUid": "m"})

    said, _ = plan(a_spec(), a_spec(domain__cpu__sockets=2), vmi)

    assert said[0] == {"resource": "requests.cpu", "from": "200m", "to": "400m"}


def test_what_waits_for_a_restart_is_counted_as_the_next_pod_has_it() -> None:
    started = a_spec(domain__resources={"requests": {"cpu": "1"}})
    wanted = edited(started, {"domain.cpu.sockets": 2, "domain.cpu.cores": 4})

    said, _ = plan(started, wanted, running(started))

    assert [each["resource"] for each in said] == ["requests.memory"]  # a CPU as it is written


# ---------------------------------------------------------------- in place or by migration

GUESTS: dict[str, dict[str, Any]] = {
    "a plain guest": {},
    "dedicated CPUs": {"domain.cpu.dedicatedCpuPlacement": True},
    "huge pages": {"domain.memory.hugepages": {"pageSize": "2Mi"}},
}


@given(
    kind=st.sampled_from(sorted(GUESTS)),
    sockets=st.integers(1, 4),
    memory=st.sampled_from(["1Gi", "2Gi"]),
    closed=st.booleans(),
)
def test_given_any_growth_then_the_verdict_and_the_vmi_controller_agree_on_a_migration(
    kind: str, sockets: int, memory: str, closed: bool
) -> None:
    started = edited(a_spec(), GUESTS[kind])
    config = replace(LIVE, disabled=frozenset({"InPlaceHotplug"} if closed else ()))
    has = {"memory": {"guestCurrent": "1Gi"}, "currentCPUTopology": {"sockets": 1}}
    vmi = running(started, **has)
    vmi["metadata"]["namespace"] = "default"
    pod = launcher.pod_of(vmi, Namespace())
    wanted = edited(started, {"domain.cpu.sockets": sockets, "domain.memory.guest": memory})

    judgement = judge(VerdictInputs(started, wanted, vmi, config, **KVM))
    after = apply(live_patch(judgement, vmi), vmi)
    why = resizing.by_migration(after, pod, resizing.needed(after, Namespace()), config)

    assert {c.reason for c in judgement.changes} <= {*BY_MIGRATION, "PodResize", "InPlace"}
    by_migration = [c for c in judgement.changes if c.verdict is Verdict.LIVE_AFTER_MIGRATION]
    assert bool(why) == bool(by_migration)
    assert not why or why in [BY_MIGRATION[change.reason] for change in by_migration]
