"""Instance types and preferences in either version, with nothing lost on the way.

The versions have the same fields. They differ in one thing: v1beta2 may leave `cpu.guest` and
`memory.guest` to the VM, v1beta1 requires them. What is left open shows as zero in v1beta1, which
is what its clients hold for it anyway, and zero becomes open again on the way back. No instance
type gives a guest nothing (admission sees to that), so zero can mean nothing else.
"""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects.quantity import QuantityError, parse
from livevirt.kube.objects.request import Object

OLD, STORED = "v1beta1", "v1beta2"
#: The sizes that may be left open: the part of the spec, and how v1beta1 shows an open one.
SIZES: tuple[tuple[str, Any], ...] = (("cpu", 0), ("memory", "0"))


def convert(version: str, obj: Object) -> Object:
    """Return an instance type with its sizes as a version writes them."""
    if not isinstance(obj.get("spec"), dict):
        return obj
    change = _with_zeros if version == OLD else _without_zeros
    return {**obj, "spec": change(obj["spec"])}


def is_open(part: str, value: Any) -> bool:
    """Return whether the size of a part (`cpu`, `memory`) is left to the VM, in either version."""
    if value is None or value == 0:
        return True
    try:
        return part == "memory" and parse(value).nano == 0
    except QuantityError:
        return False  # the schema has something to say about it


def _with_zeros(spec: Object) -> Object:
    shown = dict(spec)
    for part, zero in SIZES:
        inner = spec.get(part) or {}
        if inner.get("guest") is None:
            shown[part] = {"guest": zero, **{k: v for k, v in inner.items() if k != "guest"}}
    return shown


def _without_zeros(spec: Object) -> Object:
    kept = dict(spec)
    for part, _ in SIZES:
        inner = spec.get(part) or {}
        if is_open(part, inner.get("guest")):
            kept[part] = {name: value for name, value in inner.items() if name != "guest"}
    return kept
