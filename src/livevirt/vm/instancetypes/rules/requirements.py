"""The least a VM must have for its preference, with KubeVirt's messages."""

from __future__ import annotations

from math import prod

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.conflicts import CPU, MEMORY
from livevirt.vm.instancetypes.rules.sizes import ANY, SPREAD, topology_preference
from livevirt.vm.spec import defaults, sizes
from livevirt.vm.spec.instance import Instance, read
from livevirt.vm.verdict.comparison import TEMPLATE

TYPE = "spec.instancetype"
_PREFIX = "failure checking preference requirements: "


def unmet(
    written: Object, expanded: Object, instancetype: Object | None, preference: Object | None
) -> list[FieldError]:
    """List what an expanded spec has too little of; `written` is the spec as its owner has it.

    One error at most: CPU, then memory, then the architecture.
    """
    required = (preference or {}).get("requirements") or {}
    if not required or preference is None:
        return []
    instance = read(expanded)
    found = (
        _cpu(required, written, instance, instancetype, preference)
        or _memory(required, instance, instancetype)
        or _architecture(required, instance)
    )
    return [] if found is None else [found]


def _cpu(
    required: Object,
    written: Object,
    instance: Instance,
    instancetype: Object | None,
    preference: Object,
) -> FieldError | None:
    least = (required.get("cpu") or {}).get("guest") or 0
    if not least:
        return None
    owned = ((instancetype or {}).get("cpu") or {}).get("guest")
    if owned is not None:
        if owned >= least:
            return None
        return _error(
            TYPE,
            f"insufficient CPU resources of {owned} vCPU provided by instance type,"
            f" preference requires {least} vCPU",
        )
    said = ((written.get("domain") or {}).get("cpu") or {}).get("guest")
    if said is not None:  # the preference itself spreads these, so it cannot mind how
        if said >= least:
            return None
        return _error(
            f"{CPU}.guest",
            f"insufficient CPU resources of {said} vCPU provided by VirtualMachine,"
            f" preference requires {least} vCPU",
        )
    return _shape(least, instance, preference)


def _shape(least: int, instance: Instance, preference: Object) -> FieldError | None:
    """A VM without an instance type must have its vCPUs where the preference wants them."""
    wanted = topology_preference(preference)
    topology = sizes.topology(instance.domain.cpu, instance.domain.resources)
    provided = prod(getattr(topology, field) for field in wanted.fields)
    if provided >= least:
        return None
    shown = {ANY: "cores, sockets and threads", SPREAD: wanted.across}.get(
        wanted.topology, wanted.topology
    )
    return _error(
        ", ".join(f"{CPU}.{field}" for field in wanted.fields),
        f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine,"
        f" preference requires {least} vCPU provided as {shown}",
    )


def _memory(required: Object, instance: Instance, instancetype: Object | None) -> FieldError | None:
    asked = (required.get("memory") or {}).get("guest")
    if asked is None:
        return None
    least: Quantity = parse(asked)
    owned = ((instancetype or {}).get("memory") or {}).get("guest")
    provided = sizes.guest(instance) or ZERO
    if provided >= least:
        return None
    field, whose = (TYPE, "instance type") if owned is not None else (MEMORY, "VirtualMachine")
    return _error(
        field,
        f"insufficient Memory resources of {provided} provided by {whose},"
        f" preference requires {least}",
    )


def _architecture(required: Object, instance: Instance) -> FieldError | None:
    wanted = required.get("architecture")
    has = instance.architecture or defaults.ARCHITECTURE
    if not wanted or has == wanted:
        return None
    return _error(
        f"{TEMPLATE}.architecture",
        f"preference requires architecture {wanted} but {has} is being requested",
    )


def _error(field: str, message: str) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"{_PREFIX}{message}")
