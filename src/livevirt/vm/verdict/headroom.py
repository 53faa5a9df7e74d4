"""Where a guest's pod could grow or a second one run: nodes, quotas and limit ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from livevirt.kube.objects import conditions, field_checks, pod_resources
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.pod_resources import Amounts, amounts
from livevirt.kube.objects.quantity import ZERO, Quantity
from livevirt.kube.objects.quota_usage import MUST_BE_STATED, compute_usage, in_scope
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.selector import LabelRequirement
from livevirt.vm.config import settings as config
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import defaults, instance, placement_validation, resources
from livevirt.vm.spec.effective import filled
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict import growth
from livevirt.vm.verdict.verdict_inputs import Bound

_FORBIDDING = ("NoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = {
    "In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": "gt", "Lt": "lt",
}  # fmt: skip


def takes(node: Object, spec: Object) -> bool:
    """Return whether the scheduler could place the pod of an instance with that spec on a node."""
    labels = node["metadata"].get("labels") or {}
    wanted = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": spec.get("architecture", "amd64"),
        **placement_validation.needed(spec),
        **(spec.get("nodeSelector") or {}),
    }
    return (
        all(_tolerated(taint, spec) for taint in _taints(node))
        and all(labels.get(key) == value for key, value in wanted.items())
        and _chosen(node["metadata"]["name"], labels, spec)
    )


def _taints(node: Object) -> list[Object]:
    """Return the taints that keep pods away from a node, cordoned or not ready included."""
    spec = node.get("spec") or {}
    found = [each for each in spec.get("taints") or () if each["effect"] in _FORBIDDING]
    if spec.get("unschedulable"):
        found.append(_keep_away("unschedulable"))
    ready = conditions.find(status_of(node).get("conditions"), "Ready") or {}
    silent = {"False": "not-ready", "Unknown": "unreachable"}.get(ready.get("status", ""))
    return [*found, _keep_away(silent)] if silent else found


def _keep_away(why: str) -> Object:
    return {"key": f"node.kubernetes.io/{why}", "effect": "NoSchedule"}


def _tolerated(taint: Object, spec: Object) -> bool:
    return any(
        (each.get("effect") or taint["effect"]) == taint["effect"]
        and (each.get("key") or taint["key"]) == taint["key"]
        and (
            each.get("operator") == "Exists"
            or (each.get("value") or "") == (taint.get("value") or "")
        )
        for each in spec.get("tolerations") or ()
    )


def _chosen(name: str, labels: Mapping[str, str], spec: Object) -> bool:
    """Return whether one of the required node affinity terms matches."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if (required := affinity.get(_REQUIRED)) is None:
        return True
    return any(
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and _all(term.get("matchExpressions"), labels)
        and _all(term.get("matchFields"), {"metadata.name": name})
        for term in required.get("nodeSelectorTerms") or ()
    )


def _all(expressions: Any, values: Mapping[str, str]) -> bool:
    return all(
        LabelRequirement(
            each["key"], _OPERATORS[each["operator"]], tuple(each.get("values") or ())
        ).matches(values)
        for each in expressions or ()
    )


_CONTAINER = "compute"  # the one that grows with the guest
_MOST_REASONS = 3


def asked_by(vmi: Object, namespace: Namespace) -> Amounts:
    """Return what the container of an instance's pod asks for, keyed as quotas are."""
    found = resources.compute(instance.read(vmi["spec"]), config.recorded(vmi), namespace)
    return growth.amounts(found)


# What is left is counted from what the instance asks for, not from what its pod has: a pod that
# has not grown yet owes what its instance was promised, and one that has not shrunk yet need not
# grow to be as large again.


def on_node(own: Object, asked: Amounts, node: Object | None, others: Share) -> Iterator[Bound]:
    """Yield what the node leaves, once all that it has granted to others is taken."""
    if node is None:
        return
    allocatable, beside = amounts(status_of(node).get("allocatable")), _beside(own)
    left = {
        name: allocatable[name] - used - beside.get(name, ZERO) - asked.get(name, ZERO)
        for name, used in (("cpu", others.cpu), ("memory", others.memory))
        if name in allocatable
    }
    if left:
        yield Bound("Node", node["metadata"]["name"], left)


