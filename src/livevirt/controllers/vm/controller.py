"""Brings every VirtualMachine towards its spec."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from livevirt.admission.vm import FINALIZER
from livevirt.api import conditions, registry
from livevirt.api.request import Object
from livevirt.client.interface import Client
from livevirt.control.cache import Change
from livevirt.control.clock import Now
from livevirt.control.controller import DONE, Controller, Result
from livevirt.control.events import Recorder
from livevirt.control.informer import Informer
from livevirt.control.key import Key, owner_key
from livevirt.controllers.vm import events, template, view
from livevirt.controllers.vm import status as statuses
from livevirt.controllers.vm.plan import (
    Adopt,
    CreateInstance,
    CreateVolume,
    DeleteInstance,
    Hold,
    LetGo,
    Step,
    SwitchToAlways,
    Wait,
    plan,
)
from livevirt.errors import AlreadyExists, ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

GATHER = 0.1  # seconds in which an instance's changes are taken together: a start makes many
WORKERS = 4


class VirtualMachines:
    """Watches VMs, their instances and their DataVolumes."""

    def __init__(
        self,
        client: Client,
        now: Now,
        recorder: Recorder,
        machines: Informer,
        instances: Informer,
        volumes: Informer,
    ) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._machines, self._instances, self._volumes = machines, instances, volumes
        self._controller = Controller("vm", self.reconcile, workers=WORKERS)
        self._controller.watches(machines)
        self._controller.watches(volumes, owner_key(registry.VM))
        self._controller.watches(instances, lambda _: ())  # woken by `_note`
        instances.on_change(self._note)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _note(self, change: Change) -> None:
        """Wake the VM of an instance's name, at once if there is something to do for it."""
        status = (change.new or {}).get("status") or {}
        ready = conditions.find(status.get("conditions"), "Ready") or {}
        if status.get("phase") == "Running" and ready.get("reason") == "GuestNotRunning":
            return  # the VMI controller is about to say more
        urgent = change.new is None or status.get("phase") in view.FINAL
        self._controller.queue.add_after(change.key, 0 if urgent else GATHER)

    async def reconcile(self, key: Key) -> Result:
        """Bring one VM towards its spec; call it at any time, any number of times."""
        vm, vmi = self._machines.get(key), self._instances.get(key)
        if vm is None:
            return DONE
        seen = self._seen(vm, vmi)
        steps = plan(seen)
        if any(isinstance(step, CreateInstance) for step in steps):
            # What was read may be old; starting a guest by mistake would be seen.
            await self._check_current(vm)
            return await self._start(vm, vmi, seen, steps)
        # The status comes first: it counts a failed start, which the next step forgets.
        await self._write_status(vm, statuses.changes(vm, vmi, seen))
        if vmi is not None and not steps:
            await self._note_generation(vm, vmi, seen)
        return await self._follow(vm, steps)

    def _seen(self, vm: Object, vmi: Object | None) -> view.Seen:
        machine, namespace = view.machine(vm), vm["metadata"]["namespace"]
        volumes = {}
        for name in machine.volumes:
            found = self._volumes.get(Key(namespace, name))
            if found is not None:
                volumes[name] = (found.get("status") or {}).get("phase") or "Pending"
        return view.Seen(machine, view.guest(vmi, vm), self._now(), volumes)

    async def _start(
        self, vm: Object, vmi: Object | None, seen: view.Seen, steps: list[Step]
    ) -> Result:
        try:
            return await self._follow(vm, steps)  # the new instance wakes us to write the status
        except Conflict:
            raise
        except ApiError as error:
            events.not_started(self._recorder, vm, error.message)
            problem = f"{events.FAILED_CREATE}: {error.message}"
            await self._write_status(vm, statuses.changes(vm, vmi, seen, problem))
            raise

    async def _follow(self, vm: Object, steps: list[Step]) -> Result:
        for step in steps:
            match step:
                case Hold():
                    vm = await self._set_finalizers(vm, held=True)
                case LetGo():
                    await self._set_finalizers(vm, held=False)
                case Adopt(uid):
                    await self._adopt(vm, uid)
                case CreateVolume(name):
                    await self._create_volume(vm, name)
                case CreateInstance(paused):
                    await self._create_instance(vm, paused)
                case DeleteInstance(uid):
                    await self._delete_instance(vm, uid)
                case SwitchToAlways():
                    await self._patch(vm, {"spec": _running(vm["spec"])})
                case Wait(until):
                    return Result(after=until - self._now())
        return DONE

    # ------------------------------------------------------------ steps

    async def _create_instance(self, vm: Object, paused: bool) -> None:
        namespace = vm["metadata"]["namespace"]
        with contextlib.suppress(AlreadyExists):  # this generation has been started before
            await self._client.create(registry.REVISION, template.revision_of(vm), namespace)
        instance = template.instance_of(vm, paused=paused)
        try:
            created = await self._client.create(registry.VMI, instance, namespace)
        except AlreadyExists:
            if await self._has_instance(vm):
                return  # made before, and not seen yet
            raise
        log.info("instance created", extra=_facts(vm) | {"uid": created["metadata"]["uid"]})
        events.started(self._recorder, vm)
        if vm["metadata"]["generation"] > 1:
            await self._forget_starts(vm)

    async def _has_instance(self, vm: Object) -> bool:
        meta = vm["metadata"]
        try:
            found = await self._client.get(registry.VMI, meta["name"], meta["namespace"])
        except NotFound:
            return False
        guest = view.guest(found, vm)
        return guest is not None and guest.owner == "this"

    async def _forget_starts(self, vm: Object) -> None:
        """Delete the records of earlier starts."""
        namespace = vm["metadata"]["namespace"]
        prefix, kept = template.revision_prefix(vm), template.revision_name(vm)
        page = await self._client.list(registry.REVISION, namespace)
        for revision in page.items:
            meta = revision["metadata"]
            if meta["name"].startswith(prefix) and meta["name"] != kept:
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        registry.REVISION, meta["name"], namespace, uid=meta["uid"]
                    )

    async def _note_generation(self, vm: Object, vmi: Object, seen: view.Seen) -> None:
        """Record in a running instance that the VM's newest generation asks for the same guest."""
        generation = str(vm["metadata"]["generation"])
        noted = (vmi["metadata"].get("annotations") or {}).get(statuses.GENERATION)
        name = (vmi.get("status") or {}).get("virtualMachineRevisionName")
        alive = seen.guest is not None and not (seen.guest.deleting or seen.guest.final)
        if noted == generation or not name or not alive or seen.vm.deleting:
            return
        try:
            started = await self._client.get(registry.REVISION, name, vm["metadata"]["namespace"])
        except NotFound:
            return
        if started["data"]["spec"].get("template") != vm["spec"]["template"]:
            return  # what has changed since then waits for a restart
        meta = vmi["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        change = {**version, "annotations": {statuses.GENERATION: generation}}
        with contextlib.suppress(NotFound):
            await self._client.patch(
                registry.VMI, meta["name"], meta["namespace"], {"metadata": change}
            )

    async def _delete_instance(self, vm: Object, uid: str) -> None:
        meta = vm["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.delete(registry.VMI, meta["name"], meta["namespace"], uid=uid)
            log.info("instance deleted", extra=_facts(vm) | {"uid": uid})
            events.stopped(self._recorder, vm)

    async def _create_volume(self, vm: Object, name: str) -> None:
        volume = template.data_volume_of(vm, name)
        try:
            await self._client.create(registry.DATA_VOLUME, volume, vm["metadata"]["namespace"])
        except AlreadyExists:
            return  # it will show up
        except ApiError as error:
            events.volume_failed(self._recorder, vm, name, error.message)
            raise
        events.volume_created(self._recorder, vm, name)

    async def _adopt(self, vm: Object, uid: str) -> None:
        meta = vm["metadata"]
        found = self._instances.get(Key(meta["namespace"], meta["name"]))
        if found is None or found["metadata"]["uid"] != uid:
            return
        owners = found["metadata"].get("ownerReferences") or []
        change = {
            "uid": uid,
            "resourceVersion": found["metadata"]["resourceVersion"],
            "ownerReferences": [*owners, template.owned_by(registry.VM, vm)],
        }
        await self._client.patch(
            registry.VMI, meta["name"], meta["namespace"], {"metadata": change}
        )

    async def _set_finalizers(self, vm: Object, *, held: bool) -> Object:
        others = [f for f in vm["metadata"].get("finalizers") or () if f != FINALIZER]
        wanted = [*others, FINALIZER] if held else others
        try:
            return await self._patch(vm, {"metadata": {"finalizers": wanted}})
        except NotFound:
            return vm

    # ------------------------------------------------------------ writes

    async def _write_status(self, vm: Object, changed: dict[str, Any]) -> None:
        if not changed:
            return
        with contextlib.suppress(NotFound):
            await self._patch(vm, {"status": changed}, subresource="status")

    async def _patch(self, vm: Object, patch: Object, subresource: str = "") -> Object:
        """Change the VM as it was read; raises Conflict if it is another one by now."""
        meta = vm["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch["metadata"] = {**patch.get("metadata", {}), **version}
        return await self._client.patch(
            registry.VM, meta["name"], meta["namespace"], patch, subresource=subresource
        )

    async def _check_current(self, vm: Object) -> None:
        meta = vm["metadata"]
        try:
            current = await self._client.get(registry.VM, meta["name"], meta["namespace"])
        except NotFound:
            raise Conflict(f"VM {meta['name']} is gone") from None
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"VM {meta['name']} has changed since it was read")


def _running(spec: Object) -> Object:
    """Return the patch that lets a halted VM run, in the words its owner chose."""
    return {"running": True} if spec.get("running") is not None else {"runStrategy": "Always"}


def _facts(vm: Object) -> dict[str, object]:
    return {"vm": f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"}
