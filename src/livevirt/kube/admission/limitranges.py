"""LimitRange objects: bounds that must not contradict each other."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import quantity, resource_name
from livevirt.kube.objects.field_error import FieldError, duplicate, forbidden, invalid, required
from livevirt.kube.objects.quantity import ZERO, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.resource_lists import amounts, round_up
from livevirt.kube.objects.review import Review, Rules

TYPES = frozenset({"Pod", "Container", "PersistentVolumeClaim"})
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# (smaller, larger, the list to blame, words): the smaller may not be above the larger.
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
    for smaller, larger, blamed, words in _ORDER:
        low, high = item.get(smaller) or {}, item.get(larger) or {}
        found += [
            invalid(
                f"{path}.{blamed}[{resource}]",
                (item.get(blamed) or {})[resource],
                words.format(low[resource], high[resource]),
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