def under_quotas(own: Object, asked: Amounts, quotas: Iterable[Object]) -> Iterator[Bound]:
    """Yield what each quota that counts the pod leaves of CPU and memory."""
    beside, stated = _beside(own), _stated(own)
    held = compute_usage(pod_resources.held_requests(own), pod_resources.held_limits(own))
    for quota in quotas:
        status = status_of(quota)
        hard, used = amounts(status.get("hard")), amounts(status.get("used"))
        left = {}
        for name in sorted(MUST_BE_STATED & hard.keys() & used.keys()):
            if name not in stated:  # no resize passes that leaves it out, and it cannot be added
                left[name] = -asked.get(name, ZERO)
                continue
            free = max(hard[name] - used[name], ZERO)  # one that is overdrawn lets the rest be
            needed = beside.get(name, ZERO) + asked.get(name, stated[name])
            left[name] = free + held[name] - needed
        if left and in_scope(quota, POD, own):
            yield Bound("ResourceQuota", quota["metadata"]["name"], left)


# What is left for a pod that the guest could migrate to is counted from nothing.


def on_others(
    own: Object, vmi: Object, asked: Amounts, nodes: Iterable[tuple[Object, Share]]
) -> Iterator[Bound]:
    """Yield what each node that the guest could migrate to leaves for its container."""
    here, beside = own["spec"].get("nodeName"), _beside(own)
    exclusive = bool(pod_resources.exclusive_cpus(own))
    for node, taken in nodes:
        name = node["metadata"]["name"]
        if name != here and takes(node, vmi["spec"]):
            yield _for_new(node, taken, asked, beside, exclusive=exclusive)


def for_start(
    spec: Object, asked: Amounts, nodes: Iterable[tuple[Object, Share]]
) -> Iterator[Bound]:
    """Yield what each node that takes a guest of that spec leaves for it."""
    exclusive = bool((spec["domain"].get("cpu") or {}).get("dedicatedCpuPlacement"))
    for node, taken in nodes:
        if takes(node, spec):
            yield _for_new(node, taken, asked, {}, exclusive=exclusive)


def placement(vm: Object, settings: Config, nodes: Sequence[tuple[Object, Share]]) -> Object:
    """Return the nodes with room for the guest of an expanded VM, and why none if so."""
    machine = status_of(vm).get("machine")  # of its last start
    template = vm["spec"]["template"].get("spec") or {}
    spec = filled(defaults.kept(template, machine), "", settings)
    asked = growth.amounts(resources.compute(instance.read(spec), settings.defaults))
    open_ = list(for_start(spec, asked, nodes))
    short = {bound.name: text for bound, text in growth.shortages(asked, tuple(open_))}
    room = [bound.name for bound in open_ if bound.name not in short]
    return {"nodes": room, "message": "" if room else _no_placement(list(short.values()))}


def _no_placement(reasons: list[str]) -> str:
    if not reasons:
        return "there is no node that takes it"
    more = len(reasons) - _MOST_REASONS
    named = [*reasons[:_MOST_REASONS], *([f"{more} more"] if more > 0 else [])]
    return f"no node has room: {'; '.join(named)}"


def _for_new(
    node: Object, taken: Share, asked: Amounts, beside: Amounts, *, exclusive: bool
) -> Bound:
    """Return what a node leaves for the container of a pod that is not there yet."""
    allocatable = amounts(status_of(node).get("allocatable"))
    left = {
        resource: allocatable[resource] - used - beside.get(resource, ZERO)
        for resource, used in (("cpu", taken.cpu), ("memory", taken.memory))
        if resource in allocatable
    }
    if exclusive:
        own_cpus = allocatable.get(pod_resources.EXCLUSIVE_CPUS, ZERO)
        left["cpu"] = min(left.get("cpu", own_cpus), own_cpus)
    pages = (page for page in asked if page.startswith(field_checks.HUGE_PAGES))
    left |= {page: allocatable.get(page, ZERO) for page in pages}
    return Bound("Node", node["metadata"]["name"], left)


def for_second(own: Object, quotas: Iterable[Object]) -> Iterator[Bound]:
    """Yield what each quota that counts the pod leaves for the container of another like it."""
    beside = _beside(own)
    for quota in quotas:
        status = status_of(quota)
        hard, used = amounts(status.get("hard")), amounts(status.get("used"))
        free = {name: hard[name] - used[name] for name in hard.keys() & used.keys()}
        left = {
            name: free[name] - beside.get(name, ZERO)
            for name in sorted(free)
            if name in MUST_BE_STATED or field_checks.HUGE_PAGES in name
        }
        if counts := [free[name] for name in ("pods", "count/pods") if name in free]:
            left["pods"] = min(counts)
        if left and in_scope(quota, POD, own):
            yield Bound("ResourceQuota", quota["metadata"]["name"], left)


