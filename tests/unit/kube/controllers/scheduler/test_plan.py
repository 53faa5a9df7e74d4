"""Which node a pod gets, or in which words it is told that there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.objects import Node, Pod
from livevirt.kube.controllers.scheduler.plan import NO_NODES, Place, Wait, plan

from .scheduler_builders import (
    PREFERRED,
    a_fleet,
    a_node,
    a_pod,
    an_expression,
    apart,
    near,
    node_affinity,
    pod_term,
)

ZONE_A, ZONE_B = {"zone": "a"}, {"zone": "b"}
ON_A, ON_B = a_node("n1", labels=ZONE_A), a_node("n2", labels=ZONE_B)
WEB = {"app": "web"}

UNCURABLE = "1 Preemption is not helpful for scheduling"
CURABLE = "1 No preemption victims found for incoming pod"


def one_wrong(reasons: str, preemption: str = UNCURABLE) -> Wait:
    head = "0/1 nodes are available:"
    return Wait(f"{head} {reasons}. preemption: {head} {preemption}.")


def tainted(effect: str, key: str = "k", value: str = "v") -> Node:
    return a_node("n1", taints=[{"key": key, "value": value, "effect": effect}])


NOT_CHOSEN = one_wrong("1 node(s) didn't match Pod's node affinity/selector")
DEVICES = a_node("n1", allocatable={"devices.kubevirt.io/kvm": "1", "hugepages-2Mi": "4Mi"})
ON_N1 = Place("n1")

ONE_NODE: dict[str, tuple[Node, Pod, Place | Wait]] = {
    "given room, then it is placed": (a_node("n1"), a_pod(), ON_N1),
    "given exactly enough, then it is placed": (
        a_node("n1"), a_pod(requests={"cpu": "4", "memory": "8Gi"}), ON_N1),
    "given too little of two things, then both are named": (
        a_node("n1"), a_pod(requests={"cpu": "5", "memory": "9Gi"}),
        one_wrong("1 Insufficient cpu, 1 Insufficient memory")),
    "given no room for pods, then too many": (
        a_node("n1", allocatable={"pods": "0"}), a_pod(), one_wrong("1 Too many pods", CURABLE)),
    "given a node that reports nothing, then too many": (
        Node("n1", {}, {}), a_pod(), one_wrong("1 Too many pods", CURABLE)),
    "given a device the node has, then it is placed": (
        DEVICES, a_pod(requests={"devices.kubevirt.io/kvm": "1"}), ON_N1),
    "given a device the node lacks, then it is named": (
        a_node("n1"), a_pod(requests={"devices.kubevirt.io/kvm": "1"}),
        one_wrong("1 Insufficient devices.kubevirt.io/kvm")),
    "given too few huge pages, then they are named": (
        DEVICES, a_pod(requests={"hugepages-2Mi": "6Mi"}),
        one_wrong("1 Insufficient hugepages-2Mi")),
    "given a request for none of something unknown, then it is placed": (
        a_node("n1"), a_pod(requests={"example.com/x": "0"}), ON_N1),
    "given overhead, then it counts": (
        a_node("n1"), a_pod(requests={"memory": "7Gi"}, overhead={"memory": "2Gi"}),
        one_wrong("1 Insufficient memory")),
    "given a closed node, then it says so": (
        a_node("n1", unschedulable=True), a_pod(), one_wrong("1 node(s) were unschedulable")),
    "given a closed node, when the pod tolerates that, then it is placed": (
        a_node("n1", unschedulable=True),
        a_pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        ON_N1),
    "given NoSchedule, then the taint is named": (
        tainted("NoSchedule"), a_pod(), one_wrong("1 node(s) had untolerated taint {k: v}")),
    "given NoExecute, then the taint is named": (
        tainted("NoExecute"), a_pod(), one_wrong("1 node(s) had untolerated taint {k: v}")),
    "given PreferNoSchedule, then it is placed all the same": (
        tainted("PreferNoSchedule"), a_pod(), ON_N1),
    "given a toleration of value and effect, then it is placed": (
        tainted("NoSchedule"),
        a_pod(tolerations=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), ON_N1),
    "given a toleration of another value, then it does not help": (
        tainted("NoSchedule"), a_pod(tolerations=[{"key": "k", "operator": "Equal", "value": "w"}]),
        one_wrong("1 node(s) had untolerated taint {k: v}")),
    "given a toleration of another effect, then it does not help": (
        tainted("NoExecute"),
        a_pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
        one_wrong("1 node(s) had untolerated taint {k: v}")),
    "given a toleration of everything, then it is placed": (
        tainted("NoExecute"), a_pod(tolerations=[{"operator": "Exists"}]), ON_N1),
    "given a node that is not ready, then it counts as tainted": (
        a_node("n1", status={"conditions": [{"type": "Ready", "status": "False"}]}), a_pod(),
        one_wrong("1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }")),
    "given a node nobody hears of, then it counts as tainted": (
        a_node("n1", status={"conditions": [{"type": "Ready", "status": "Unknown"}]}), a_pod(),
        one_wrong("1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }")),
    "given a node selector that matches, then it is placed": (
        ON_A, a_pod(nodeSelector=ZONE_A), ON_N1),
    "given a node selector that does not match, then it says so": (
        ON_A, a_pod(nodeSelector=ZONE_B), NOT_CHOSEN),
    "given another node's name, then it says so": (
        ON_A, a_pod(nodeName="n9"), one_wrong("1 node(s) didn't match the requested node name")),
}  # fmt: skip


@pytest.mark.parametrize(("node", "pod", "outcome"), ONE_NODE.values(), ids=ONE_NODE)
def test_one_node(node: Node, pod: Pod, outcome: Place | Wait) -> None:
    assert plan(pod, a_fleet(node)) == outcome


GPU = a_node("n1", labels={"gpu": "4"})

NODE_TERMS = {
    "In": ({"matchExpressions": [an_expression("gpu", "In", "2", "4")]}, True),
    "In, not among them": ({"matchExpressions": [an_expression("gpu", "In", "2")]}, False),
    "NotIn": ({"matchExpressions": [an_expression("gpu", "NotIn", "2")]}, True),
    "NotIn, without the label": ({"matchExpressions": [an_expression("x", "NotIn", "2")]}, True),
    "Exists": ({"matchExpressions": [an_expression("gpu", "Exists")]}, True),
    "DoesNotExist": ({"matchExpressions": [an_expression("gpu", "DoesNotExist")]}, False),
    "Gt": ({"matchExpressions": [an_expression("gpu", "Gt", "3")]}, True),
    "Gt, equal": ({"matchExpressions": [an_expression("gpu", "Gt", "4")]}, False),
    "Lt": ({"matchExpressions": [an_expression("gpu", "Lt", "5")]}, True),
    "Lt, without the label": ({"matchExpressions": [an_expression("x", "Lt", "5")]}, False),
    "matchFields": ({"matchFields": [an_expression("metadata.name", "In", "n1")]}, True),
    "matchFields, another": ({"matchFields": [an_expression("metadata.name", "In", "n2")]}, False),
    "both must hold": (
        {"matchExpressions": [an_expression("gpu", "Exists")],
         "matchFields": [an_expression("metadata.name", "NotIn", "n1")]}, False),
    "an empty term chooses nothing": ({}, False),
}  # fmt: skip


@pytest.mark.parametrize(("term", "chosen"), NODE_TERMS.values(), ids=NODE_TERMS)
def test_required_node_affinity(term: dict[str, Any], chosen: bool) -> None:
    pod = a_pod(affinity=node_affinity(term))
    assert plan(pod, a_fleet(GPU)) == (Place("n1") if chosen else NOT_CHOSEN)


def test_of_several_node_terms_one_is_enough() -> None:
    wrong, right = ({"matchExpressions": [an_expression("gpu", "In", v)]} for v in ("1", "4"))
    assert plan(a_pod(affinity=node_affinity(wrong, right)), a_fleet(GPU)) == Place("n1")


def test_the_reasons_of_all_nodes_are_counted_and_sorted_as_text() -> None:
    fleet = a_fleet(
        a_node("n1", labels=ZONE_A, allocatable={"memory": "1Gi"}),
        a_node("n2", labels=ZONE_B),
        a_node("n3", labels=ZONE_B),
    )
    assert plan(a_pod(requests={"memory": "2Gi"}, nodeSelector=ZONE_A), fleet) == Wait(
        "0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node"
        " affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not helpful"
        " for scheduling."
    )


def test_a_node_that_others_fill_would_do_without_them() -> None:
    fleet = a_fleet(a_node("n1"), pods=(a_pod("q", {"memory": "6Gi"}, nodeName="n1"),))
    assert plan(a_pod(requests={"memory": "4Gi"}), fleet) == one_wrong(
        "1 Insufficient memory", CURABLE
    )


def test_without_nodes_it_says_so() -> None:
    assert plan(a_pod(), Fleet()) == Wait(NO_NODES)


# ---------------------------------------------------------------- company

BY_ZONE = pod_term("zone", WEB)
WEB_ON_A = a_pod("web", labels=WEB, nodeName="n1")
AFFINITY_RULES = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_RULES = "node(s) didn't match pod anti-affinity rules"
EXISTING_RULES = "node(s) didn't satisfy existing pods anti-affinity rules"


def test_a_pod_goes_near_those_it_wants_to_be_near() -> None:
    fleet = a_fleet(ON_A, ON_B, pods=(WEB_ON_A,))
    assert plan(a_pod(affinity=near(BY_ZONE)), fleet) == Place("n1")


def test_a_pod_that_wants_company_waits_for_it() -> None:
    fleet = a_fleet(ON_A, pods=(a_pod("other", nodeName="n1"),))
    assert plan(a_pod(affinity=near(BY_ZONE)), fleet) == one_wrong(f"1 {AFFINITY_RULES}")


def test_the_first_of_those_that_want_to_be_together_may_go_anywhere() -> None:
    pod = a_pod(labels=WEB, affinity=near(BY_ZONE))
    assert plan(pod, a_fleet(ON_A)) == Place("n1")
    nowhere = a_fleet(a_node("n1"))  # without the label there is no place to be together in
    assert plan(pod, nowhere) == one_wrong(f"1 {AFFINITY_RULES}")


def test_a_pod_stays_away_from_those_it_wants_apart_from() -> None:
    pod = a_pod(affinity=apart(BY_ZONE))
    assert plan(pod, a_fleet(ON_A, ON_B, pods=(WEB_ON_A,))) == Place("n2")
    assert plan(pod, a_fleet(ON_A, pods=(WEB_ON_A,))) == one_wrong(
        f"1 {ANTI_AFFINITY_RULES}", CURABLE
    )


def test_a_pod_stays_away_from_those_that_want_apart_from_it() -> None:
    hermit = a_pod("hermit", nodeName="n1", affinity=apart(BY_ZONE))
    assert plan(a_pod(labels=WEB), a_fleet(ON_A, pods=(hermit,))) == one_wrong(
        f"1 {EXISTING_RULES}", CURABLE
    )
    assert plan(a_pod(labels={"app": "db"}), a_fleet(ON_A, pods=(hermit,))) == Place("n1")


NAMESPACES = {
    "its own by default": ({}, "ns", True),
    "not another by default": ({}, "other", False),
    "those it names": ({"namespaces": ["other"]}, "other", True),
    "not its own then": ({"namespaces": ["other"]}, "ns", False),
    "those it selects": ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, "other", True),
    "not those it does not select": (
        {"namespaceSelector": {"matchLabels": {"team": "y"}}}, "other", False),
    "all, by an empty selector": ({"namespaceSelector": {}}, "other", True),
}  # fmt: skip


@pytest.mark.parametrize(("where", "namespace", "counts"), NAMESPACES.values(), ids=NAMESPACES)
def test_whose_namespaces_count(where: dict[str, Any], namespace: str, counts: bool) -> None:
    fleet = a_fleet(ON_A, pods=(a_pod("web", labels=WEB, namespace=namespace, nodeName="n1"),))
    fleet.put_namespace("other", {"team": "x"})
    outcome = plan(a_pod(affinity=apart(pod_term("zone", WEB, **where))), fleet)
    assert isinstance(outcome, Wait) == counts


# ---------------------------------------------------------------- the best of several


def test_the_emptier_node_is_better() -> None:
    fleet = a_fleet(ON_A, ON_B, pods=(a_pod("q", {"memory": "1Gi"}, nodeName="n1"),))
    assert plan(a_pod(requests={"memory": "1Gi"}), fleet) == Place("n2")


def test_pods_that_ask_for_nothing_are_spread_too() -> None:
    fleet = a_fleet(ON_A, ON_B, pods=(a_pod("q", nodeName="n1"),))
    assert plan(a_pod(), fleet) == Place("n2")


def test_of_equally_good_nodes_it_is_the_first_by_name() -> None:
    assert plan(a_pod(), a_fleet(ON_B, ON_A)) == Place("n1")


def test_the_node_that_stays_in_balance_is_better() -> None:
    wide = a_node("n1", allocatable={"cpu": "8", "memory": "5500Mi"})
    narrow = a_node("n2", allocatable={"cpu": "4", "memory": "8Gi"})
    # In sum n1 would be a little emptier, but its memory far fuller than its CPUs.
    pod = a_pod(requests={"cpu": "2", "memory": "4Gi"})
    assert plan(pod, a_fleet(wide, narrow)) == Place("n2")


def test_preferences_weigh() -> None:
    nodes = {PREFERRED: [{"weight": 50, "preference": {
        "matchExpressions": [an_expression("zone", "In", "b")]}}]}  # fmt: skip
    assert plan(a_pod(affinity={"nodeAffinity": nodes}), a_fleet(ON_A, ON_B)) == Place("n2")
    web_on_b = a_pod("web", labels=WEB, nodeName="n2")
    term = {PREFERRED: [{"weight": 100, "podAffinityTerm": BY_ZONE}]}
    fleet = a_fleet(ON_A, ON_B, pods=(web_on_b,))
    assert plan(a_pod(affinity={"podAffinity": term}), fleet) == Place("n2")
    fleet = a_fleet(ON_A, ON_B, pods=(WEB_ON_A, a_pod("q", {"cpu": "1"}, nodeName="n2")))
    assert plan(a_pod(affinity={"podAntiAffinity": term}), fleet) == Place("n2")


def test_a_node_that_asks_to_stay_away_is_worse() -> None:
    shy = tainted("PreferNoSchedule")
    assert plan(a_pod(), a_fleet(shy, a_node("n2"))) == Place("n2")


sizes = st.lists(st.integers(min_value=0, max_value=6), max_size=20)


@given(sizes, st.integers(min_value=1, max_value=3))
def test_however_many_pods_come_no_node_is_ever_overfull(gigabytes: list[int], count: int) -> None:
    fleet = a_fleet(*(a_node(f"n{at}") for at in range(count)))
    for number, size in enumerate(gigabytes):
        pod = a_pod(f"p{number}", {"memory": f"{size}Gi"})
        outcome = plan(pod, fleet)
        if isinstance(outcome, Place):
            fleet.assume(pod, outcome.node)
        else:
            free = [8 * 2**30 * 10**9 - fleet.taken(name).requests.get("memory", 0)
                    for name in fleet.nodes]  # fmt: skip
            full = all(fleet.taken(name).pods == 10 for name in fleet.nodes)
            assert full or max(free) < size * 2**30 * 10**9
    for name in fleet.nodes:
        assert fleet.taken(name).requests.get("memory", 0) <= 8 * 2**30 * 10**9
        assert fleet.taken(name).pods <= 10
