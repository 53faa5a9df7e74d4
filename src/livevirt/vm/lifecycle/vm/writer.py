"""Writes to a VirtualMachine, and the events about it."""

from __future__ import annotations

import contextlib
from typing import Any

from livevirt.errors import Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition, Failure
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm_admission import FINALIZER
from livevirt.vm.sizing import hot_change
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.summary import RESTART_REQUIRED, compact
from livevirt.vm.volumes import volume_migration


class VirtualMachineWriter:
    """Patches VMs; raises Conflict if one has changed since it was read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def patch(self, vm: Object, patch: Object, subresource: str = "") -> Object:
        """Change the VM as it was read; raises Conflict if it is another one by now."""
        meta = vm["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch["metadata"] = {**patch.get("metadata", {}), **version}
        return await self._client.patch(
            kinds.VM, meta["name"], meta["namespace"], patch, subresource=subresource
        )

    async def write_status(self, vm: Object, changed: dict[str, Any]) -> None:
        """Write the fields of the status that changed, if any did."""
        if not changed:
            return
        with contextlib.suppress(NotFound):
            await self.patch(vm, {"status": changed}, subresource="status")

    async def set_finalizer(self, vm: Object, *, present: bool) -> Object:
        """Add our finalizer or remove it; return the VM as it is then."""
        others = [f for f in vm["metadata"].get("finalizers") or () if f != FINALIZER]
        wanted = [*others, FINALIZER] if present else others
        try:
            return await self.patch(vm, {"metadata": {"finalizers": wanted}})
        except NotFound:
            return vm

    async def switch_to_always(self, vm: Object) -> None:
        """Let a halted VM run, in the field its owner chose."""
        running = {"running": True} if vm["spec"].get("running") is not None else {}
        await self.patch(vm, {"spec": running or {"runStrategy": "Always"}})

    async def check_current(self, vm: Object) -> None:
        """Raise Conflict unless the VM is stored as it was read."""
        meta = vm["metadata"]
        try:
            current = await self._client.get(kinds.VM, meta["name"], meta["namespace"])
        except NotFound:
            raise Conflict(f"VM {meta['name']} is gone") from None
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"VM {meta['name']} has changed since it was read")


def facts(vm: Object) -> dict[str, object]:
    """Return the fields that identify a VM in logs."""
    return {"vm": f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"}


SUCCESSFUL_CREATE = "SuccessfulCreate"
SUCCESSFUL_DELETE = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"
VOLUME_CREATED = "SuccessfulDataVolumeCreate"
VOLUME_FAILED = "FailedDataVolumeCreate"
LIVE_UPDATE = "LiveUpdate"
_BEGUN = (hot_change.WAITING, hot_change.UNPLUGGING)
_GOOD = (
    hot_change.WAITING, hot_change.PLUGGING, hot_change.UNPLUGGING, hot_change.ATTACHING,
    hot_change.DETACHING, volume_migration.COPYING, volume_migration.SWITCHING,
    volume_migration.CANCELLED,
)  # fmt: skip
_VOLUMES = (hot_change.VOLUME, volume_migration.VOLUMES_CHANGE)
_DONE = {hot_change.CPU: "VCPUsChanged", hot_change.MEMORY_TYPE: "MemoryChanged"}


def started(recorder: Recorder, vm: Object) -> None:
    """Record that the guest was started."""
    message = (
        "Started the virtual machine by creating the new virtual machine instance "
        f"{vm['metadata']['name']}"
    )
    recorder.event(vm, "Normal", SUCCESSFUL_CREATE, message)


def stopped(recorder: Recorder, vm: Object) -> None:
    """Record that the guest was asked to stop."""
    message = (
        "Stopped the virtual machine by deleting the virtual machine instance "
        f"{vm['metadata']['name']}"
    )
    recorder.event(vm, "Normal", SUCCESSFUL_DELETE, message)


def not_started(recorder: Recorder, vm: Object, why: str) -> None:
    """Record that the guest could not be started."""
    recorder.event(vm, "Warning", FAILED_CREATE, f"Error creating virtual machine instance: {why}")


def not_sized(recorder: Recorder, vm: Object, failure: Failure) -> None:
    """Record that the instance type or preference cannot be used."""
    recorder.event(vm, "Warning", failure.reason, failure.message)


def volume_created(recorder: Recorder, vm: Object, name: str) -> None:
    """Record that a DataVolume was created."""
    recorder.event(vm, "Normal", VOLUME_CREATED, f"Created DataVolume {name}")


def volume_failed(recorder: Recorder, vm: Object, name: str, why: str) -> None:
    """Record that a DataVolume could not be created."""
    recorder.event(vm, "Warning", VOLUME_FAILED, f"Error creating DataVolume {name}: {why}")


def rolled_out(recorder: Recorder, vm: Object, judgement: Judgement) -> None:
    """Record which fields the running guest is about to follow."""
    named = [
        f"{change.path} {compact(change.path, change.running)}"
        f" -> {compact(change.path, change.wanted)}"
        for change in judgement.changes
        if change.live and not change.deferred
    ]
    if named:
        message = f"The running guest follows: {', '.join(named[:5])}"
        recorder.event(vm, "Normal", LIVE_UPDATE, message)


def report(recorder: Recorder, vm: Object, vmi: Object | None, changed: dict[str, Any]) -> None:
    """Record what changed in the conditions that follow an edit."""
    if "conditions" not in changed:
        return
    before: list[Condition] | None = status_of(vm).get("conditions")
    after: list[Condition] | None = changed["conditions"]
    for type_ in (RESTART_REQUIRED, *hot_change.TYPES, *_VOLUMES):
        old, new = conditions.find(before, type_), conditions.find(after, type_)
        if new is not None and (old is None or old.get("reason") != new.get("reason")):
            if old is not None or new.get("reason") not in _BEGUN:  # LiveUpdate has reported that
                _record(recorder, vm, new)
        elif old is not None and new is None and vmi is not None:
            _record_end(recorder, vm, vmi, type_)


def _record(recorder: Recorder, vm: Object, condition: Condition) -> None:
    reason = condition.get("reason") or condition["type"]
    message = f"{condition['type']}: {condition.get('message', '')}"
    if reason in _GOOD:
        recorder.event(vm, "Normal", reason, message)
    else:
        recorder.event(vm, "Warning", reason, message)


def _record_end(recorder: Recorder, vm: Object, vmi: Object, type_: str) -> None:
    status = status_of(vmi)
    if type_ == RESTART_REQUIRED:
        recorder.event(vm, "Normal", "RestartNotRequired", "Nothing waits for a restart any more")
    elif type_ in _VOLUMES:
        recorder.event(vm, "Normal", "VolumesChanged", "Every volume is where it should be")
    elif status.get("phase") == "Running":
        recorder.event(vm, "Normal", _DONE[type_], hot_change.reached(vmi, type_))
