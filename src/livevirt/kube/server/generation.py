"""metadata.generation: which kinds count it and when it grows."""

from __future__ import annotations

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object

_BUILT_IN = (core.POD.resource,)
_NOT_SPEC = ("kind", "apiVersion", "metadata", "status")


def counted(kind: Kind) -> bool:
    """Return whether objects of this kind carry a generation."""
    return kind.custom or kind.resource in _BUILT_IN


def bump(kind: Kind, new: Object, old: Object) -> None:
    """Give `new` its generation: one more than `old`'s when what the user asks for changed."""
    if not counted(kind):
        return
    current = old["metadata"].get("generation", 0)
    new["metadata"]["generation"] = current + 1 if _spec(kind, new) != _spec(kind, old) else current


def _spec(kind: Kind, obj: Object) -> Object:
    # A custom resource without a status subresource counts its status as part of what is asked.
    left_out = _NOT_SPEC if kind.has_status or not kind.custom else _NOT_SPEC[:3]
    return {name: value for name, value in obj.items() if name not in left_out}
