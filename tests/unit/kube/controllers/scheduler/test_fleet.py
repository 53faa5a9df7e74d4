"""The running sums are always what counting everything again would give."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.control.cache import Key
from livevirt.kube.controllers.scheduler.affinity import pod_term as read_term
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.objects import Pod, read_pod

from .scheduler_builders import a_fleet, a_node, a_pod, a_pod_object, apart, pod_term

NODES = ("n1", "n2")
TERM = pod_term("zone", {"app": "web"})
VARIANTS = [
    a_pod("p", requests, labels={"app": app}, affinity=affinity)
    for requests in ({}, {"cpu": "1", "memory": "1Gi"}, {"memory": "2Gi"})
    for app, affinity in (("web", {}), ("db", apart(TERM)))
]


def test_an_assumed_pod_counts_until_it_is_seen_or_fails() -> None:
    fleet, pod = a_fleet(a_node("n1")), a_pod("p", {"memory": "1Gi"})
    fleet.assume(pod, "n1")
    assert fleet.taken("n1").pods == 1
    assert fleet.put_pod(replace(pod, node="n1")) is False
    assert fleet.taken("n1").pods == 1
    assert fleet.forget(pod) is False  # too late: it is there
    assert fleet.taken("n1").pods == 1


def test_a_pod_whose_binding_failed_gives_its_place_back() -> None:
    fleet, pod = a_fleet(a_node("n1")), a_pod("p", {"memory": "1Gi"})
    fleet.assume(pod, "n1")
    assert fleet.forget(pod) is True
    assert (fleet.taken("n1").pods, fleet.taken("n1").requests) == (0, {})


def test_an_older_failure_does_not_touch_a_new_pod_of_the_same_name() -> None:
    fleet, old = a_fleet(a_node("n1")), a_pod("p")
    fleet.assume(replace(old, uid="new"), "n1")
    assert fleet.forget(old) is False
    assert fleet.taken("n1").pods == 1


def test_a_pod_that_is_being_resized_counts_in_its_larger_size() -> None:
    fleet = a_fleet(a_node("n1"), pods=(a_pod("p", {"memory": "3Gi"}, nodeName="n1"),))
    shrinking = a_pod_object("p", {"memory": "1Gi"}, nodeName="n1")
    allocated = {"name": "c", "allocatedResources": {"memory": "2Gi"}}
    shrinking["status"] = {"containerStatuses": [allocated]}
    assert fleet.put_pod(read_pod(shrinking)) is True
    assert fleet.taken("n1").requests == {"memory": 2 * 2**30 * 10**9}
    assert fleet.put_pod(a_pod("p", {"memory": "4Gi"}, nodeName="n1")) is True
    assert fleet.taken("n1").requests == {"memory": 4 * 2**30 * 10**9}


def test_a_node_that_comes_back_still_has_its_pods() -> None:
    fleet = a_fleet(a_node("n1"), pods=(a_pod("p", nodeName="n1"),))
    fleet.remove_node("n1")
    fleet.put_node(a_node("n1"))
    assert fleet.taken("n1").pods == 1


changes = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.none() | st.tuples(st.sampled_from(VARIANTS), st.sampled_from(NODES), st.booleans()),
    )
)


@given(changes)
def test_given_any_changes_then_the_sums_are_those_of_the_pods_that_are_there(
    history: list[tuple[str, tuple[Pod, str, bool] | None]],
) -> None:
    nodes = [a_node(name, labels={"zone": name}) for name in NODES]
    fleet, model = a_fleet(*nodes), dict[str, Pod]()
    term = read_term(TERM, "ns")
    fleet.chosen(term)  # counted along from here on
    for name, change in history:
        if change is None:
            fleet.remove_pod(Key("ns", name))
            model.pop(name, None)
            continue
        variant, node, assumed = change
        pod = replace(variant, key=Key("ns", name), uid=name)
        model[name] = replace(pod, node=node)
        if assumed:
            fleet.assume(pod, node)
        else:
            fleet.put_pod(model[name])
    fresh = Fleet()
    for node_ in nodes:
        fresh.put_node(node_)
    for pod in model.values():
        fresh.put_pod(pod)
    for name in NODES:
        ours, theirs = fleet.taken(name), fresh.taken(name)
        assert (ours.pods, ours.requests, ours.weights) == (
            theirs.pods, theirs.requests, theirs.weights)  # fmt: skip
    assert fleet.chosen(term) == fresh.chosen(term)
    web = a_pod("new", labels={"app": "web"})
    assert fleet.kept_away(web) == fresh.kept_away(web)
