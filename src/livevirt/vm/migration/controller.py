"""The reconcile loop of VirtualMachineInstanceMigrations: observe, plan, act."""

from __future__ import annotations

from datetime import timedelta

from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key, key_of, owner_key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.pod_runtime import EMBEDDED, PodRuntime
from livevirt.vm.migration import events
from livevirt.vm.migration.actions import InstanceWriter, MigrationWriter, TargetPods, check_failure
from livevirt.vm.migration.caches import Sources, migration_keys
from livevirt.vm.migration.observation import Observer
from livevirt.vm.migration.phases import phases
from livevirt.vm.migration.plan import (
    CreateTarget,
    DeletePod,
    FailState,
    HandOver,
    RemoveFinalizer,
    RemoveTargetLabel,
    ReplaceTarget,
    RequestAbort,
    Step,
    Wait,
    abandoned,
    plan,
)
from livevirt.vm.migration.snapshot import Snapshot, read_instance, read_migration

WORKERS = 4


class MigrationController:
    """Watches migrations, their instances and pods, and everything a queued one waits for."""

    def __init__(
        self, client: Client, now: Now, recorder: Recorder, sources: Sources,
        runtime: PodRuntime = EMBEDDED,
    ) -> None:  # fmt: skip
        self._client, self._recorder, self._sources = client, recorder, sources
        self.observer = Observer(sources, now)
        caches = self.observer.caches
        self._pods = TargetPods(client, recorder, caches, self.observer.expectations, runtime)
        self._instances = InstanceWriter(client, now, recorder, caches)
        self._migrations = MigrationWriter(client, recorder, caches)
        self._controller = Controller("migration", self.reconcile, workers=WORKERS)
        self._controller.watches(sources.migrations)
        self._controller.watches(sources.instances, lambda vmi: caches.unfinished(key_of(vmi)))
        self._controller.watches(sources.pods, lambda _: ())  # enqueued by `_pod_changed`
        sources.pods.on_change(self._pod_changed)
        sources.migrations.on_change(self._migration_changed)
        sources.quotas.on_change(self._quota_changed)
        sources.kubevirts.on_change(lambda _: self._enqueue_admitted())

    async def run(self) -> None:
        """Work until cancelled."""
        looked_up = (self._sources.policies, self._sources.quotas, self._sources.namespaces)
        for informer in (*looked_up, self._sources.kubevirts):
            await informer.synced.wait()
        await self._controller.run()

    # ------------------------------------------------------------ what triggers a reconcile

    def _pod_changed(self, change: Change) -> None:
        pod = change.new or change.old
        assert pod is not None
        for key in migration_keys(pod):
            self.observer.expectations.observe_target(key, pod["metadata"]["uid"])
            self._controller.queue.add(key)
        for vmi in owner_key(kinds.VMI)(pod):
            for key in self.observer.caches.unfinished(vmi):
                self._controller.queue.add(key)

    def _migration_changed(self, change: Change) -> None:
        """Enqueue the migrations that may start in place of one that has ended."""
        if change.new is None or read_migration(change.new).final:
            self.observer.expectations.forget(change.key)
            self._enqueue_admitted()

    def _quota_changed(self, change: Change) -> None:
        """Retry at once what was refused in the namespace: the quota may allow it now."""
        for key in self.observer.expectations.retry_refused(change.key.namespace):
            self._controller.queue.add(key)

    def _enqueue_admitted(self) -> None:
        for key in self.observer.queue.admitted():
            self._controller.queue.add(key)

    # ------------------------------------------------------------ reconcile

    async def reconcile(self, key: Key) -> Result:
        """Bring one migration a step further, or clean up after it."""
        migration = self._sources.migrations.get(key)
        if migration is None:
            return await self._reconcile_deleted(key)
        snapshot = self.observer.snapshot(migration)
        vmi = self.observer.caches.instance(migration)
        if "Failed" in phases(snapshot):
            await check_failure(self._client, migration, vmi, snapshot)
        over_quota = None
        waits: list[timedelta] = []
        for step in plan(snapshot):
            match step:
                case CreateTarget():
                    over_quota = await self._create_target(migration, vmi, snapshot)
                case Wait(time):
                    waits.append(time)
                    if snapshot.back_off and time == snapshot.back_off and vmi is not None:
                        events.backing_off(self._recorder, migration, vmi, time)
                case RemoveFinalizer():
                    await self._migrations.remove_finalizer(migration)
                case HandOver():
                    assert vmi is not None
                    await self._instances.hand_over(migration, vmi, snapshot)
                case ReplaceTarget(name, uid):
                    assert vmi is not None
                    await self._pods.replace(migration, vmi, name, uid)
                case _:
                    assert vmi is not None
                    await self._act(step, migration, vmi)
        await self._migrations.write_status(migration, vmi, snapshot, over_quota)
        if wait := self.observer.expectations.retry_in(key):
            waits.append(wait)
        if snapshot.migration.final:
            waits += await self._migrations.delete_expired(migration, snapshot)
        return Result(after=min(waits)) if waits else DONE

    async def _reconcile_deleted(self, key: Key) -> Result:
        """Clean up after a migration that was removed before it had ended."""
        self.observer.expectations.forget(key)
        for vmi, pod, uid in list(self.observer.caches.abandoned(key)):
            for step in abandoned(read_instance(vmi), pod, uid):
                await self._act(step, None, vmi)
        return DONE

    async def _create_target(
        self, migration: Object, vmi: Object | None, snapshot: Snapshot
    ) -> str | None:
        """Create the target pod; return the message of a quota that refused it."""
        assert vmi is not None
        assert snapshot.vmi is not None
        over_quota = await self._pods.create(migration, vmi, snapshot.vmi.node)
        if self.observer.expectations.retry_in(key_of(migration)):
            self._enqueue_admitted()  # it was refused: others may start in its place
        return over_quota

    async def _act(self, step: Step, migration: Object | None, vmi: Object) -> None:
        """Take a step that an instance needs also when its migration no longer exists."""
        match step:
            case RequestAbort():
                await self._instances.request_abort(migration, vmi)
            case FailState(reason):
                await self._instances.fail(vmi, reason)
            case DeletePod(name, uid):
                await self._pods.delete(migration, vmi, name, uid)
            case RemoveTargetLabel():
                await self._instances.remove_target_label(vmi)
