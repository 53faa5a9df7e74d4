"""GET …/virtualmachines/NAME/expand-spec and PUT …/expand-vm-spec: a VM that says all itself.

What a VM is not given by its instance type or preference stays out: a default of the cluster, or an
identity made from the VM's uid, would be carried to the next machine the answer is used for.
"""

from __future__ import annotations

import contextlib
from functools import partial

from livevirt.errors import BadRequest, NotFound
from livevirt.kube.objects import refusals, structural
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object
from livevirt.kube.objects.structural import shape
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.instancetypes.rules.machine import Machine, detached, expand_vm
from livevirt.vm.instancetypes.rules.matchers import ROLES, decide, matcher_errors
from livevirt.vm.spec import defaults, disks
from livevirt.vm.spec.effective import without_nulls
from livevirt.vm.subresources.call import Call


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
