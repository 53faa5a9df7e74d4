"""Which VMs a change of an instance type or preference matters to."""

from __future__ import annotations

from collections.abc import Iterable

from livevirt.kube.control.cache import Change
from livevirt.kube.control.key import Key, key_of
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.matchers import ROLES


def users(machines: Iterable[Object], obj: Object) -> list[Key]:
    """Return the VMs that name an object, or were sized by it without naming it."""
    return [key_of(vm) for vm in machines if _names(vm, obj)]


def goes_by(vm: Object) -> list[Key]:
    """Return the revisions a VM goes by: those it pins and those its status names."""
    found = []
    for role in ROLES:
        matcher = vm["spec"].get(role.field)
        if matcher is None:
            continue
        recorded = (vm.get("status") or {}).get(role.reference) or {}
        in_use = (recorded.get("controllerRevisionRef") or {}).get("name")
        for name in (matcher.get("revisionName"), in_use):
            if name:
                found.append(Key(vm["metadata"].get("namespace") or "", name))
    return found


def is_missed(change: Change, vm: Object) -> bool:
    """Tell whether a VM must be looked at since a revision it goes by has come or gone.

    One that is there is of no news to a VM, unless that has no size for want of it.
    """
    if change.old is not None and change.new is not None:
        return False  # what it holds never changes
    listed = (vm.get("status") or {}).get("conditions")
    return change.new is None or conditions.is_true(listed, "Failure")


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
