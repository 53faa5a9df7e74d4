"""Brings every VirtualMachine towards its spec."""

from __future__ import annotations

from datetime import datetime, timedelta

from livevirt.errors import ApiError, Conflict
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key, key_of, owner_key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Refused, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.conditions import FINAL, Failure
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.instancetypes.rules.matchers import ROLES, reference_policy
from livevirt.vm.instancetypes.sizing import KINDS, Sized, Sizes, is_missed, revisions_used, users
from livevirt.vm.lifecycle.vm import snapshot, writer
from livevirt.vm.lifecycle.vm import status as statuses
from livevirt.vm.lifecycle.vm.instances import InstanceLifecycle
from livevirt.vm.lifecycle.vm.live_update import LiveUpdate
from livevirt.vm.lifecycle.vm.plan import (
    NON_BLOCKING,
    AddFinalizer,
    Adopt,
    CreateInstance,
    CreateVolume,
    DeleteInstance,
    RemoveFinalizer,
    Step,
    SwitchToAlways,
    Wait,
    plan,
)
from livevirt.vm.lifecycle.vm.snapshot import VmSnapshot
from livevirt.vm.lifecycle.vm.volumes import VolumeUpdates
from livevirt.vm.lifecycle.vm.writer import VirtualMachineWriter
from livevirt.vm.verdict import rollout_policy
from livevirt.vm.verdict.judgement import Judgement

COALESCE = 0.1  # seconds in which changes of an instance cause one reconcile: a start makes many
WORKERS = 4
#: Timers are paused while their host is suspended, so the clock is read at least this often.
LONGEST_WAIT = timedelta(minutes=10)
_REVISIONS = "revisions"  # the index of VMs by the revisions they use


