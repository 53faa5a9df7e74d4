"""Small checks that list field errors, shared by the rules of every kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from livevirt.kube.objects import names
from livevirt.kube.objects.field_error import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from livevirt.kube.objects.quantity import parse

NOT_NEGATIVE = "must be greater than or equal to 0"
POSITIVE = "must be greater than zero"
INTEGER = "must be an integer"
IMMUTABLE = "field is immutable"
MAX_INT32 = 2**31 - 1

_PORT_NAME = re.compile(r"[-a-z0-9]*[a-z][-a-z0-9]*")


def named(
    path: str, name: str, rule: Callable[[str], list[str]], *, needed: bool = True
) -> list[FieldError]:
    """What is wrong with a name: missing (where needed) or against its rule."""
    if not name:
        return [required(path)] if needed else []
    return [invalid(path, name, why) for why in rule(name)]


def one_of(path: str, value: str, allowed: Collection[str]) -> list[FieldError]:
    """A value that is missing or not among the allowed ones."""
    if not value:
        return [required(path)]
    return [] if value in allowed else [not_supported(path, value, sorted(allowed))]


def optional_one_of(path: str, value: str | None, allowed: Collection[str]) -> list[FieldError]:
    """A value that is given and not among the allowed ones."""
    return [] if value is None else one_of(path, value, allowed)


def not_negative(path: str, number: int | None) -> list[FieldError]:
    """A number below zero."""
    return [invalid(path, number, NOT_NEGATIVE)] if number is not None and number < 0 else []


def between(path: str, number: int, low: int, high: int) -> list[FieldError]:
    """A number outside of a range."""
    if low <= number <= high:
        return []
    return [invalid(path, number, f"must be between {low} and {high}, inclusive")]


def port(path: str, number: int) -> list[FieldError]:
    """A number that is no TCP or UDP port."""
    return between(path, number, 1, 65535)


def port_name(path: str, name: str) -> list[FieldError]:
    """A name no port can have: at most 15 of `a-z0-9-`, one of them a letter."""
    found = []
    if len(name) > 15:
        found.append("must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    elif not _PORT_NAME.fullmatch(name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return [invalid(path, name, why) for why in found]


def any_port(path: str, value: int | str) -> list[FieldError]:
    """A port given by number or by name."""
    return port_name(path, value) if isinstance(value, str) else port(path, value)


def mode(path: str, bits: int | None) -> list[FieldError]:
    """File permissions beyond 0777."""
    if bits is None or 0 <= bits <= 0o777:
        return []
    return [invalid(path, bits, "must be a number between 0 and 0777 (octal), both inclusive")]


def relative_path(path: str, value: str) -> list[FieldError]:
    """A path that is absolute or climbs out of where it starts."""
    found = [invalid(path, value, "must be a relative path")] if value.startswith("/") else []
    return found + no_climbing(path, value)


def no_climbing(path: str, value: str) -> list[FieldError]:
    """A path with a `..` segment."""
    return [invalid(path, value, "must not contain '..'")] if ".." in value.split("/") else []


def quantity(path: str, resource: str, value: str) -> list[FieldError]:
    """An amount below zero, or a fraction of something that is counted."""
    amount = parse(value)
    found = [invalid(path, value, NOT_NEGATIVE)] if amount.nano < 0 else []
    if is_counted(resource) and amount.milli() % 1000:
        found.append(invalid(path, value, INTEGER))
    return found


def quantities(path: str, amounts: Mapping[str, str] | None) -> list[FieldError]:
    """The amounts of a resource list that cannot be; each is named by its key."""
    return [
        error
        for resource, value in sorted((amounts or {}).items())
        for error in quantity(f"{path}[{resource}]", resource, value)
    ]


def immutable(path: str, new: Any, old: Any) -> list[FieldError]:
    """A value that differs from the stored one."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def single_source(
    path: str, given: Mapping[str, Any], sources: Collection[str]
) -> list[FieldError]:
    """Exactly one of the volume types must be given."""
    chosen = [source for source in sources if given.get(source) is not None]
    if not chosen:
        return [required(path, "must specify a volume type")]
    return [
        forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
        for extra in chosen[1:]
    ]


# ---------------------------------------------------------------- resource names

_COUNTED = frozenset(
    [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ]
)
_COMPUTE = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = (
    _COUNTED
    | _COMPUTE
    | {"storage", "requests.storage", "limits.storage"}
    | {f"{side}.{name}" for side in ("requests", "limits") for name in _COMPUTE}
)
HUGE_PAGES = "hugepages-"


def is_counted(resource: str) -> bool:
    """Whether the resource comes in whole pieces."""
    return resource in _COUNTED or is_extended(resource)


def is_extended(resource: str) -> bool:
    """Whether it is a device-like resource of another domain, such as `example.com/gpu`."""
    if is_native(resource) or resource.startswith("requests."):
        return False
    return not names.validate_qualified_name(f"requests.{resource}")


def is_native(resource: str) -> bool:
    """Whether Kubernetes itself defines the resource."""
    return "/" not in resource or "kubernetes.io/" in resource


def resource_name(path: str, name: str) -> list[FieldError]:
    """A name that is neither a standard resource nor `domain/name`."""
    found = [invalid(path, name, why) for why in names.validate_qualified_name(name)]
    if not found and "/" not in name and not is_standard(name):
        found.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return found


def container_resource_name(path: str, name: str) -> list[FieldError]:
    """A resource no container can ask for."""
    found = resource_name(path, name)
    if "/" not in name:
        if name not in _COMPUTE and not name.startswith(HUGE_PAGES):
            found.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        found.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return found


def quota_resource_name(path: str, name: str) -> list[FieldError]:
    """A resource no quota can limit."""
    found = resource_name(path, name)
    if "/" not in name and (not is_standard(name) or name == "storage"):
        found.append(invalid(path, name, "must be a standard resource for quota"))
    return found


def is_standard(name: str) -> bool:
    """Whether Kubernetes gives the plain name a meaning."""
    return name in _STANDARD or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))
