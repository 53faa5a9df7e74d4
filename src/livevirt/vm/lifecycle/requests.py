"""Requests to start and stop, kept in the VM's status until the controller has done them."""

from __future__ import annotations

from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.subresources.call import Call, patch_vm

_UNDERWAY = "unable to complete request: stop/start already underway"


def start(*, paused: bool = False) -> Object:
    """Return the request to start the guest."""
    return {"action": "Start", "data": {"paused": "true"}} if paused else {"action": "Start"}


def stop(vmi: Object) -> Object:
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
    """Take back what waits, if anything does; return the VM as it is then."""
    if not (vm.get("status") or {}).get("stateChangeRequests"):
        return vm
    patch = {"status": {"stateChangeRequests": None}}
    return await patch_vm(call, vm, patch, subresource="status")
