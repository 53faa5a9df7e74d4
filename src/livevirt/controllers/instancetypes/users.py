"""Which VMs a change of an instance type or preference matters to."""

from __future__ import annotations

from collections.abc import Iterable

from livevirt.api.request import Object
from livevirt.control.key import Key, key_of
from livevirt.rollout.instancetypes.matchers import ROLES


def users(machines: Iterable[Object], obj: Object) -> list[Key]:
    """Return the VMs that name an object, or were sized by it without naming it."""
    return [key_of(vm) for vm in machines if _names(vm, obj)]


def _names(vm: Object, obj: Object) -> bool:
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace") or ""
    for role in ROLES:
        if vm["spec"].get(role.field) is None:
            continue
        recorded = (vm.get("status") or {}).get(role.reference) or {}
        for given in (vm["spec"][role.field], recorded):
            kind = role.kind(given.get("kind") or "")
            if given.get("name") != name or kind is None or kind.kind != obj["kind"]:
                continue
            if not kind.namespaced or vm["metadata"]["namespace"] == namespace:
                return True
    return False
