"""Resource lists, what a pod requests in all, and the quality of service that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from livevirt.kube.objects import conditions
from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.kube.objects.request import Object, status_of

Amounts = dict[str, Quantity]


def amounts(written: Mapping[str, str] | None) -> Amounts:
    """Read a resource list."""
    return {resource: parse(value) for resource, value in (written or {}).items()}


def written(values: Amounts) -> dict[str, str]:
    """Write a resource list, in the order of its names."""
    return {resource: str(values[resource]) for resource in sorted(values)}


def add(left: Amounts, right: Amounts) -> Amounts:
    """Return what both are together."""
    return _merge(left, right, lambda a, b: a + b)


def largest(lists: Iterable[Amounts]) -> Amounts:
    """Return the largest amount of each resource."""
    found: Amounts = {}
    for each in lists:
        found = _merge(found, each, max)
    return found


def subtract(left: Amounts, right: Amounts) -> Amounts:
    """Return what is left after taking `right` away; never less than nothing."""
    return {
        resource: max(value - right[resource], ZERO) if resource in right else value
        for resource, value in left.items()
    }


def masked(values: Amounts, resources: Iterable[str]) -> Amounts:
    """Return only the given resources, in the order of their names."""
    return {resource: values[resource] for resource in sorted(resources) if resource in values}


def over(values: Amounts, limits: Amounts) -> list[str]:
    """List the resources of which there is more than the limit."""
    return sorted(r for r, value in values.items() if r in limits and value > limits[r])


def round_up(written: dict[str, str] | None) -> None:
    """Round amounts up to thousandths, in place: nothing finer can be handed out."""
    for resource, value in (written or {}).items():
        amount = parse(value)
        if amount.nano % 10**6 and written is not None:
            written[resource] = str(Quantity.from_milli(amount.milli(), amount.format))


def _merge(
    left: Amounts, right: Amounts, combine: Callable[[Quantity, Quantity], Quantity]
) -> Amounts:
    both = {
        resource: combine(left[resource], value) if resource in left else value
        for resource, value in right.items()
    }
    return {**left, **both}


#: What a node has of CPUs that can be a pod's own; no pod names it.
EXCLUSIVE_CPUS = "livevirt.io/exclusive-cpus"
CPU_MANAGER = "kubevirt.io/cpumanager"  # label of nodes whose pods can have dedicated CPUs
YES = "true"
COMPUTE = ("cpu", "memory")
GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"


def containers(pod: Object) -> Iterator[Object]:
    """Yield the containers, then the init containers."""
    yield from pod["spec"].get("containers") or ()
    yield from pod["spec"].get("initContainers") or ()


def requests(pod: Object) -> Amounts:
    """Return what the pod asks for, by its spec."""
    return _total(pod, {c["name"]: _listed(c, "requests") for c in containers(pod)}, "requests")


def limits(pod: Object) -> Amounts:
    """Return what the pod may use at most, by its spec."""
    return _total(pod, {c["name"]: _listed(c, "limits") for c in containers(pod)}, "limits")


def held_requests(pod: Object) -> Amounts:
    """Return what the pod keeps from others: the most of what it asks for, was granted and has.

    A resize the node called infeasible will not happen, so what it asks for does not count.
    """
    return _total(pod, _held(pod, "requests"), "requests")


def held_limits(pod: Object) -> Amounts:
    """Return the limits to count: the larger of the wanted ones and those in force."""
    return _total(pod, _held(pod, "limits"), "limits")


def exclusive_cpus(pod: Object) -> int:
    """Return how many CPUs of its node the pod has for itself alone.

    As a kubelet's static CPU manager gives them: to containers of Guaranteed pods that ask for
    whole CPUs. Here only to pods that want a node with such a manager, as KubeVirt's do.
    """
    selector = pod["spec"].get("nodeSelector") or {}
    if selector.get(CPU_MANAGER) != YES or qos_class(pod) != GUARANTEED:
        return 0
    held = _held(pod, "requests")
    asked = [held[c["name"]].get("cpu") for c in pod["spec"].get("containers") or ()]
    return sum(cpu.value() for cpu in asked if cpu is not None and cpu.milli() % 1000 == 0)


def qos_class(pod: Object) -> str:
    """Return the pod's quality of service class."""
    own = pod["spec"].get("resources")
    asked = [own] if own else [c.get("resources") or {} for c in containers(pod)]
    wanted: Amounts = {}
    allowed: Amounts = {}
    all_limited = True
    for resources in asked:
        wanted = add(wanted, _positive(amounts(resources.get("requests"))))
        limited = _positive(amounts(resources.get("limits")))
        all_limited = all_limited and limited.keys() == set(COMPUTE)
        allowed = add(allowed, limited)
    if not wanted and not allowed:
        return BEST_EFFORT
    if all_limited and len(wanted) == len(allowed) and _equal(wanted, allowed):
        return GUARANTEED
    return BURSTABLE


def _listed(container: Object, side: str) -> Amounts:
    return amounts((container.get("resources") or {}).get(side))


def _held(pod: Object, side: str) -> dict[str, Amounts]:
    status = status_of(pod)
    seen = {
        each["name"]: each
        for field in ("containerStatuses", "initContainerStatuses")
        for each in status.get(field) or ()
    }
    pending = conditions.find(status.get("conditions"), "PodResizePending")
    infeasible = pending is not None and pending.get("reason") == "Infeasible"
    found = {}
    for container in containers(pod):
        reported = seen.get(container["name"], {})
        in_force = _listed(reported, side)
        granted = amounts(reported.get("allocatedResources")) if side == "requests" else {}
        known = [each for each in (granted, in_force) if each]
        wanted = [] if infeasible and known else [_listed(container, side)]
        found[container["name"]] = largest([*wanted, *known])
    return found


def _total(pod: Object, by_container: dict[str, Amounts], side: str) -> Amounts:
    """Containers run together; an init container runs alone, but for sidecars started before it."""
    spec = pod["spec"]
    together: Amounts = {}
    for container in spec.get("containers") or ():
        together = add(together, by_container[container["name"]])
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = by_container[container["name"]]
        if container.get("restartPolicy") == "Always":
            together, sidecars = add(together, own), add(sidecars, own)
            starting = largest([starting, sidecars])
        else:
            starting = largest([starting, add(sidecars, own)])
    total = largest([together, starting])
    total |= amounts((spec.get("resources") or {}).get(side))  # the pod's own figures win
    overhead = amounts(spec.get("overhead"))
    if side == "limits":  # overhead adds to limits that exist, it does not make one
        overhead = {resource: value for resource, value in overhead.items() if resource in total}
    return add(total, overhead)


def _positive(values: Amounts) -> Amounts:
    return {r: value for r, value in values.items() if r in COMPUTE and value.nano > 0}


def _equal(left: Amounts, right: Amounts) -> bool:
    return all(left.get(r, _NOTHING) == value for r, value in right.items())


_NOTHING = Quantity(-1)
