"""A VM with an instance type and a preference, as one that sets everything itself."""

from __future__ import annotations

import msgspec

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import preferences, requirements, sizes
from livevirt.vm.instancetypes.rules.conflicts import conflict_error, conflicts
from livevirt.vm.spec import disks
from livevirt.vm.spec.effective import without_nulls


class Sizing(msgspec.Struct, frozen=True):
    """What the matchers of a VM came to: the specs, in the stored version."""

    instancetype: Object | None = None
    preference: Object | None = None
    name: str = ""  # of the instance type
    drops_memory: bool = False  # the VM's own was only for the case that nothing is inferred


class Expanded(msgspec.Struct, frozen=True):
    """A template with all sizes filled in, and why it is not, if so.

    With conflicts or errors it is as its owner wrote it. It shares parts with what it was made
    from: never change it.
    """

    template: Object
    conflicts: tuple[str, ...] = ()  # paths in the VM, such as spec.template.spec.domain.cpu.cores
    errors: tuple[FieldError, ...] = ()  # conflicts are among them


def expand(template: Object, sizing: Sizing) -> Expanded:
    """Return the template with what an instance type and a preference add to it."""
    instancetype, preference = sizing.instancetype, sizing.preference
    written = template.get("spec") or {}
    custom = ((written.get("domain") or {}).get("cpu") or {}).get("guest") is not None
    if instancetype is None and preference is None and not custom:
        return Expanded(template)
    spec: Object = without_nulls(written)
    _complete(spec)
    if sizing.drops_memory and ((instancetype or {}).get("memory") or {}).get("guest") is not None:
        spec["domain"].pop("memory", None)
    whole = {**template, "spec": spec}
    errors = sizes.exclusive_errors(spec)
    clashes: list[str] = []
    if instancetype is not None:
        clashes = conflicts(whole, instancetype)
        errors += map(conflict_error, clashes)
        errors += sizes.missing_errors(spec, instancetype, sizing.name)
    if preference is not None and (problem := sizes.problem(preference)) is not None:
        field, why = problem
        errors.append(FieldError("spec.preference", "FieldValueInvalid", f"{field}: {why}"))
    if errors:
        return Expanded(template, tuple(clashes), tuple(errors))
    if instancetype is not None:
        sizes.apply(spec, instancetype)
    undivided = sizes.set_topology(spec, instancetype, sizes.topology_preference(preference))
    if undivided:
        return Expanded(template, (), tuple(undivided))
    if preference is not None:
        disks.add_missing(spec)  # the preference has a say in those as well
        preferences.apply(spec, preference)
    return Expanded(_annotated(whole, instancetype, preference))


def unmet(template: Object, expanded: Expanded, sizing: Sizing) -> list[FieldError]:
    """List what an expanded template has less of than its preference requires."""
    return requirements.unmet(
        template.get("spec") or {},
        expanded.template.get("spec") or {},
        sizing.instancetype,
        sizing.preference,
    )


def _complete(spec: Object) -> None:
    if "domain" not in spec:
        spec["domain"] = {}
    if "devices" not in spec["domain"]:
        spec["domain"]["devices"] = {}


def _annotated(template: Object, instancetype: Object | None, preference: Object | None) -> Object:
    """Return the template with the annotations of both; those of the VM come first."""
    wanted = {
        **((preference or {}).get("annotations") or {}),
        **((instancetype or {}).get("annotations") or {}),
    }
    if not wanted:
        return template
    metadata = template.get("metadata") or {}
    annotations = {**wanted, **(metadata.get("annotations") or {})}
    return {**template, "metadata": {**metadata, "annotations": annotations}}
