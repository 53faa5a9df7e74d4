"""The subresources start, stop and restart of a VirtualMachine."""

from __future__ import annotations

from livevirt.errors import BadRequest
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.spec.defaults import run_strategy
from livevirt.vm.subresources import call as subresources_call
from livevirt.vm.subresources.call import (
    Call,
    Options,
    decided,
    patch_vm,
    phase,
    running,
    set_strategy,
    shorten_grace,
)
from livevirt.vm.volumes import volume_migration

_UNDERWAY = "unable to complete request: stop/start already underway"


def start_request(*, paused: bool = False) -> Object:
    """Return the request to start the guest."""
    return {"action": "Start", "data": {"paused": "true"}} if paused else {"action": "Start"}


def stop_request(vmi: Object) -> Object:
    """Return the request to stop this guest."""
    return {"action": "Stop", "uid": vmi["metadata"]["uid"]}


async def ask(call: Call, vm: Object, *wanted: Object, dry_run: bool) -> None:
    """Put requests on the VM; a lone Stop takes the place of what waits."""
    waiting = (vm.get("status") or {}).get("stateChangeRequests") or []
    lone_stop = len(wanted) == 1 and wanted[0]["action"] == "Stop"
    if waiting and not lone_stop:
        raise call.refuse(kinds.VM, _UNDERWAY)
    if not dry_run:
        patch = {"status": {"stateChangeRequests": list(wanted)}}
        await patch_vm(call, vm, patch, subresource="status")


async def withdraw(call: Call, vm: Object) -> Object:
    """Cancel pending requests, if any; return the VM as it is then."""
    if not (vm.get("status") or {}).get("stateChangeRequests"):
        return vm
    patch = {"status": {"stateChangeRequests": None}}
    return await patch_vm(call, vm, patch, subresource="status")


async def start(call: Call) -> Answer:
    """Start the guest, by the run strategy or by a request to the controller."""
    asked = subresources_call.read(call, "StartOptions")
    return await decided(call, lambda: _start(call, asked))


async def _start(call: Call, asked: Options) -> Answer:
    vm, vmi = await call.vm(), await call.instance_or_none()
    if running(vmi):
        raise call.refuse(kinds.VM, "VM is already running")
    if conditions.is_true((vm.get("status") or {}).get("conditions"), "ManualRecoveryRequired"):
        raise call.refuse(kinds.VM, "VM recovery required")
    paused = bool(asked.given.get("paused"))
    wanted = start_request(paused=paused)
    strategy = run_strategy(vm["spec"])
    match strategy:
        case "Halted" if paused:
            await ask(call, vm, wanted, dry_run=asked.dry_run)
        case "Halted":
            if not asked.dry_run:
                await set_strategy(call, vm, "Always")
        case "RerunOnFailure" if phase(vmi) == "Failed":
            why = "RerunOnFailure does not support starting VM from failed state"
            raise call.refuse(kinds.VM, why)
        case "Manual" | "RerunOnFailure":
            ended = [stop_request(vmi)] if vmi is not None else []
            await ask(call, vm, *ended, wanted, dry_run=asked.dry_run)
        case _:
            raise call.refuse(kinds.VM, f"{strategy} does not support manual start requests")
    return Answer(202, b"", asked.warnings)


_NOT_RUNNING = "VM is not running"


async def stop(call: Call) -> Answer:
    """Stop the guest, by the run strategy or by a request to the controller."""
    asked = subresources_call.read(call, "StopOptions")
    grace = subresources_call.grace(asked, "gracePeriod")
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
            await ask(call, vm, stop_request(vmi), dry_run=asked.dry_run)
        case "Always" | "Once":
            if not asked.dry_run:
                # The start that a restart still waits for would let the VM run again.
                await set_strategy(call, await withdraw(call, vm), "Halted")
    if grace is not None and vmi is not None and running(vmi) and not asked.dry_run:
        await shorten_grace(call, vmi, grace)  # comes last: a guest that ends may be replaced
    return Answer(202, b"", asked.warnings)


def _shorter(grace: int | None, vmi: Object | None) -> bool:
    now = (vmi or {"spec": {}})["spec"].get("terminationGracePeriodSeconds")
    return grace is not None and (now is None or grace < now)


_AT_ONCE = 1  # second: a pod without any would be gone before its guest


async def restart(call: Call) -> Answer:
    """Ask the controller to stop this guest and to start another."""
    asked = subresources_call.read(call, "RestartOptions")
    grace = subresources_call.grace(asked, "gracePeriodSeconds")
    if grace:
        raise BadRequest("For force restart, only gracePeriod=0 is supported for now")
    return await decided(call, lambda: _restart(call, asked, force=grace == 0))


async def _restart(call: Call, asked: Options, *, force: bool) -> Answer:
    vm, vmi = await call.vm(), await call.instance_or_none()
    strategy = run_strategy(vm["spec"])
    if strategy in ("Halted", "Once"):
        # KubeVirt's own spelling, which clients look for.
        why = f"RunStategy {strategy} does not support manual restart requests"
        raise call.refuse(kinds.VM, why)
    if vmi is None or not running(vmi):
        raise call.refuse(kinds.VM, "VM is not running")
    if volume_migration.copying(vmi):
        raise call.refuse(kinds.VM, "VM volumes are being updated")
    wanted = (stop_request(vmi), start_request())
    await ask(call, vm, *wanted, dry_run=asked.dry_run)
    if force and not asked.dry_run:
        await shorten_grace(call, vmi, _AT_ONCE)
    return Answer(202, b"", asked.warnings)
