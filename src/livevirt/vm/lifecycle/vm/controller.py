"""Brings every VirtualMachine towards its spec."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from livevirt.errors import AlreadyExists, ApiError, Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.key import Key, key_of, owner_key
from livevirt.kube.control.refused import Refused
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.instancetypes.rules.machine import sized_by
from livevirt.vm.instancetypes.rules.matchers import ROLES
from livevirt.vm.instancetypes.rules.policy import reference_policy
from livevirt.vm.instancetypes.sizing import KINDS, Sized, Sizes
from livevirt.vm.instancetypes.users import goes_by, is_missed, users
from livevirt.vm.lifecycle.vm import copies, events, template, view
from livevirt.vm.lifecycle.vm import status as statuses
from livevirt.vm.lifecycle.vm.plan import (
    BESIDE,
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
from livevirt.vm.lifecycle.vm_admission import FINALIZER
from livevirt.vm.sizing import hot_change
from livevirt.vm.verdict import edit
from livevirt.vm.verdict.judgement import Judgement
from livevirt.vm.verdict.live_patch import live_patch, settles
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.volumes import force_detach, volume_migration
from livevirt.vm.volumes.volume_patch import FORCE_DETACH, merged, volume_patch

log = logging.getLogger(__name__)

GATHER = 0.1  # seconds in which an instance's changes are taken together: a start makes many
WORKERS = 4
_GOES_BY = "goes by"  # the index of VMs by their revisions


class VirtualMachines:
    """Watches VMs, their instances and DataVolumes, and the settings of the cluster."""

    def __init__(self, client: Client, now: Now, recorder: Recorder, informers: Informers) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        machines = self._machines = informers.of(kinds.VM)
        instances = self._instances = informers.of(kinds.VMI)
        volumes = self._volumes = informers.of(kinds.DATA_VOLUME)
        settings = self._settings = informers.of(kinds.KUBEVIRT)
        self._sizes = Sizes(client, informers)
        nodes = self._nodes = informers.of(core.NODE)
        self._controller = Controller("vm", self.reconcile, workers=WORKERS)
        self._controller.watches(machines)
        self._controller.watches(volumes, owner_key(kinds.VM))
        self._controller.watches(instances, lambda _: ())  # woken by `_note`
        instances.on_change(self._note)
        self._controller.watches(nodes, lambda _: ())  # looked up only
        self._controller.watches(settings, lambda _: ())  # woken by `_note_settings`
        settings.on_change(self._note_settings)
        for kind in KINDS:
            self._controller.watches(informers.of(kind), lambda obj: users(machines.list(), obj))
        machines.index(_GOES_BY, goes_by)
        revisions = self._sizes.caches.revisions
        self._controller.watches(revisions, lambda _: ())  # woken by `_note_revision`
        revisions.on_change(self._note_revision)
        bounds = (informers.of(kind) for kind in (core.QUOTA, core.LIMIT_RANGE))
        self._refused = Refused(self._controller, *bounds)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _note(self, change: Change) -> None:
        """Wake the VM of an instance's name, at once if there is something to do for it."""
        status = (change.new or {}).get("status") or {}
        ready = conditions.find(status.get("conditions"), "Ready") or {}
        if status.get("phase") == "Running" and ready.get("reason") == "GuestNotRunning":
            return  # the VMI controller is about to say more
        urgent = change.new is None or status.get("phase") in FINAL
        self._controller.queue.add_after(change.key, 0 if urgent else GATHER)

    def _note_revision(self, change: Change) -> None:
        """Wake the VMs that go by a revision which has gone, or that have waited for it."""
        for vm in self._machines.by(_GOES_BY, change.key):
            if is_missed(change, vm):
                self._controller.queue.add(key_of(vm))

    def _note_settings(self, change: Change) -> None:
        """Wake the VMs in which something waits: by other settings it may not have to.

        Another reference policy matters to all that name an instance type or a preference.
        """
        if (change.old or {}).get("spec") == (change.new or {}).get("spec"):
            return
        rewritten = reference_policy(change.old) != reference_policy(change.new)
        for vm in self._machines.list():
            waits = (vm.get("status") or {}).get("pendingChanges")
            if waits or (rewritten and any(vm["spec"].get(role.field) for role in ROLES)):
                self._controller.queue.add(key_of(vm))

    async def reconcile(self, key: Key) -> Result:
        """Bring one VM towards its spec; call it at any time, any number of times."""
        with self._refused.unless_done(key):
            return await self._advance(key)

    async def _advance(self, key: Key) -> Result:
        vm, vmi = self._machines.get(key), self._instances.get(key)
        if vm is None:
            return DONE
        sized = await self._sized(vm)
        if sized is None:
            return DONE  # the changed VM wakes us
        vm, seen = sized.vm, self._seen(vm, vmi)
        steps = plan(seen)
        if sized.failure:
            return await self._wait_for_size(sized, vmi, seen, steps)
        if any(isinstance(step, CreateInstance) for step in steps):
            # What was read may be old; starting a guest by mistake would be seen.
            await self._check_current(vm)
            return await self._start(vm, vmi, seen, steps)
        if vmi is not None and await self._pass_on(vm, vmi):
            return DONE  # the changed instance wakes us
        if vmi is not None and await self._let_switch(vm, vmi):
            return DONE  # the changed VM or instance wakes us
        found = await self._found(vm, vmi)
        case = edit.case(vm, found)
        judgement = judge(case) if case is not None else Judgement(unknown=edit.lost(found))
        calm = all(isinstance(step, BESIDE) for step in steps) and not seen.vm.deleting
        if judgement.running and calm and await self._roll_out(vm, found, judgement):
            return DONE  # the changed instance wakes us to write the status
        # The status comes first: it counts a failed start, which the next step forgets.
        changed = statuses.changes(vm, vmi, seen, judgement=judgement, newer=sized.newer)
        await self._write_status(vm, changed)
        events.told(self._recorder, vm, vmi, changed)
        return await self._follow(vm, steps)

    async def _sized(self, vm: Object) -> Sized | None:
        """Return the VM as its instance type and preference make it; None if it was written.

        What it goes by is in the status before anything is done with it, so that whoever takes
        over goes by the same.
        """
        if "deletionTimestamp" in vm["metadata"]:
            return Sized(vm)
        settings = self._settings.get(Key(config.NAMESPACE, config.NAME))
        failure = await self._sizes.rewrite(vm, reference_policy(settings))
        if failure is not None:
            return Sized(vm, failure=failure) if failure else None
        sized = await self._sizes.size(vm)
        if not sized.references:
            return sized
        await self._write_status(vm, sized.references)
        return None

    async def _wait_for_size(
        self, sized: Sized, vmi: Object | None, seen: view.Seen, steps: list[Step]
    ) -> Result:
        """Say why a VM has no size; stop what is to be stopped, start and change nothing."""
        changed = statuses.changes(sized.vm, vmi, seen, sized.failure, newer=sized.newer)
        await self._write_status(sized.vm, changed)
        if "conditions" in changed:
            events.not_sized(self._recorder, sized.vm, sized.failure)
        starting = (CreateInstance, CreateVolume)
        return await self._follow(sized.vm, [s for s in steps if not isinstance(s, starting)])

    def _seen(self, vm: Object, vmi: Object | None) -> view.Seen:
        machine, namespace = view.machine(vm), vm["metadata"]["namespace"]
        volumes = {}
        for name in machine.volumes:
            found = self._volumes.get(Key(namespace, name))
            if found is not None:
                volumes[name] = (found.get("status") or {}).get("phase") or "Pending"
        return view.Seen(machine, view.guest(vmi, vm), self._now(), volumes)

    async def _found(self, vm: Object, vmi: Object | None) -> edit.Found:
        """Return what the VM is judged by; an instance that has all of it is not looked at."""
        if vmi is None or statuses.has_all(vmi, vm):
            return edit.Found()
        # Settings are read afresh, so that an edit made after a change of them is judged by it.
        return edit.Found(
            vmi,
            await self._get(core.REVISION, edit.revision_of(vmi), vm["metadata"]["namespace"]),
            await self._get(kinds.KUBEVIRT, config.NAME, config.NAMESPACE),
            self._nodes.get(Key("", edit.node_of(vmi))),
        )

    async def _get(self, kind: Kind, name: str, namespace: str) -> Object | None:
        if name:
            with contextlib.suppress(NotFound):
                return await self._client.get(kind, name, namespace)
        return None

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
            await self._write_status(vm, statuses.changes(vm, vmi, seen, problem, Judgement()))
            raise

    async def _follow(self, vm: Object, steps: list[Step]) -> Result:
        """Do the steps; a volume that cannot be made fails last, so that the others are done."""
        failed: list[ApiError] = []
        for step in steps:
            match step:
                case Hold():
                    vm = await self._set_finalizers(vm, held=True)
                case LetGo():
                    await self._set_finalizers(vm, held=False)
                case Adopt(uid):
                    await self._adopt(vm, uid)
                case CreateVolume(name):
                    failed += await self._create_volume(vm, name)
                case CreateInstance(paused):
                    await self._create_instance(vm, paused)
                case DeleteInstance(uid):
                    await self._delete_instance(vm, uid)
                case SwitchToAlways():
                    await self._patch(vm, {"spec": _running(vm["spec"])})
                case Wait(until) if not failed:
                    return Result(after=until - self._now())
        if failed:
            raise failed[0]
        return DONE

    # ------------------------------------------------------------ steps

    async def _create_instance(self, vm: Object, paused: bool) -> None:
        namespace = vm["metadata"]["namespace"]
        with contextlib.suppress(AlreadyExists):  # this generation has been started before
            await self._client.create(core.REVISION, template.revision_of(vm), namespace)
        instance = template.instance_of(vm, paused=paused)
        try:
            created = await self._client.create(kinds.VMI, instance, namespace)
        except AlreadyExists:
            if await self._has_instance(vm):
                return  # made before, and not seen yet
            raise
        log.info("instance created", extra=_facts(vm) | {"uid": created["metadata"]["uid"]})
        events.started(self._recorder, vm)
        if vm["metadata"]["generation"] > 1 or sized_by(vm):
            await self._forget_starts(vm)

    async def _has_instance(self, vm: Object) -> bool:
        meta = vm["metadata"]
        try:
            found = await self._client.get(kinds.VMI, meta["name"], meta["namespace"])
        except NotFound:
            return False
        guest = view.guest(found, vm)
        return guest is not None and guest.owner == "this"

    async def _forget_starts(self, vm: Object) -> None:
        """Delete the records of earlier starts."""
        namespace = vm["metadata"]["namespace"]
        prefix, kept = template.revision_prefix(vm), template.revision_name(vm)
        page = await self._client.list(core.REVISION, namespace)
        for revision in page.items:
            meta = revision["metadata"]
            if meta["name"].startswith(prefix) and meta["name"] != kept:
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        core.REVISION, meta["name"], namespace, uid=meta["uid"]
                    )

    async def _roll_out(self, vm: Object, found: edit.Found, judgement: Judgement) -> bool:
        """Give the instance what it can have live; note the VM's generation once it has all.

        Returns whether the instance was changed.
        """
        assert found.vmi is not None
        meta = found.vmi["metadata"]
        patch = merged(live_patch(judgement, found.vmi), volume_patch(judgement, found.vmi))
        if patch:
            moved = await copies.moved(self._client, found.vmi, judgement, patch)
            if moved is not None and (news := copies.news(vm, found.vmi, patch, moved)):
                await self._write_status(vm, news)
                return True
            log.info("instance follows its VM", extra=_facts(vm) | {"fields": [*patch["spec"]]})
            listed = (found.vmi.get("status") or {}).get("conditions")
            begun = hot_change.begun(judgement, listed, self._now())
            if moved is not None:
                begun = volume_migration.begun(moved, found.vmi, begun, self._now())
                patch["status"] = {"migratedVolumes": moved or None}
            if begun is not listed:  # with the spec, so that no change goes without a word
                patch.setdefault("status", {})["conditions"] = begun
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        if settles(judgement):
            version["annotations"] = statuses.marks(vm)
        elif not patch:
            return False
        try:
            await self._client.patch(
                kinds.VMI, meta["name"], meta["namespace"], {**patch, "metadata": version}
            )
        except NotFound:
            return False
        if patch:
            events.rolled_out(self._recorder, vm, judgement)
        return True

    async def _pass_on(self, vm: Object, vmi: Object) -> bool:
        """Let the instance name the volumes that its owner wants detached by force.

        What has been is no more asked for, so that it waits the next time. Returns whether the VM
        or its instance was changed.
        """
        meta, owner = vmi["metadata"], view.guest(vmi, vm)
        if owner is None or owner.owner != "this" or owner.deleting:
            return False
        wanted = force_detach.passed_on(vm, vmi)
        if (meta.get("annotations") or {}).get(FORCE_DETACH) == wanted:
            return await self._take_back(vm, vmi)
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        change = {**version, "annotations": {FORCE_DETACH: wanted}}
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.VMI, meta["name"], meta["namespace"], {"metadata": change}
            )
            return True
        return False

    async def _take_back(self, vm: Object, vmi: Object) -> bool:
        """Take the force off the volumes that have gone; return whether the VM was changed."""
        named, left = force_detach.names(vm), force_detach.left(vm, vmi)
        if (left or "") == ",".join(named):
            return False
        log.info("force taken back", extra=_facts(vm) | {"left": left or ""})
        with contextlib.suppress(NotFound):
            await self._patch(vm, {"metadata": {"annotations": {FORCE_DETACH: left}}})
            return True
        return False

    async def _let_switch(self, vm: Object, vmi: Object) -> bool:
        """Let the guest go over to the claims that have all of its data.

        The VM says so first: it is what the next guest goes by. Returns whether one was changed.
        """
        meta, owner = vmi["metadata"], view.guest(vmi, vm)
        moved = volume_migration.switching(vm, vmi)
        if moved is None or owner is None or owner.owner != "this":
            return False
        if owner.deleting or owner.final:
            return False
        if (news := copies.news(vm, vmi, {}, moved)) is not None:
            await self._write_status(vm, news)
            return True
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {"metadata": version, "status": {"migratedVolumes": moved}}
        with contextlib.suppress(NotFound):
            await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)
            return True
        return False

    async def _delete_instance(self, vm: Object, uid: str) -> None:
        meta = vm["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.delete(kinds.VMI, meta["name"], meta["namespace"], uid=uid)
            log.info("instance deleted", extra=_facts(vm) | {"uid": uid})
            events.stopped(self._recorder, vm)

    async def _create_volume(self, vm: Object, name: str) -> list[ApiError]:
        """Make a DataVolume; return what kept it from being made."""
        volume = template.data_volume_of(vm, name)
        try:
            await self._client.create(kinds.DATA_VOLUME, volume, vm["metadata"]["namespace"])
        except AlreadyExists:
            return []  # it will show up
        except ApiError as error:
            events.volume_failed(self._recorder, vm, name, error.message)
            return [error]
        events.volume_created(self._recorder, vm, name)
        return []

    async def _adopt(self, vm: Object, uid: str) -> None:
        meta = vm["metadata"]
        found = self._instances.get(Key(meta["namespace"], meta["name"]))
        if found is None or found["metadata"]["uid"] != uid:
            return
        owners = found["metadata"].get("ownerReferences") or []
        change = {
            "uid": uid,
            "resourceVersion": found["metadata"]["resourceVersion"],
            "ownerReferences": [*owners, template.owned_by(kinds.VM, vm)],
        }
        await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], {"metadata": change})

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
            kinds.VM, meta["name"], meta["namespace"], patch, subresource=subresource
        )

    async def _check_current(self, vm: Object) -> None:
        meta = vm["metadata"]
        try:
            current = await self._client.get(kinds.VM, meta["name"], meta["namespace"])
        except NotFound:
            raise Conflict(f"VM {meta['name']} is gone") from None
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"VM {meta['name']} has changed since it was read")


def _running(spec: Object) -> Object:
    """Return the patch that lets a halted VM run, in the words its owner chose."""
    return {"running": True} if spec.get("running") is not None else {"runStrategy": "Always"}


def _facts(vm: Object) -> dict[str, object]:
    return {"vm": f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"}