class VirtualMachines:
    """Watches VMs and what they depend on; reconciles each: observe, plan, act."""

    def __init__(self, client: Client, now: Now, recorder: Recorder, informers: Informers) -> None:
        self._now, self._recorder = now, recorder
        self._machines, self._instances = informers.of(kinds.VM), informers.of(kinds.VMI)
        self._volumes = informers.of(kinds.DATA_VOLUME)
        self._settings = informers.of(kinds.KUBEVIRT)
        self._sizes = Sizes(client, informers)
        self._writer = VirtualMachineWriter(client)
        self._lifecycle = InstanceLifecycle(client, recorder)
        self._volume_updates = VolumeUpdates(client, self._writer)
        self._reader = InformerReader(informers, kinds.VMI)
        self._live = LiveUpdate(client, now, recorder, self._reader, self._volume_updates)
        self._controller = Controller("vm", self.reconcile, workers=WORKERS)
        self._watch(informers)
        bounds = (
            informers.of(kind) for kind in (core.QUOTA, core.LIMIT_RANGE, core.PRIORITY_CLASS)
        )
        self._refused = Refused(self._controller, *bounds)

    def _watch(self, informers: Informers) -> None:
        machines = self._machines
        self._controller.watches(machines)
        self._controller.watches(self._volumes, owner_key(kinds.VM))
        for kind in KINDS:
            self._controller.watches(informers.of(kind), lambda obj: users(machines.list(), obj))
        machines.index(_REVISIONS, revisions_used)
        for informer, wake in (
            (self._instances, self._wake_for_instance),
            (self._settings, self._wake_for_settings),
            (informers.of(core.NAMESPACE), self._wake_for_namespace),
            (self._sizes.caches.revisions, self._wake_for_revision),
        ):
            self._controller.watches(informer, lambda _: ())  # woken by the function
            informer.on_change(wake)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reader.wait_synced()
        await self._controller.run()

    def _wake_for_instance(self, change: Change) -> None:
        """Wake the VM of an instance's name, at once if there is something to do for it."""
        status = (change.new or {}).get("status") or {}
        ready = conditions.find(status.get("conditions"), "Ready") or {}
        if status.get("phase") == "Running" and ready.get("reason") == "GuestNotRunning":
            return  # the VMI controller is about to say more
        urgent = change.new is None or status.get("phase") in FINAL
        self._controller.queue.add_after(change.key, 0 if urgent else COALESCE)

    def _wake_for_revision(self, change: Change) -> None:
        """Wake the VMs whose revision is deleted, or that have waited for it."""
        for vm in self._machines.by(_REVISIONS, change.key):
            if is_missed(change, vm):
                self._controller.queue.add(key_of(vm))

    def _wake_for_settings(self, change: Change) -> None:
        """Wake the VMs in which something waits: under other settings it may not have to.

        Another reference policy matters to all that name an instance type or a preference.
        """
        old, new = change.old or {}, change.new or {}
        if old.get("spec") == new.get("spec") and config.read(old) == config.read(new):
            return
        rewritten = reference_policy(change.old) != reference_policy(change.new)
        for vm in self._machines.list():
            waits = (vm.get("status") or {}).get("pendingChanges")
            if waits or (rewritten and any(vm["spec"].get(role.field) for role in ROLES)):
                self._controller.queue.add(key_of(vm))

    def _wake_for_namespace(self, change: Change) -> None:
        """Wake the VMs of a namespace in which something waits: its rollout strategy may differ."""
        if change.new is None or not rollout_policy.is_changed(change.new, change.old):
            return
        for vm in self._machines.list(change.key.name):
            if (vm.get("status") or {}).get("pendingChanges"):
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
        vm, seen = sized.vm, self._observe(vm, vmi)
        steps = plan(seen)
        if sized.failure is not None:
            return await self._wait_for_size(sized, sized.failure, seen, vmi, steps)
        if any(isinstance(step, CreateInstance) for step in steps):
            # What was read may be old; a guest started by mistake would be noticed.
            await self._writer.check_current(vm)
            return await self._start(vm, vmi, seen, steps)
        if vmi is not None and await self._volume_updates.update(vm, vmi):
            return DONE  # the changed VM or instance wakes us
        judgement = await self._live.judge(vm, vmi)
        calm = all(isinstance(step, NON_BLOCKING) for step in steps) and not seen.vm.deleting
        live = vmi if judgement.running and calm else None
        if live is not None and await self._live.roll_out(vm, live, judgement):
            return DONE  # the changed instance wakes us to write the status
        # The status comes first: it counts a failed start, which the next step forgets.
        changed = statuses.changes(vm, vmi, seen, judgement=judgement, newer=sized.newer)
        await self._writer.write_status(vm, changed)
        writer.report(self._recorder, vm, vmi, changed)
        result = await self._follow(vm, vmi, steps)
        return until_window(judgement.window, seen.now, result)

    async def _sized(self, vm: Object) -> Sized | None:
        """Return the VM as its instance type and preference make it; None if it was written.

        The revisions it uses are in the status before anything is done with them, so that another
        controller that takes over uses the same.
        """
        if "deletionTimestamp" in vm["metadata"]:
            return Sized(vm)
        settings = self._settings.get(Key(config.NAMESPACE, config.NAME))
        rewritten = await self._sizes.rewrite(vm, reference_policy(settings))
        if isinstance(rewritten, Failure):
            return Sized(vm, failure=rewritten)
        if rewritten:
            return None
        sized = await self._sizes.size(vm)
        if not sized.references:
            return sized
        await self._writer.write_status(vm, sized.references)
        return None

    async def _wait_for_size(
        self,
        sized: Sized,
        failure: Failure,
        seen: VmSnapshot,
        vmi: Object | None,
        steps: list[Step],
    ) -> Result:
        """Report why a VM has no size; stop what is to be stopped, start and change nothing."""
        changed = statuses.changes(sized.vm, vmi, seen, failure, newer=sized.newer)
        await self._writer.write_status(sized.vm, changed)
        if "conditions" in changed:
            writer.not_sized(self._recorder, sized.vm, failure)
        starting = (CreateInstance, CreateVolume)
        allowed: list[Step] = [step for step in steps if not isinstance(step, starting)]
        return await self._follow(sized.vm, vmi, allowed)

    def _observe(self, vm: Object, vmi: Object | None) -> VmSnapshot:
        machine, namespace = snapshot.machine(vm), vm["metadata"]["namespace"]
        volumes = {}
        for name in machine.volumes:
            found = self._volumes.get(Key(namespace, name))
            if found is not None:
                volumes[name] = (found.get("status") or {}).get("phase") or "Pending"
        return VmSnapshot(machine, snapshot.guest(vmi, vm), self._now(), volumes)

    async def _start(
        self, vm: Object, vmi: Object | None, seen: VmSnapshot, steps: list[Step]
    ) -> Result:
        try:
            return await self._follow(vm, vmi, steps)  # the new instance wakes us for the status
        except Conflict:
            raise
        except ApiError as error:
            writer.not_started(self._recorder, vm, error.message)
            failure = Failure(writer.FAILED_CREATE, error.message)
            changed = statuses.changes(vm, vmi, seen, failure, Judgement())
            await self._writer.write_status(vm, changed)
            raise

    async def _follow(self, vm: Object, vmi: Object | None, steps: list[Step]) -> Result:
        """Do the steps; a volume that cannot be created fails last, so that the others are done."""
        failed: ApiError | None = None
        for step in steps:
            match step:
                case AddFinalizer():
                    stored = await self._writer.set_finalizer(vm, present=True)
                    vm = {**vm, "metadata": stored["metadata"]}  # its spec stays expanded
                case RemoveFinalizer():
                    await self._writer.set_finalizer(vm, present=False)
                case Adopt() if vmi is not None:
                    await self._lifecycle.adopt(vm, vmi)
                case CreateVolume(name):
                    error = await self._lifecycle.create_volume(vm, name)
                    failed = failed or error
                case CreateInstance(paused):
                    await self._lifecycle.create(vm, paused=paused)
                case DeleteInstance(uid):
                    await self._lifecycle.delete(vm, uid)
                case SwitchToAlways():
                    await self._writer.switch_to_always(vm)
                case Wait(until) if failed is None:
                    return Result(after=until - self._now())
        if failed is not None:
            raise failed
        return DONE


def until_window(window: datetime | None, now: datetime, result: Result) -> Result:
    """Return a result that also calls again when a maintenance window opens, if edits wait."""
    if window is None:
        return result
    after = min(max(window - now, timedelta()), LONGEST_WAIT)
    return Result(after if result.after is None else min(after, result.after))
