"""PUT …/virtualmachines/NAME/stop: end a VM's guest and keep it from coming back."""

from __future__ import annotations

from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle import requests
from livevirt.vm.spec.run_strategy import run_strategy
from livevirt.vm.subresources import options
from livevirt.vm.subresources.call import Call, decided, running, set_strategy, shorten_grace
from livevirt.vm.subresources.options import Options

_NOT_RUNNING = "VM is not running"


async def stop(call: Call) -> Answer:
    """Stop the guest, by the run strategy or by a request to the controller."""
    asked = options.read(call, "StopOptions")
    grace = options.grace(asked, "gracePeriod")
    return await decided(call, lambda: _stop(call, asked, grace))


async def _stop(call: Call, asked: Options, grace: int | None) -> Answer:
    vm, vmi = await call.vm(), await call.instance_or_none()
    strategy = run_strategy(vm["spec"])
    if strategy not in ("Always", "Once") and not running(vmi):
        raise call.refuse(kinds.VM, _NOT_RUNNING)
    if strategy == "Halted" and not _shorter(grace, vmi):
        why = "Halted only supports manual stop requests with a shorter graceperiod"
        raise call.refuse(kinds.VM, why)
    match strategy:
        case "Manual" | "RerunOnFailure":
            assert vmi is not None
            await requests.ask(call, vm, requests.stop(vmi), dry_run=asked.dry_run)
        case "Always" | "Once":
            if not asked.dry_run:
                # The start that a restart still waits for would let the VM run again.
                await set_strategy(call, await requests.withdraw(call, vm), "Halted")
    if grace is not None and vmi is not None and running(vmi) and not asked.dry_run:
        await shorten_grace(call, vmi, grace)  # comes last: a guest that ends may be replaced
    return Answer(202, b"", asked.warnings)


def _shorter(grace: int | None, vmi: Object | None) -> bool:
    now = (vmi or {"spec": {}})["spec"].get("terminationGracePeriodSeconds")
    return grace is not None and (now is None or grace < now)
