"""The owner's requests and limits that are in force, and the size of the guest they are for.

At the start they are those of the record of the start. An edit that only resizes the pod replaces
them while the guest runs; the instance records what it replaced them with, because the amounts in
its spec follow the guest's size from then on.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec

from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.spec import instance
from livevirt.vm.spec.instance import Instance

RECORD = "livevirt.io/resource-baseline"  # the annotation of an instance
SIDES, NAMES = ("requests", "limits"), ("cpu", "memory")


class Baseline(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests and limits, and the size they were written for.

    `removed` are the limits that the pod must lose, which it cannot on the node it was on then.
    """

    resources: dict[str, Any]
    at_start: dict[str, Any]  # what they were; those that are back at that count from the start
    sockets: int = 0  # 0: as at the start
    guest: str = ""  # empty: as at the start
    removed: tuple[str, ...] = ()
    node: str = ""

    def text(self) -> str:
        """Return the text of the annotation."""
        return msgspec.json.encode(self).decode()


def recorded(vmi: Object) -> Baseline | None:
    """Return the baseline that an instance records, None if it is that of its start."""
    text = (vmi["metadata"].get("annotations") or {}).get(RECORD)
    return msgspec.json.decode(text, type=Baseline) if text else None


def in_force(spec: Object, vmi: Object) -> Object:
    """Return the spec of a start with the requests and limits that are in force now."""
    found = recorded(vmi)
    return spec if found is None else _with(spec, found)


def view(started: Object, found: Baseline | None) -> Instance:
    """Return the instance that requests and limits are for, given the filled spec of the start."""
    if found is None:
        return instance.read(started)
    spec = _with(started, found)
    domain = spec["domain"]
    if found.sockets:
        domain["cpu"] = {**(domain.get("cpu") or {}), "sockets": found.sockets}
    if found.guest:
        domain["memory"] = {**(domain.get("memory") or {}), "guest": found.guest}
    return instance.read(spec)


def replaced(
    vmi: Object, started: Object, wanted: Object, changed: Set[tuple[str, str]]
) -> Baseline:
    """Return the baseline of an instance that gets other requests and limits.

    `changed` names them as side and resource; `started` and `wanted` are filled specs, the former
    with those that are in force now.
    """
    old, new = _amounts(started), _amounts(wanted)
    before = recorded(vmi) or Baseline(old, old)
    resources = {side: dict(old[side]) for side in SIDES}
    for side, name in changed:
        resources[side].pop(name, None)
        if name in new[side]:
            resources[side][name] = new[side][name]
    names = {name for _, name in changed}
    back = {name for name in NAMES if _same(resources, before.at_start, name)}
    sockets = wanted["domain"]["cpu"]["sockets"] if "cpu" in names else before.sockets
    guest = str(wanted["domain"]["memory"]["guest"]) if "memory" in names else before.guest
    limits, node = resources["limits"], status_of(vmi).get("nodeName") or ""
    removed = {name for name in old["limits"] if name not in limits}
    if node == before.node:
        removed |= {name for name in before.removed if name not in limits}
    return Baseline(
        resources,
        before.at_start,
        0 if "cpu" in back else sockets,
        "" if "memory" in back else guest,
        tuple(sorted(removed)),
        node if removed else "",
    )


def left_behind(vmi: Object, container: Object) -> list[str]:
    """Return the limits that a container has and must lose, which takes another pod."""
    found = recorded(vmi)
    if found is None or found.node != status_of(vmi).get("nodeName"):
        return []
    return [name for name in found.removed if name in (container.get("limits") or {})]


def _with(spec: Object, found: Baseline) -> Object:
    domain = dict(spec.get("domain") or {})
    kept = domain.pop("resources", None) or {}
    sides = {
        side: {
            **{
                name: amount for name, amount in (kept.get(side) or {}).items() if name not in NAMES
            },
            **found.resources[side],
        }
        for side in SIDES
    }
    return {**spec, "domain": {**domain, "resources": {**kept, **sides}}}


def _amounts(spec: Object) -> dict[str, dict[str, Any]]:
    """Return the requests and limits of a spec that a resize changes."""
    found = (spec.get("domain") or {}).get("resources") or {}
    return {
        side: {name: given[name] for name in NAMES if name in given}
        for side in SIDES
        if (given := found.get(side) or {}) is not None
    }


def _same(one: Object, other: Object, name: str) -> bool:
    """Return whether request and limit of a resource are the same amounts."""
    for side in SIDES:
        amounts = [each[side].get(name) for each in (one, other)]
        if (amounts[0] is None) != (amounts[1] is None):
            return False
        if amounts[0] is not None and parse(amounts[0]) != parse(amounts[1]):
            return False
    return True
