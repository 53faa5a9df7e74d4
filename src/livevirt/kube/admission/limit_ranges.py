"""LimitRanges: bounds that must not contradict each other, and their effect on pods and claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal

from livevirt.kube.objects import names, pod_resources, refusals
from livevirt.kube.objects.core import CLAIM, LIMIT_RANGE, POD
from livevirt.kube.objects.field_checks import quantity, resource_name
from livevirt.kube.objects.field_error import FieldError, duplicate, forbidden, invalid, required
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.pod_resources import Amounts, amounts, round_up
from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

# ---------------------------------------------------------------- the objects

TYPES = frozenset({"Pod", "Container", "PersistentVolumeClaim"})
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (smaller, larger, the list to blame, message): the smaller may not be above the larger.
_ORDER = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)


class LimitRangeRules(Rules):
    """What a LimitRange must be."""

    def default(self, obj: Object) -> None:
        """Let containers default to the maximum, and requests to the limits or the minimum."""
        for item in (obj.get("spec") or {}).get("limits") or ():
            for field in _LISTS:
                round_up(item.get(field))
            if item.get("type") != "Container":
                continue
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {
                **(item.get("min") or {}),
                **limits,
                **(item.get("defaultRequest") or {}),
            }
            for field, filled in (("default", limits), ("defaultRequest", requests)):
                if filled:
                    item[field] = filled

    def validate(self, review: Review) -> list[FieldError]:
        """List bad types, resources and amounts, and bounds in the wrong order."""
        found: list[FieldError] = []
        seen: set[str] = set()
        for at, item in enumerate(review.new["spec"].get("limits") or ()):
            path = f"spec.limits[{at}]"
            type_ = item.get("type", "")
            found += _type_errors(f"{path}.type", type_)
            if type_ in seen:
                found.append(duplicate(f"{path}.type", type_))
            seen.add(type_)
            found += _item_errors(path, item)
        return found


def _type_errors(path: str, type_: str) -> list[FieldError]:
    found = [invalid(path, type_, why) for why in names.validate_qualified_name(type_)]
    if not found and "/" not in type_ and type_ not in TYPES:
        found.append(invalid(path, type_, "must be a standard limit type or fully qualified"))
    return found


def _item_errors(path: str, item: Object) -> list[FieldError]:
    found: list[FieldError] = []
    for field in _LISTS:
        for resource, value in sorted((item.get(field) or {}).items()):
            at = f"{path}.{field}[{resource}]"
            found += resource_name(at, resource) + quantity(at, resource, value)
    if item.get("type") == "Pod":
        found += [
            forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
            for field in ("default", "defaultRequest")
            if item.get(field)
        ]
    if item.get("type") == "PersistentVolumeClaim" and not any(
        "storage" in (item.get(field) or {}) for field in ("min", "max")
    ):
        why = "either minimum or maximum storage value is required, but neither was provided"
        found.append(required(path, why))
    for smaller, larger, blamed, message in _ORDER:
        low, high = item.get(smaller) or {}, item.get(larger) or {}
        found += [
            invalid(
                f"{path}.{blamed}[{resource}]",
                (item.get(blamed) or {})[resource],
                message.format(low[resource], high[resource]),
            )
            for resource in sorted(low.keys() & high.keys())
            if parse(low[resource]) > parse(high[resource])
        ]
    return found + _ratio_errors(path, item)


def _ratio_errors(path: str, item: Object) -> list[FieldError]:
    found = []
    low, high = amounts(item.get("min")), amounts(item.get("max"))
    for resource, value in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        at, ratio = f"{path}.maxLimitRequestRatio[{resource}]", parse(value)
        if ratio.milli() < 1000:
            found.append(invalid(at, value, f"ratio {value} is less than 1"))
        if low.get(resource, ZERO) and resource in high:
            widest = high[resource].nano / low[resource].nano
            if ratio.milli() > widest * 1000:
                why = f"ratio {value} is greater than max/min = {widest:.6f}"
                found.append(invalid(at, value, why))
    return found


# ---------------------------------------------------------------- their effect

ANNOTATION = "kubernetes.io/limit-ranger"


def apply(review: Review, limit_ranges: Iterable[Object]) -> None:
    """Give a pod that is created or resized what the namespace's limits say it left out."""
    if review.kind == POD and (review.old is None or review.subresource == "resize"):
        fill_in(review.new, limit_ranges)


def check(review: Review) -> None:
    """Refuse a pod or claim outside the limits of its namespace, naming every breach."""
    obj = review.new
    if "deletionTimestamp" in obj["metadata"]:
        return  # what is going need not fit
    namespace = obj["metadata"].get("namespace", "")
    breaches = find_breaches(review.kind, obj, review.read.list(LIMIT_RANGE, namespace))
    if breaches:
        why = breaches[0] if len(breaches) == 1 else f"[{', '.join(breaches)}]"
        raise refusals.forbidden(review.kind, obj["metadata"].get("name", ""), why)


