"""PUT …/virtualmachines/NAME/start: let a VM run."""

from __future__ import annotations

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Answer
from livevirt.vm import kinds
from livevirt.vm.lifecycle import requests
from livevirt.vm.spec.run_strategy import run_strategy
from livevirt.vm.subresources import options
from livevirt.vm.subresources.call import Call, decided, phase, running, set_strategy
from livevirt.vm.subresources.options import Options


async def start(call: Call) -> Answer:
    """Start the guest, by the run strategy or by a request to the controller."""
    asked = options.read(call, "StartOptions")
    return await decided(call, lambda: _start(call, asked))


async def _start(call: Call, asked: Options) -> Answer:
    vm, vmi = await call.vm(), await call.instance_or_none()
    if running(vmi):
        raise call.refuse(kinds.VM, "VM is already running")
    if conditions.is_true((vm.get("status") or {}).get("conditions"), "ManualRecoveryRequired"):
        raise call.refuse(kinds.VM, "VM recovery required")
    paused = bool(asked.given.get("paused"))
    wanted = requests.start(paused=paused)
    strategy = run_strategy(vm["spec"])
    match strategy:
        case "Halted" if paused:
            await requests.ask(call, vm, wanted, dry_run=asked.dry_run)
        case "Halted":
            if not asked.dry_run:
                await set_strategy(call, vm, "Always")
        case "RerunOnFailure" if phase(vmi) == "Failed":
            why = "RerunOnFailure does not support starting VM from failed state"
            raise call.refuse(kinds.VM, why)
        case "Manual" | "RerunOnFailure":
            ended = [requests.stop(vmi)] if vmi is not None else []
            await requests.ask(call, vm, *ended, wanted, dry_run=asked.dry_run)
        case _:
            raise call.refuse(kinds.VM, f"{strategy} does not support manual start requests")
    return Answer(202, b"", asked.warnings)