def under_limit_ranges(own: Object, asked: Amounts, ranges: Iterable[Object]) -> Iterator[Bound]:
    """Yield what each limit range leaves to the container and to its pod, and lets it give back."""
    for each in ranges:
        left: Amounts = {}
        spare: Amounts = {}
        for item in (each.get("spec") or {}).get("limits") or ():
            for name, most in _most(item, own, asked):
                here = most - asked.get(name, ZERO)
                left[name] = min(left.get(name, here), here)
            for name, least in _least(item, own, asked):
                here = asked.get(name, ZERO) - least
                spare[name] = min(spare.get(name, here), here)
        if left or spare:
            yield Bound("LimitRange", each["metadata"]["name"], left, spare)


def _most(item: Object, own: Object, asked: Amounts) -> Iterator[tuple[str, Quantity]]:
    """Yield how much the container may have at most by one item of a limit range."""
    match item.get("type"):
        case "Container":
            yield from _most_of_container(item, own, asked)
        case "Pod":
            yield from _most_of_pod(item, own, asked)


def _most_of_container(item: Object, own: Object, asked: Amounts) -> Iterator[tuple[str, Quantity]]:
    stated = _stated(own)
    for resource, most in _compute(item.get("max")):
        yield f"requests.{resource}", most
        if (limit := f"limits.{resource}") in asked and limit in stated:
            yield limit, most
    for resource, _ in _compute(item.get("default")):
        # A limit that was filled in stays as it is, and a request may not exceed it.
        if (limit := f"limits.{resource}") in stated and limit not in asked:
            yield f"requests.{resource}", stated[limit]


def _most_of_pod(item: Object, own: Object, asked: Amounts) -> Iterator[tuple[str, Quantity]]:
    stated, beside = _stated(own), _beside(own)
    for resource, most in _compute(item.get("max")):
        request, limit = f"requests.{resource}", f"limits.{resource}"
        yield request, most - beside.get(request, ZERO)
        if limit not in beside and limit not in stated:
            yield limit, -most  # a pod with no limit at all may have any, which is too much
        elif limit in asked and limit in stated:
            yield limit, most - beside.get(limit, ZERO)


def _least(item: Object, own: Object, asked: Amounts) -> Iterator[tuple[str, Quantity]]:
    """Yield how much the container must have at least by one item of a limit range."""
    if item.get("type") not in ("Container", "Pod"):
        return
    whole = item["type"] == "Pod"
    stated, beside = _stated(own), _beside(own) if whole else {}
    for resource, least in _compute(item.get("min")):
        request, limit = f"requests.{resource}", f"limits.{resource}"
        yield request, least - beside.get(request, ZERO)
        for other in () if whole else _others(own):  # one that has too little blocks the pod
            if (missing := least - amounts(other.get("requests")).get(resource, ZERO)) > ZERO:
                yield request, asked.get(request, ZERO) + missing
        if limit in asked and limit in stated:
            yield limit, least - beside.get(limit, ZERO)
    for resource, ratio in _compute(item.get("maxLimitRequestRatio")):
        request, limit = f"requests.{resource}", f"limits.{resource}"
        # A limit that was filled in stays as it is, however little is asked for.
        if limit in stated and limit not in asked:
            most = stated[limit] + beside.get(limit, ZERO)
            least = Quantity(-(-most.nano * 1000 // ratio.milli()), most.format)
            yield request, least - beside.get(request, ZERO)


def _compute(listed: Object | None) -> Iterator[tuple[str, Quantity]]:
    found = amounts(listed)
    return ((name, found[name]) for name in pod_resources.COMPUTE if name in found)


def _stated(pod: Object) -> Amounts:
    """Return what the guest's container states, keyed as quotas are."""
    found = [c for c in pod["spec"]["containers"] if c["name"] == _CONTAINER]
    stated = (found[0].get("resources") or {}) if found else {}
    return compute_usage(amounts(stated.get("requests")), amounts(stated.get("limits")))


def _others(pod: Object) -> Iterator[Object]:
    """Yield the resources of each container but the guest's."""
    for container in pod_resources.containers(pod):
        if container["name"] != _CONTAINER:
            yield container.get("resources") or {}


def _beside(pod: Object) -> Amounts:
    """Return what the pod states beside the guest's container, keyed as quotas are."""
    own = _stated(pod)
    whole = compute_usage(pod_resources.requests(pod), pod_resources.limits(pod))
    return {name: amount - own.get(name, ZERO) for name, amount in whole.items()}
