"""Where a guest could migrate to: just the nodes the scheduler would choose, and quotas' room."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.controllers.scheduler import objects
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.plan import Place, plan
from livevirt.kube.objects.node_share import NOTHING, Share, by_node
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict import headroom
from livevirt.vm.verdict.verdict_inputs import VerdictInputs

from ..cases import Surroundings, a_spec, room, running

LABELS = {
    "kubevirt.io/schedulable": "true",
    "kubernetes.io/arch": "amd64",
    "machine-type.node.kubevirt.io/q35": "true",
}


def a_guest(**edits: Any) -> Object:
    vmi = running(a_spec(**edits))
    vmi["metadata"]["namespace"] = "default"
    return vmi


def a_pod(vmi: Object, node: str = "here") -> Object:
    pod = launcher.pod_of(vmi, Namespace())
    pod["metadata"]["uid"] = "pod"
    if node:
        pod["spec"]["nodeName"] = node
    return {**pod, "status": {"phase": "Running" if node else "Pending"}}


def a_node(name: str, cpu: str = "8", memory: str = "16Gi", **rest: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": {**LABELS, **rest.pop("labels", {})}},
        "spec": rest.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "110", **rest},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def within(
    vmi: Object, *there: tuple[Object, Share], quotas: tuple[Object, ...] = ()
) -> VerdictInputs:
    return room(vmi, Surroundings(quotas, pods=[a_pod(vmi)], nodes=there))


def left(found: VerdictInputs, node: str, resource: str = "cpu") -> str:
    assert found.other_nodes is not None
    [bound] = [each for each in found.other_nodes if each.name == node]
    return str(bound.left[resource])


def test_every_other_open_node_is_counted_with_what_is_left_of_it() -> None:
    here, there, closed = a_node("here"), a_node("there"), a_node("closed")
    closed["spec"]["unschedulable"] = True
    taken = Share(parse("3"), parse("1Gi"))

    found = within(a_guest(), (here, NOTHING), (there, taken), (closed, NOTHING))

    assert [bound.name for bound in found.other_nodes or ()] == ["there"]
    assert left(found, "there") == "4999m"  # the pod's sidecar asks for one


def test_given_no_pod_then_nothing_is_known_of_other_nodes() -> None:
    assert room(a_guest(), Surroundings(nodes=[(a_node("there"), NOTHING)])).other_nodes is None


def test_huge_pages_and_cpus_of_its_own_must_be_there() -> None:
    paged = a_guest(domain__memory__hugepages={"pageSize": "2Mi"})
    assert left(within(paged, (a_node("there"), NOTHING)), "there", "hugepages-2Mi") == "0"
    with_pages = a_node("there", **{"hugepages-2Mi": "4Gi"})
    assert left(within(paged, (with_pages, NOTHING)), "there", "hugepages-2Mi") == "4Gi"

    pinned = a_guest(domain__cpu__dedicatedCpuPlacement=True)
    own = {"livevirt.io/exclusive-cpus": "2"}
    node = a_node("there", labels={"kubevirt.io/cpumanager": "true"}, **own)
    assert left(within(pinned, (node, NOTHING)), "there") == "2"


@pytest.mark.parametrize(
    ("hard", "used", "expected"),
    [
        ({"requests.cpu": "1"}, {"requests.cpu": "201m"}, {"requests.cpu": "798m"}),
        ({"pods": "2", "count/pods": "1"}, {"pods": "1", "count/pods": "1"}, {"pods": "0"}),
        ({"configmaps": "2"}, {"configmaps": "1"}, None),
    ],
)
def test_a_quota_is_counted_as_a_second_pod_meets_it(
    hard: dict[str, str], used: dict[str, str], expected: dict[str, str] | None
) -> None:
    quota = {"metadata": {"name": "team"}, "spec": {}, "status": {"hard": hard, "used": used}}
    found = [dict(bound.left) for bound in within(a_guest(), quotas=(quota,)).second_pod]
    assert found == ([] if expected is None else [{k: parse(v) for k, v in expected.items()}])


def test_what_pods_take_is_summed_up_by_node() -> None:
    vmi = a_guest()
    ended = {**a_pod(vmi, "b"), "status": {"phase": "Failed"}}
    objects = [a_pod(vmi, "a"), a_pod(vmi, "a"), ended, a_pod(vmi, ""), a_pod(vmi, "gone")]
    found = {n["metadata"]["name"]: s for n, s in by_node([a_node("a"), a_node("b")], objects)}
    assert (found["a"].cpu, found["b"]) == (parse("402m"), NOTHING)


TAINT = {"key": "gpu", "value": "big", "effect": "NoSchedule"}
TOLERATIONS = {
    "the very taint": ({"key": "gpu", "value": "big", "effect": "NoSchedule"}, True),
    "any value": ({"key": "gpu", "operator": "Exists"}, True),
    "everything": ({"operator": "Exists"}, True),
    "another key": ({"key": "disk", "operator": "Exists"}, False),
    "another value": ({"key": "gpu", "value": "small"}, False),
    "another effect": ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
}


@pytest.mark.parametrize(("toleration", "taken"), TOLERATIONS.values(), ids=TOLERATIONS)
def test_a_tainted_node_takes_who_tolerates_it(toleration: Object, taken: bool) -> None:
    node = a_node("there", spec={"taints": [TAINT]})
    spec = a_guest()["spec"]
    assert not headroom.takes(node, spec)
    assert headroom.takes(node, {**spec, "tolerations": [toleration]}) is taken


# ---------------------------------------------------------------- the law

keys, values = st.sampled_from(["k", "l"]), st.sampled_from(["", "1", "2"])
effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.fixed_dictionaries({"key": keys, "effect": effects}, optional={"value": values})
tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": keys,
        "operator": st.sampled_from(["Exists", "Equal"]),
        "value": values,
        "effect": effects,
    },
)
expressions = st.one_of(
    st.builds(
        lambda key, operator, some: {"key": key, "operator": operator, "values": some},
        keys, st.sampled_from(["In", "NotIn"]), st.lists(values, min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        keys, st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, bound: {"key": key, "operator": operator, "values": [bound]},
        keys, st.sampled_from(["Gt", "Lt"]), st.sampled_from(["0", "1", "2"]),
    ),
)  # fmt: skip
names = st.builds(
    lambda name: {"key": "metadata.name", "operator": "In", "values": [name]},
    st.sampled_from(["there", "elsewhere"]),
)
terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(expressions, max_size=2),
        "matchFields": st.lists(names, max_size=1),
    },
)


@settings(deadline=None)
@given(
    labels=st.dictionaries(keys, values),
    marks=st.lists(taints, max_size=2),
    closed=st.sampled_from([False, False, False, True]),
    ready=st.sampled_from(["True", "True", "True", "False", "Unknown"]),
    selector=st.dictionaries(keys, values, max_size=1),
    tolerated=st.lists(tolerations, max_size=2),
    required=st.none() | st.lists(terms, min_size=1, max_size=2),
)
def test_a_node_takes_a_guest_just_if_the_scheduler_would_choose_it(
    labels: Object,
    marks: list[Object],
    closed: bool,
    ready: str,
    selector: Object,
    tolerated: list[Object],
    required: list[Object] | None,
) -> None:
    vmi = copy.deepcopy(a_guest())
    vmi["spec"] |= {"nodeSelector": selector, "tolerations": tolerated}
    if required is not None:
        rule = "requiredDuringSchedulingIgnoredDuringExecution"
        vmi["spec"]["affinity"] = {"nodeAffinity": {rule: {"nodeSelectorTerms": required}}}
    node = a_node("there", labels=labels, spec={"taints": marks, "unschedulable": closed})
    node["status"]["conditions"][0]["status"] = ready
    fleet = Fleet()
    fleet.put_node(objects.read_node(node))

    chosen = isinstance(plan(objects.read_pod(a_pod(vmi, "")), fleet), Place)

    assert headroom.takes(node, vmi["spec"]) == chosen
