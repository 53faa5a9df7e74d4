"""What node, quotas and limit ranges leave a guest's pod: just what a resize then meets."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from livevirt.errors import Forbidden
from livevirt.kube.admission import limit_ranges, quotas
from livevirt.kube.admission.limit_ranges import LimitRangeRules
from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.pod_resources import amounts
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review
from livevirt.vm.config import settings as config
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.spec import instance, resources
from livevirt.vm.spec.resources import Namespace, namespace_of
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.verdict.verdict_inputs import Bound, VerdictInputs

from ..cases import Surroundings, a_spec, room, running

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SOCKET = "200m"  # what a socket of two cores asks for
Size = tuple[int, str]  # sockets and memory
SMALL: Size = (1, "1Gi")


def a_guest(size: Size = SMALL, **edits: Any) -> Object:
    vmi = running(a_spec(**edits))
    vmi["metadata"]["namespace"] = "default"
    return sized(vmi, size)


def sized(vmi: Object, size: Size) -> Object:
    found = copy.deepcopy(vmi)
    found["spec"]["domain"]["cpu"]["sockets"] = size[0]
    found["spec"]["domain"]["memory"]["guest"] = size[1]
    return found


def a_pod(vmi: Object, namespace: Namespace | None = None, **status: Any) -> Object:
    pod = launcher.pod_of(vmi, namespace or Namespace())
    pod["metadata"] |= {"uid": f"pod-of-{vmi['metadata']['uid']}", "resourceVersion": "7"}
    pod["spec"]["nodeName"] = "node-1"
    return {**pod, "status": {"phase": "Running", **status}}


_versions = iter(range(100, 10**9))


def other(cpu: str = "0", memory: str = "0", **status: Any) -> Object:
    """Return another pod of the node; each has a version of its own."""
    version = str(next(_versions))
    wanted = {"requests": {"cpu": cpu, "memory": memory}}
    return {
        "metadata": {"name": "other", "uid": version, "resourceVersion": version},
        "spec": {"containers": [{"name": "main", "resources": wanted}]},
        "status": {"phase": "Running", **status},
    }


def told(**fields: Any) -> Object:
    return {"containerStatuses": [{"name": "main", **fields}]}


def a_node(**allocatable: str) -> Object:
    return {"metadata": {"name": "node-1"}, "status": {"allocatable": allocatable}}


def a_quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> Object:
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def a_range(type_: str, **fields: dict[str, str]) -> Object:
    found = {"metadata": {"name": "sane"}, "spec": {"limits": [{"type": type_, **fields}]}}
    LimitRangeRules().default(found)
    return found


def asked(vmi: Object, namespace: Namespace | None = None) -> resources.Compute:
    return resources.compute(instance.read(vmi["spec"]), config.recorded(vmi), namespace)


def bounds(
    vmi: Object, pod: Object, node: Object | None = None, others: Any = (), **seen: Any
) -> tuple[Bound, ...]:
    return room(vmi, Surroundings(pods=(*others, pod), **seen), node).bounds


def left(found: tuple[Bound, ...], name: str) -> str:
    [bound] = found
    return str(bound.left[name])


# ---------------------------------------------------------------- the node

GRANTED = {"requests": {"cpu": "1"}}
OTHERS: dict[str, tuple[list[Object], str]] = {
    "no other pod": ([], "1799m"),
    "one that asks": ([other("1")], "799m"),
    "several": ([other("1"), other("500m")], "299m"),
    "one that ended": ([other("1", phase="Succeeded")], "1799m"),
    "one that failed": ([other("1", phase="Failed")], "1799m"),
    "one that would like to grow": (
        [other("1500m", **told(allocatedResources={"cpu": "1"}, resources=GRANTED))],
        "799m",
    ),
    "one that has not let go yet": (
        [other("500m", **told(allocatedResources={"cpu": "500m"}, resources=GRANTED))],
        "799m",
    ),
    "more than there is": ([other("3")], "-1201m"),
}


@pytest.mark.parametrize(("others", "expected"), OTHERS.values(), ids=OTHERS)
def test_a_node_leaves_what_it_has_not_granted(others: list[Object], expected: str) -> None:
    vmi = a_guest()  # asks for a socket, and its log for a thousandth
    assert left(bounds(vmi, a_pod(vmi), a_node(cpu="2"), others), "cpu") == expected


def test_a_node_is_asked_for_cpu_and_memory_only() -> None:
    vmi = a_guest()
    [bound] = bounds(vmi, a_pod(vmi), a_node(cpu="2", memory="4Gi", pods="1"))
    assert (bound.kind, bound.name, sorted(bound.left)) == ("Node", "node-1", ["cpu", "memory"])


def test_what_an_instance_was_promised_is_not_left_for_more() -> None:
    behind = a_pod(a_guest())
    assert left(bounds(a_guest((3, "1Gi")), behind, a_node(cpu="2")), "cpu") == "1399m"


def test_without_node_or_pod_nothing_is_known_to_stand_in_the_way() -> None:
    vmi = a_guest()
    assert bounds(vmi, a_pod(vmi)) == ()
    assert bounds(vmi, other("1"), a_node(cpu="0")) == ()
    assert bounds(vmi, a_pod(vmi, phase="Failed"), a_node(cpu="0")) == ()


# ---------------------------------------------------------------- quotas

QUOTAS: dict[str, tuple[Object, dict[str, str]]] = {
    "with room": (
        a_quota({"requests.cpu": "1"}, {"requests.cpu": "201m"}), {"requests.cpu": "799m"}),
    "under its short name": (a_quota({"cpu": "1"}, {"cpu": "201m"}), {"cpu": "799m"}),
    "used up": (a_quota({"cpu": "1"}, {"cpu": "1"}), {"cpu": "0"}),
    "overdrawn": (a_quota({"cpu": "1"}, {"cpu": "3"}), {"cpu": "0"}),
    "of several": (
        a_quota({"cpu": "1", "memory": "4Gi"}, {"cpu": "500m", "memory": "3Gi"}),
        {"cpu": "500m", "memory": "1Gi"},
    ),
    "of limits the pod does not have": (
        a_quota({"limits.cpu": "9"}, {"limits.cpu": "0"}), {"limits.cpu": "-2"}),
    "of pods": (a_quota({"pods": "1", "count/pods": "1"}, {"pods": "1", "count/pods": "1"}), {}),
    "not counted yet": ({"metadata": {"name": "team"}, "spec": {"hard": {"cpu": "0"}}}, {}),
    "of such pods": (a_quota({"cpu": "1"}, {"cpu": "1"}, scopes=["NotTerminating"]), {"cpu": "0"}),
    "of other pods": (a_quota({"cpu": "1"}, {"cpu": "1"}, scopes=["Terminating"]), {}),
}  # fmt: skip


@pytest.mark.parametrize(("team", "expected"), QUOTAS.values(), ids=QUOTAS)
def test_a_quota_leaves_what_is_not_used(team: Object, expected: dict[str, str]) -> None:
    vmi = a_guest()
    found = bounds(vmi, a_pod(vmi), quotas=[team])
    assert [(each.kind, each.name) for each in found] == [("ResourceQuota", "team")] * bool(
        expected
    )
    assert {n: str(v) for each in found for n, v in each.left.items()} == expected


def test_a_quota_on_limits_counts_the_limits_that_follow_from_it() -> None:
    team = a_quota({"limits.cpu": "4"}, {"limits.cpu": "2001m"})
    vmi = a_guest()
    pod = a_pod(vmi, namespace_of([team], None, None))
    assert left(bounds(vmi, pod, quotas=[team]), "limits.cpu") == "1999m"


def test_given_a_pod_behind_its_instance_then_the_rest_is_owed() -> None:
    team = a_quota({"cpu": "1"}, {"cpu": "900m"})
    found = bounds(a_guest((2, "1Gi")), a_pod(a_guest()), quotas=[team])
    assert left(found, "cpu") == "-100m"


def test_given_a_pod_ahead_of_its_instance_then_it_has_that_already() -> None:
    team = a_quota({"cpu": "1"}, {"cpu": "1"})
    found = bounds(a_guest(), a_pod(a_guest((2, "1Gi"))), quotas=[team])
    assert left(found, "cpu") == SOCKET


# ---------------------------------------------------------------- limit ranges

LIMITED = Namespace(limits_cpu=True)  # the container has a limit of 2
RANGES: dict[str, tuple[Object, Namespace, dict[str, str]]] = {
    "of containers": (
        a_range("Container", max={"cpu": "1"}), Namespace(), {"requests.cpu": "800m"}),
    "of containers with limits": (
        a_range("Container", max={"cpu": "3"}), LIMITED,
        {"requests.cpu": "2800m", "limits.cpu": "1"}),
    "of pods, which must have limits": (
        a_range("Pod", max={"cpu": "1"}), Namespace(),
        {"requests.cpu": "799m", "limits.cpu": "-1"}),
    "of pods with limits": (
        a_range("Pod", max={"cpu": "3"}), LIMITED, {"requests.cpu": "2799m", "limits.cpu": "999m"}),
    "of claims": (a_range("PersistentVolumeClaim", max={"storage": "1Gi"}), Namespace(), {}),
    "of storage": (a_range("Container", min={"ephemeral-storage": "1"}), Namespace(), {}),
}  # fmt: skip


@pytest.mark.parametrize(("sane", "namespace", "expected"), RANGES.values(), ids=RANGES)
def test_a_limit_range_leaves_what_is_below_its_maximum(
    sane: Object, namespace: Namespace, expected: dict[str, str]
) -> None:
    vmi = a_guest()
    team = [a_quota({"limits.cpu": "99"}, {})] if namespace.limits_cpu else []
    found = bounds(vmi, a_pod(vmi, namespace), quotas=team, limit_ranges=[sane])
    assert {n: str(v) for each in found for n, v in each.left.items()} == expected


def test_a_limit_that_was_filled_in_holds_requests_down() -> None:
    sane = a_range("Container", default={"cpu": "500m"})
    vmi = a_guest()
    pod = a_pod(vmi)
    limit_ranges.fill_in(pod, [sane])
    assert left(bounds(vmi, pod, limit_ranges=[sane]), "requests.cpu") == "300m"


# ---------------------------------------------------------------- the law

SIZES = st.tuples(st.integers(1, 4), st.sampled_from(["1Gi", "1536Mi", "2Gi", "4Gi"]))
CPU = st.integers(0, 12).map(lambda tenths: f"{tenths}01m")
MEMORY = st.integers(1, 9).map(lambda halves: f"{halves * 512}Mi")
KEYS = ("cpu", "requests.memory", "limits.cpu", "limits.memory")


def largest(one: Size, other_: Size) -> Size:
    return max(one[0], other_[0]), max(one[1], other_[1], key=lambda text: parse(text).nano)


def outcome(
    pod: Object, needed: resources.Compute, node: Object, seen: Surroundings, others: list[Object]
) -> str:
    """Return who refuses to resize a pod; asked are those who will be."""
    new = copy.deepcopy(pod)
    container = new["spec"]["containers"][0]
    stated = container["resources"]
    for side, wanted in (("requests", needed.requests), ("limits", needed.limits)):
        if stated.get(side):
            stated[side] = {**stated[side], **{n: wanted[n] for n in stated[side] if n in wanted}}
    above = [
        n for n, most in amounts(stated["limits"]).items() if parse(stated["requests"][n]) > most
    ]
    if above or limit_ranges.find_breaches(POD, new, seen.limit_ranges):
        return "LimitRange"
    review = Review("update", POD, "v1", new, pod, User("us"), None, NOON, "resize")  # type: ignore[arg-type]
    try:
        quotas.charge(copy.deepcopy(list(seen.quotas)), review)
    except Forbidden:
        return "ResourceQuota"
    total = [pod_resources.requests(each) for each in (new, *others)]
    for name, most in amounts(node["status"]["allocatable"]).items():
        if sum(each[name].nano for each in total) > most.nano:
            return "Node"
    return ""


@settings(max_examples=200, deadline=None)
@given(
    behind=SIZES,
    promised=SIZES,
    wanted=SIZES,
    others=st.lists(st.tuples(CPU, MEMORY), max_size=3),
    allocatable=st.tuples(CPU, MEMORY),
    hard=st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 60), st.integers(0, 30))),
    most=st.none() | st.tuples(st.sampled_from(["Container", "Pod"]), CPU, MEMORY),
)
def test_given_any_growth_then_it_waits_just_if_its_resize_would_be_refused(
    behind: Size,
    promised: Size,
    wanted: Size,
    others: list[tuple[str, str]],
    allocatable: tuple[str, str],
    hard: dict[str, tuple[int, int]],
    most: tuple[str, str, str] | None,
) -> None:
    promised = largest(behind, promised)  # the pod may have to catch up with its instance
    wanted = largest(promised, wanted)
    scale = {name: "00m" if name.endswith("cpu") else "56Mi" for name in KEYS}
    team = a_quota(
        {name: f"{amount}{scale[name]}" for name, (amount, _) in hard.items()},
        {name: f"{amount}{scale[name]}" for name, (_, amount) in hard.items()},
    )
    namespace = namespace_of([team], None, None)
    node = a_node(cpu=allocatable[0], memory=allocatable[1])
    pod = a_pod(a_guest(behind), namespace)
    ranges = [a_range(most[0], max={"cpu": most[1], "memory": most[2]})] if most else []
    limit_ranges.fill_in(pod, ranges)
    pods = [pod, *(other(*each) for each in others)]
    seen = Surroundings([team], ranges, pods)
    vmi = a_guest(promised)

    found = judged(vmi, wanted, room(vmi, seen, node))

    if wanted == promised:
        assert found.changes == ()
        return
    refused = outcome(pod, asked(sized(vmi, wanted), namespace), node, seen, pods[1:])
    assert found.waits == bool(refused)
    reasons = {"LimitRange": "OverLimitRange", "ResourceQuota": "OverQuota", "Node": "NodeFull"}
    assert {change.reason for change in found.changes} == {reasons.get(refused, "PodResize")}


@settings(max_examples=200, deadline=None)
@given(
    has=SIZES,
    wanted=SIZES,
    least=st.tuples(st.sampled_from(["Container", "Pod"]), CPU, MEMORY),
    alone=st.booleans(),
)
def test_given_any_shrinking_then_it_waits_just_if_a_minimum_would_refuse_its_resize(
    has: Size, wanted: Size, least: tuple[str, str, str], alone: bool
) -> None:
    has = largest(has, wanted)
    vmi, node = a_guest(has), a_node(cpu="1k", memory="1Ti")
    pod = a_pod(vmi)
    if alone:  # no log, whose container is smaller than most minima
        del pod["spec"]["initContainers"]
    ranges = [a_range(least[0], min={"cpu": least[1], "memory": least[2]})]
    seen = Surroundings([], ranges, [pod])

    found = judged(vmi, wanted, room(vmi, seen, node))

    if wanted == has:
        assert found.changes == ()
        return
    refused = outcome(pod, asked(sized(vmi, wanted)), node, seen, [])
    assert found.waits == bool(refused)
    reason = "OverLimitRange" if refused else "InPlace"
    assert {change.reason for change in found.changes} == {reason}


def test_given_a_minimum_then_a_shrinking_guest_is_told_what_its_pod_lacks() -> None:
    vmi = a_guest((2, "1Gi"))
    seen = Surroundings(limit_ranges=[a_range("Pod", min={"cpu": "301m"})], pods=[a_pod(vmi)])
    [change] = judged(vmi, SMALL, room(vmi, seen)).changes
    assert (change.verdict, change.reason) == ("Live", "OverLimitRange")
    assert "LimitRange sane wants 100m of requests.cpu more" in change.message


def test_given_a_minimum_then_what_grows_at_the_same_time_does_not_wait() -> None:
    vmi = a_guest((1, "2Gi"))
    seen = Surroundings(limit_ranges=[a_range("Pod", min={"memory": "2Gi"})], pods=[a_pod(vmi)])
    changes = judged(vmi, (2, "1Gi"), room(vmi, seen)).changes
    assert [change.reason for change in changes] == ["PodResize", "OverLimitRange"]


@pytest.mark.parametrize(("ratio", "waits"), [("3", True), ("6", False)])
@pytest.mark.parametrize("type_", ["Container", "Pod"])
def test_given_a_limit_that_was_filled_in_then_a_ratio_is_a_minimum(
    type_: str, ratio: str, waits: bool
) -> None:
    vmi = a_guest((2, "1Gi"))
    pod = a_pod(vmi)
    limit_ranges.fill_in(pod, [a_range("Container", default={"cpu": "1"})])
    ranges = [a_range(type_, maxLimitRequestRatio={"cpu": ratio})]
    del pod["spec"]["initContainers"]
    seen = Surroundings(limit_ranges=ranges, pods=[pod])

    found = judged(vmi, SMALL, room(vmi, seen))

    assert found.waits is waits
    assert bool(outcome(pod, asked(sized(vmi, SMALL)), a_node(), seen, [])) is waits


def judged(vmi: Object, wanted: Size, found: VerdictInputs) -> Judgement:
    """Return the judgement on making a guest that large."""
    started = a_spec()
    spec = a_spec(domain__cpu__sockets=wanted[0], domain__memory__guest=wanted[1])
    return judge(replace(found, started=started, wanted=spec, accelerator="kvm"))
