"""Sums over resource lists: maps from a resource's name to an amount."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from livevirt.kube.objects.quantity import ZERO, Quantity, parse

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
