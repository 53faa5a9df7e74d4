"""A VM as its instance type and preference make it: admission, and the expand subresources."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial

from livevirt.errors import BadRequest, NotFound
from livevirt.kube.objects import refusals, structural
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, status_of
from livevirt.kube.objects.structural import shape
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.instancetypes.rules.expansion import Sizing, expand
from livevirt.vm.instancetypes.rules.machine import Machine, detached, expand_vm, unmet_requirements
from livevirt.vm.instancetypes.rules.matchers import (
    INSTANCETYPE,
    PREFERENCE,
    ROLES,
    Lookup,
    decide,
    matcher_errors,
)
from livevirt.vm.instancetypes.rules.resolution import Resolved
from livevirt.vm.instancetypes.rules.sizes import exclusive_errors
from livevirt.vm.kinds import support
from livevirt.vm.spec import defaults, disks
from livevirt.vm.spec.effective import without_nulls
from livevirt.vm.subresources.call import Call
from livevirt.vm.volumes.admission import wrong


@dataclass(frozen=True, slots=True)
class Sized:
    """A VM with all sizes filled in, or the VM as written if it cannot be expanded."""

    vm: Object
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    known: bool = True  # whether all that the matchers name is there
    resolved: Resolved = field(default_factory=Resolved)  # what that is


def size(vm: Object, lookup: Lookup) -> Sized:
    """Return a VM expanded. What it names may still be missing: that is a warning."""
    errors = matcher_errors(vm)
    if errors:
        return Sized(vm, errors, known=False)
    machine = expand_vm(vm, lookup)
    if machine.problems:
        return _incomplete(machine)
    errors = list(machine.errors) or unmet_requirements(vm, machine)
    return Sized(machine.vm, errors, _stale_pins(vm, machine), resolved=machine.resolved)


def is_resized(new: Object, old: Object) -> bool:
    """Return whether an edit changes the template or what the matchers name."""
    parts = ("template", *(role.field for role in ROLES))
    return any(new["spec"].get(part) != old["spec"].get(part) for part in parts)


def is_referred_anew(new: Object, old: Object) -> bool:
    """Return whether a write of the status changes what the VM goes by."""
    now, was = status_of(new), status_of(old)
    return any(now.get(role.reference) != was.get(role.reference) for role in ROLES)


def ignored(vm: Object, sized: Sized) -> list[str]:
    """Return a warning for all that an instance type sets and is not acted on, and a preference.

    What the VM sets itself is separated from it, field by field.
    """
    template, resolved = vm["spec"]["template"], sized.resolved
    written = set(support.unsupported(template.get("spec") or {}))
    added = _unsupported(sized.vm["spec"]["template"], written)
    if not added:
        return []
    alone = Sizing(resolved.sizing.instancetype, None, drops_memory=resolved.sizing.drops_memory)
    sizes = _unsupported(expand(template, alone).template, written)
    found = {INSTANCETYPE: sizes, PREFERENCE: [path for path in added if path not in sizes]}
    return [
        support.summed_up(f"{role.noun} {choice.name}", found[role])
        for role in ROLES
        if (choice := resolved.of(role)) is not None and found[role]
    ]


def _unsupported(template: Object, known: set[str]) -> list[str]:
    found = dict.fromkeys(support.unsupported(template.get("spec") or {}))
    return [path for path in found if path not in known]


def _incomplete(machine: Machine) -> Sized:
    errors = [wrong(each.field, each.message) for each in machine.problems if not each.passing]
    errors += exclusive_errors(machine.vm["spec"]["template"].get("spec") or {})
    warnings = [
        f"{each.field}: {each.message}; the VM cannot start until it is there"
        for each in machine.problems
        if each.passing
    ]
    return Sized(machine.vm, errors, warnings, known=False)


def _stale_pins(vm: Object, machine: Machine) -> list[str]:
    """Warn of revisions of something else, left behind when the name changed."""
    found = []
    for role in ROLES:
        pin = (vm["spec"].get(role.field) or {}).get("revisionName")
        choice = machine.resolved.of(role)
        if pin and choice is not None and choice.revision != pin:
            found.append(
                f"{role.path}.revisionName: {pin} is not a revision of {role.noun}"
                f" {choice.name}, so it is ignored"
            )
    return found


async def expand_spec(call: Call) -> Answer:
    """Answer with a stored VM, expanded."""
    vm = await call.vm()
    machine = await _machine(call, vm)
    if not machine.usable:
        raise call.refuse(kinds.VM, _why(machine))
    return Answer(200, await _whole(call, machine))


async def expand_vm_spec(call: Call) -> Answer:
    """Answer with the VM of the body, expanded."""
    vm = _received(call)
    if errors := matcher_errors(vm):
        raise BadRequest(", ".join(error.message for error in errors))
    machine = await _machine(call, vm)
    if not machine.usable:
        raise BadRequest(_why(machine))
    return Answer(200, await _whole(call, machine))


def _received(call: Call) -> Object:
    """Return the VM of the body, in the namespace of the request."""
    if call.body is None:
        raise BadRequest("empty request body")
    if not isinstance(call.body, dict):
        what = type(call.body).__name__
        raise BadRequest(f"Can not unmarshal Request body to struct, error: {what} is no object")
    vm, _ = shape(kinds.VM, kinds.VM.version, call.body)
    errors = structural.validate(kinds.VM.schema(), vm)
    if errors or call.body.get("kind") != kinds.VM.kind:
        raise BadRequest(
            "Object is not a valid VirtualMachine", details={"causes": refusals.causes(errors)}
        )
    if vm["metadata"].get("namespace", call.namespace) != call.namespace:
        raise BadRequest(f"VM namespace must be empty or {call.namespace}")
    meta = {"name": "", **vm["metadata"], "namespace": call.namespace}
    return {**vm, "metadata": meta}


async def _machine(call: Call, vm: Object) -> Machine:
    return await decide(partial(expand_vm, vm), partial(_fetch, call))


async def _fetch(call: Call, kind: Kind, name: str, namespace: str) -> Object | None:
    with contextlib.suppress(NotFound):
        return await call.client.get(kind, name, namespace)
    return None


async def _whole(call: Call, machine: Machine) -> Object:
    """Return the answer; a VM that names nothing comes back as it is."""
    spec = machine.vm["spec"]
    if not any(spec.get(role.field) for role in ROLES):
        return machine.vm
    vm = detached(machine.vm)
    template = dict(spec["template"])
    expanded = template["spec"] = without_nulls(template["spec"])
    disks.add_missing(expanded)
    kubevirt = await _fetch(call, kinds.KUBEVIRT, settings.NAME, settings.NAMESPACE)
    defaults.attach_default(expanded, settings.read(kubevirt).network_binding)
    vm["spec"]["template"] = template
    return vm


def _why(machine: Machine) -> str:
    """Return why a VM cannot be expanded, in one line."""
    if machine.conflicts:
        return f"VM field(s) {', '.join(machine.conflicts)} conflicts with selected instance type"
    found = [*(each.message for each in machine.problems), *(e.message for e in machine.errors)]
    return ", ".join(found)
