"""How much of which quota an object uses, and which quotas are about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from livevirt.kube.objects import field_checks, pod_resources
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.core import CLAIM, CONFIG_MAP, POD, QUOTA, SECRET, SERVICE
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.pod_resources import Amounts
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.storage import class_of, size
from livevirt.kube.objects.times import parse_time

POD_SCOPES = frozenset(
    [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    ]
)
# Of these, a quota makes every container state what it needs.
MUST_BE_STATED = frozenset(
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"]
)
_COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
_BY_PLURAL = (CONFIG_MAP, SECRET, SERVICE, QUOTA)  # counted under their plain names too
_CLASS_MARK = ".storageclass.storage.k8s.io/"
_ONE = Quantity.from_int(1)


def usage(kind: Kind, obj: Object, now: datetime) -> Amounts:
    """Return what the object takes of each resource a quota can name."""
    used: Amounts = {f"count/{kind.resource}": _ONE}
    if kind == POD:
        if is_counted(obj, now):
            used |= compute_usage(pod_resources.held_requests(obj), pod_resources.held_limits(obj))
            used["pods"] = _ONE
    elif kind == CLAIM:
        used |= _claim_usage(obj)
    elif kind in _BY_PLURAL:
        used[kind.plural] = _ONE
    return used


def tracks(kind: Kind, resource: str) -> bool:
    """Whether objects of this kind can use the resource."""
    if resource == f"count/{kind.resource}":
        return True
    if kind == POD:
        plain = resource.removeprefix("requests.").removeprefix("limits.")
        return (
            resource == "pods"
            or plain in _COMPUTE
            or plain.startswith(field_checks.HUGE_PAGES)
            or (resource.startswith("requests.") and field_checks.is_extended(plain))
        )
    if kind == CLAIM:
        own = resource.rpartition(_CLASS_MARK)[2]
        return own in ("persistentvolumeclaims", "requests.storage")
    return kind in _BY_PLURAL and resource == kind.plural


def is_counted(pod: Object, now: datetime) -> bool:
    """Whether a pod still holds what it asked for: not once it ended or should have."""
    if status_of(pod).get("phase") in FINAL:
        return False
    meta = pod["metadata"]
    deadline, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if deadline is None or grace is None:
        return True
    return now <= parse_time(deadline) + timedelta(seconds=grace)


def compute_usage(requests: Amounts, limits: Amounts) -> Amounts:
    """Return requests and limits under the names quotas have for them."""
    used: Amounts = {}
    for resource, value in requests.items():
        if resource in _COMPUTE or resource.startswith(field_checks.HUGE_PAGES):
            used[resource] = used[f"requests.{resource}"] = value
        elif field_checks.is_extended(resource):
            used[f"requests.{resource}"] = value
    for resource, value in limits.items():
        if resource in _COMPUTE:
            used[f"limits.{resource}"] = value
    return used


def _claim_usage(claim: Object) -> Amounts:
    granted = (status_of(claim).get("allocatedResources") or {}).get("storage")
    storage = max(size(claim), parse(granted)) if granted else size(claim)
    used = {"persistentvolumeclaims": _ONE, "requests.storage": storage}
    if class_name := class_of(claim):
        used |= {f"{class_name}{_CLASS_MARK}{name}": value for name, value in used.items()}
    return used


# ---------------------------------------------------------------- scopes


class Selector(NamedTuple):
    """One condition of a quota on what it is about."""

    scope: str
    operator: str
    values: tuple[str, ...] = ()


def selectors(quota: Object) -> Iterator[Selector]:
    """Yield the conditions of a quota, in either spelling."""
    spec = quota.get("spec") or {}
    for scope in spec.get("scopes") or ():
        yield Selector(scope, "Exists")
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        yield Selector(term["scopeName"], term["operator"], tuple(term.get("values") or ()))


def in_scope(quota: Object, kind: Kind, obj: Object) -> bool:
    """Whether a quota's scopes let it be about the object."""
    return all(_matches(selector, kind, obj) for selector in selectors(quota))


def scope_tracks(scope: str, resource: str) -> bool:
    """Whether a quota with this scope may name the resource."""
    if not field_checks.is_standard(resource) or scope not in POD_SCOPES:
        return True
    return resource == "pods" or (scope != "BestEffort" and resource in MUST_BE_STATED)


def _matches(selector: Selector, kind: Kind, obj: Object) -> bool:
    spec = obj.get("spec") or {}
    if kind == CLAIM and selector.scope == "VolumeAttributesClass":
        return _matches_name(selector, spec.get("volumeAttributesClassName") or "")
    if kind != POD:
        return False
    match selector.scope:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return pod_resources.qos_class(obj) == pod_resources.BEST_EFFORT
        case "NotBestEffort":
            return pod_resources.qos_class(obj) != pod_resources.BEST_EFFORT
        case "PriorityClass":
            return _matches_name(selector, spec.get("priorityClassName", ""))
        case "CrossNamespacePodAffinity":
            return any(
                term.get("namespaces") or term.get("namespaceSelector") is not None
                for term in _affinity_terms(spec.get("affinity") or {})
            )
        case _:
            return False


def _matches_name(selector: Selector, name: str) -> bool:
    match selector.operator:
        case "In":
            return bool(name) and name in selector.values
        case "NotIn":
            return name not in selector.values
        case "Exists":
            return bool(name)
        case _:
            return not name


def _affinity_terms(affinity: Object) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        yield from terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for each in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield each.get("podAffinityTerm") or {}
