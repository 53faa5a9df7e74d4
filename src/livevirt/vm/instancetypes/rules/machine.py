"""A whole VM, expanded: what is handed on to all who need not know where a size came from."""

from __future__ import annotations

import msgspec

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.instancetypes.rules import preferences
from livevirt.vm.instancetypes.rules.expansion import Expanded, expand, unmet
from livevirt.vm.instancetypes.rules.matchers import INSTANCETYPE, PREFERENCE, ROLES, Lookup
from livevirt.vm.instancetypes.rules.resolution import Problem, Resolved, resolve

#: Annotations of the instance that name what it was made from, by role: namespaced and cluster.
_NAMED = {
    INSTANCETYPE: ("kubevirt.io/instancetype-name", "kubevirt.io/cluster-instancetype-name"),
    PREFERENCE: ("kubevirt.io/preference-name", "kubevirt.io/cluster-preference-name"),
}


_FIELDS = frozenset(role.field for role in ROLES)


_REFERENCES = frozenset(role.reference for role in ROLES)


class Machine(msgspec.Struct, frozen=True):
    """A VM as one without matchers would be written.

    With problems or errors it is as its owner wrote it. It shares parts with what it was made from:
    never change it.
    """

    vm: Object
    resolved: Resolved
    conflicts: tuple[str, ...] = ()
    errors: tuple[FieldError, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The matchers that lead nowhere."""
        return self.resolved.problems

    @property
    def usable(self) -> bool:
        """Whether the VM can be started, compared and planned with."""
        return not self.problems and not self.errors


def expand_vm(vm: Object, lookup: Lookup) -> Machine:
    """Return a VM with what its matchers name filled in; the matchers stay."""
    return expand_with(vm, resolve(vm, lookup))


def expand_with(vm: Object, resolved: Resolved) -> Machine:
    """Return a VM with what its matchers came to filled in."""
    if resolved.problems:
        return Machine(vm, resolved)
    spec, sizing = vm["spec"], resolved.sizing
    found = expand(spec["template"], sizing)
    if found.errors:
        return Machine(vm, resolved, found.conflicts, found.errors)
    if found.template is spec["template"]:
        return Machine(vm, resolved)
    whole = {**spec, "template": found.template}
    if spec.get("dataVolumeTemplates"):
        whole["dataVolumeTemplates"] = preferences.data_volume_templates(
            spec["dataVolumeTemplates"], sizing.preference
        )
    return Machine({**vm, "spec": whole}, resolved)


def unmet_requirements(vm: Object, machine: Machine) -> list[FieldError]:
    """List what an expanded VM has less of than its preference requires."""
    found = Expanded(machine.vm["spec"]["template"])
    return unmet(vm["spec"]["template"], found, machine.resolved.sizing)


def instance_annotations(vm: Object) -> dict[str, str]:
    """Return the annotations of an instance that name what its VM is sized by, as recorded."""
    found = {}
    for role, (namespaced, cluster) in _NAMED.items():
        used = status_of(vm).get(role.reference) or {}
        kind = role.kind(used.get("kind") or "")
        if used.get("name") and kind is not None:
            found[namespaced if kind.namespaced else cluster] = used["name"]
    return found


def detached(vm: Object) -> Object:
    """Return an expanded VM without matchers and the status fields about them."""
    made = {**vm, "spec": {k: v for k, v in vm["spec"].items() if k not in _FIELDS}}
    if "status" in vm:
        made["status"] = {k: v for k, v in vm["status"].items() if k not in _REFERENCES}
    return made


def sized_by(vm: Object) -> str:
    """Return the revisions a VM goes by as one text, empty if there are none."""
    status = status_of(vm)
    used = [(status.get(r.reference) or {}).get("controllerRevisionRef") or {} for r in ROLES]
    return ",".join(each.get("name") or "" for each in used) if any(used) else ""
