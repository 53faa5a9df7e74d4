"""What a spec asks of its pod is refused at the door of the VM, not at that of the pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.admission.pod_defaults import set_defaults
from livevirt.kube.admission.pod_validation import validate_new
from livevirt.kube.objects import structural, typed
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.request import Object
from livevirt.vm.kinds import VM, VMI
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.spec.resources import Namespace

from ..vm_review import LIVE, STAGE, a_spec, a_vm, a_vmi, review

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TEMPLATE = "spec.template.spec"


def spread(**rest: Any) -> Object:
    good = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [good | rest]}


def on_nodes(*terms: Object) -> Object:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def beside(weight: int, key: str) -> Object:
    term = {"weight": weight, "podAffinityTerm": {"topologyKey": key}}
    return {"affinity": {"podAffinity": {PREFERRED: [term]}}}


def expression(operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


BESIDE = f"affinity.podAffinity.{PREFERRED}[0]"
TERMS = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
REFUSED: dict[str, tuple[Object, str]] = {
    "a node's label": ({"nodeSelector": {"a": "x y"}}, "nodeSelector"),
    "a toleration's operator": (
        {"tolerations": [{"key": "a", "operator": "Bogus"}]}, "tolerations[0].operator",
    ),
    "a toleration's effect": (
        {"tolerations": [{"key": "a", "effect": "Bogus"}]}, "tolerations[0].effect",
    ),
    "a toleration's key": (
        {"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key",
    ),
    "a weight": (beside(101, "zone"), f"{BESIDE}.weight"),
    "a topology": (beside(1, "a b"), f"{BESIDE}.podAffinityTerm.topologyKey"),
    "no terms": (on_nodes(), TERMS),
    "an operator": (on_nodes(expression("Bogus")), f"{TERMS}[0].matchExpressions[0].operator"),
    "a skew": (spread(maxSkew=0), "topologySpreadConstraints[0].maxSkew"),
    "a spread": (
        spread(whenUnsatisfiable="Bogus"), "topologySpreadConstraints[0].whenUnsatisfiable",
    ),
    "a policy": ({"dnsPolicy": "Bogus"}, "dnsPolicy"),
    "a scheduler": ({"schedulerName": "No One"}, "schedulerName"),
    "a priority": ({"priorityClassName": "No One"}, "priorityClassName"),
    "an architecture": ({"architecture": "x y"}, "architecture"),
    "a CPU model": ({"cpu": {"model": "x,y"}}, "domain.cpu.model"),
    "a feature": ({"cpu": {"features": [{"name": "x y"}]}}, "domain.cpu.features[0].name"),
    "no feature": ({"cpu": {"features": [{"name": ""}]}}, "domain.cpu.features[0].name"),
    "a machine": ({"machine": {"type": "q35 x"}}, "domain.machine.type"),
}  # fmt: skip


@pytest.mark.parametrize(("wishes", "field"), REFUSED.values(), ids=REFUSED)
def test_what_no_pod_can_be_given_is_refused(wishes: Object, field: str) -> None:
    assert {error.field for error in review(VM, a_vm(a_spec(**wishes)))[1]} == {
        f"{TEMPLATE}.{field}"
    }


def test_wishes_a_pod_can_be_given_are_accepted() -> None:
    wishes = {
        "nodeSelector": {"kubernetes.io/hostname": "node-1", "empty": ""},
        "tolerations": [
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        **on_nodes(expression("In", "a", "b"), expression("Exists")),
        **spread(labelSelector={"matchLabels": {"app": "web"}}),
        "dnsPolicy": "None",
        "schedulerName": "my.scheduler",
        "priorityClassName": "system-cluster-critical",
    }
    assert review(VM, a_vm(a_spec(**wishes)))[1] == []


def test_a_priority_class_that_does_not_exist_is_refused() -> None:
    spec = a_spec(priorityClassName="high")
    [of_vm], [of_vmi] = review(VM, a_vm(spec))[1], review(VMI, a_vmi(spec))[1]
    assert (of_vm.reason, of_vm.field) == ("FieldValueNotFound", f"{TEMPLATE}.priorityClassName")
    assert (of_vmi.reason, of_vmi.field) == ("FieldValueNotFound", "spec.priorityClassName")


def test_given_a_class_that_is_gone_then_the_vm_can_be_edited_but_not_to_another_such() -> None:
    old = a_vm(a_spec(priorityClassName="gone"))
    assert review(VM, a_vm(a_spec(priorityClassName="gone"), runStrategy="Always"), old)[1] == []
    assert review(VM, a_vm(a_spec()), old)[1] == []
    assert len(review(VM, a_vm(a_spec(priorityClassName="other")), old)[1]) == 1


# ---------------------------------------------------------------- for any wishes

words = st.sampled_from(["", "a", "x y", "zone", "a.b/c", "A" * 64, "é"])
operators = st.sampled_from(["", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Equal", "Bogus"])
effects = st.sampled_from(["", "NoSchedule", "NoExecute", "Bogus"])
numbers = st.sampled_from([-1, 0, 1, 100, 101])
labels = st.dictionaries(words, words, max_size=2)


def some(**fields: Any) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional=fields)


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=2)


requirements = st.fixed_dictionaries(
    {"key": words, "operator": operators}, optional={"values": lists(words)}
)
selectors = some(matchLabels=labels, matchExpressions=lists(requirements))
node_terms = some(matchExpressions=lists(requirements), matchFields=lists(requirements))
pod_terms = st.fixed_dictionaries(
    {"topologyKey": words}, optional={"labelSelector": selectors, "namespaces": lists(words)}
)
pod_wishes = some(**{
    REQUIRED: lists(pod_terms),
    PREFERRED: lists(st.fixed_dictionaries({"weight": numbers, "podAffinityTerm": pod_terms})),
})  # fmt: skip
node_wishes = some(**{
    REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": lists(node_terms)}),
    PREFERRED: lists(st.fixed_dictionaries({"weight": numbers, "preference": node_terms})),
})  # fmt: skip
amounts = st.sampled_from(["0", "1m", "1", "64Mi", "1Gi", "3Gi", "1e1000"])
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), amounts)
# Few at a time: of many, one would nearly always be wrong.
specs = some(
    nodeSelector=labels,
    tolerations=lists(
        some(key=words, operator=operators, value=words, effect=effects, tolerationSeconds=numbers)
    ),
    affinity=some(nodeAffinity=node_wishes, podAffinity=pod_wishes, podAntiAffinity=pod_wishes),
    topologySpreadConstraints=lists(
        st.fixed_dictionaries(
            {
                "maxSkew": numbers,
                "topologyKey": words,
                "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway", "Bogus"]),
            },
            optional={"labelSelector": selectors, "minDomains": numbers},
        )
    ),
    dnsPolicy=st.sampled_from(["", "None", "Default", "ClusterFirst", "Bogus"]),
    schedulerName=words,
    priorityClassName=words,
    architecture=words,
    hostname=words,
    subdomain=words,
    terminationGracePeriodSeconds=st.sampled_from([-1, 0, 30, 2**63 - 1, 2**63]),
    cpu=some(
        model=words,
        sockets=st.sampled_from([0, 1, 4, 2**32 - 1, 2**32]),
        features=lists(some(policy=st.sampled_from(["", "require", "disable", "Bogus"]))).flatmap(
            lambda found: words.map(lambda name: [{"name": name, **each} for each in found])
        ),
        dedicatedCpuPlacement=st.booleans(),
    ),
    resources=some(requests=resources, limits=resources),
    memory=some(
        guest=amounts, hugepages=some(pageSize=st.sampled_from(["2Mi", "1Gi", "3Mi", "x"]))
    ),
)


@settings(max_examples=400, deadline=None)
@given(specs, st.sampled_from([LIVE, STAGE]))
def test_given_any_spec_that_is_accepted_then_its_pod_is_too(spec: Object, config: Object) -> None:
    given_vmi = a_vmi(a_spec(**spec))
    if structural.validate(VMI.schema(), given_vmi):
        return
    vmi, errors, _ = review(VMI, given_vmi, settings=config)
    if errors:
        return
    pod = typed.decode(POD.schema(), launcher.pod_of(vmi, Namespace()), [])
    set_defaults(pod)
    assert validate_new(pod) == []