def fill_in(pod: Object, limit_ranges: Iterable[Object]) -> None:
    """Give containers without requests or limits those of the namespace, with a note of it."""
    notes: list[str] = []
    for item in _items(limit_ranges, "Container"):
        for field, label in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(field) or ():
                notes += _fill_in_container(container, item, label)
    if notes:
        meta = pod["metadata"]
        note = f"LimitRanger plugin set: {'; '.join(notes)}"
        meta["annotations"] = {**(meta.get("annotations") or {}), ANNOTATION: note}


def find_breaches(kind: Kind, obj: Object, limit_ranges: Iterable[Object]) -> list[str]:
    """Name each limit the pod or claim breaks, once."""
    ranges = list(limit_ranges)
    if kind == POD:
        return list(dict.fromkeys(_pod_breaches(obj, ranges)))
    if kind == CLAIM:
        return list(dict.fromkeys(_claim_breaches(obj, ranges)))
    return []


def _items(limit_ranges: Iterable[Object], type_: str) -> Iterator[Object]:
    for limit_range in limit_ranges:
        for item in (limit_range.get("spec") or {}).get("limits") or ():
            if item.get("type") == type_:
                yield item


def _fill_in_container(container: Object, item: Object, label: str) -> list[str]:
    resources = container.setdefault("resources", {})
    notes = []
    for side, source, noun in (
        ("requests", "defaultRequest", "request"),
        ("limits", "default", "limit"),
    ):
        given = resources.get(side) or {}
        added = {r: v for r, v in (item.get(source) or {}).items() if r not in given}
        if added:
            resources[side] = {**given, **added}
            notes.append(f"{', '.join(sorted(added))} {noun} for {label} {container['name']}")
    return notes


def _pod_breaches(pod: Object, ranges: list[Object]) -> Iterator[str]:
    for item in _items(ranges, "Container"):
        for container in pod_resources.containers(pod):
            resources = container.get("resources") or {}
            requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
            yield from _breaches(item, requests, limits)
    for item in _items(ranges, "Pod"):
        yield from _breaches(item, pod_resources.requests(pod), pod_resources.limits(pod))


def _breaches(item: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    type_ = item["type"]
    for resource, bound in sorted((item.get("min") or {}).items()):
        yield from _below(type_, resource, bound, requests.get(resource), limits.get(resource))
    for resource, bound in sorted((item.get("max") or {}).items()):
        yield from _above(type_, resource, bound, requests.get(resource), limits.get(resource))
    for resource, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        yield from _too_wide(type_, resource, bound, requests.get(resource), limits.get(resource))


def _below(
    type_: str, resource: str, bound: str, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    head = f"minimum {resource} usage per {type_} is {bound}"
    if request is None:
        yield f"{head}.  No request is specified"
    elif request < parse(bound):
        yield f"{head}, but request is {request}"
    elif limit is not None and limit < parse(bound):
        yield f"{head}, but limit is {limit}"


def _above(
    type_: str, resource: str, bound: str, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    head = f"maximum {resource} usage per {type_} is {bound}"
    if limit is None:
        yield f"{head}.  No limit is specified"
    elif limit > parse(bound):
        yield f"{head}, but limit is {limit}"
    elif request is not None and request > parse(bound):
        yield f"{head}, but request is {request}"


def _too_wide(
    type_: str, resource: str, bound: str, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    head = f"{resource} max limit to request ratio per {type_} is {bound}"
    if not request:
        yield f"{head}, but no request is specified or request is 0"
    elif not limit:
        yield f"{head}, but no limit is specified or limit is 0"
    elif limit.nano * 1000 > parse(bound).milli() * request.nano:
        ratio = Decimal(limit.nano) / request.nano  # as large as it may be, unlike a float
        yield f"{head}, but provided ratio is {ratio:.6f}"


def _claim_breaches(claim: Object, ranges: list[Object]) -> Iterator[str]:
    asked = amounts((claim["spec"].get("resources") or {}).get("requests"))
    for item in _items(ranges, "PersistentVolumeClaim"):
        for resource, bound in sorted((item.get("min") or {}).items()):
            yield from _below(item["type"], resource, bound, asked.get(resource), None)
        for resource, bound in sorted((item.get("max") or {}).items()):
            head = f"maximum {resource} usage per PersistentVolumeClaim is {bound}"
            request = asked.get(resource)
            if request is None:
                yield f"{head}.  No request is specified"
            elif request > parse(bound):
                yield f"{head}, but request is {request}"
