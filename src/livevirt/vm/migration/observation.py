"""Observe: builds the snapshot of a migration, and the queue of all, from the informer caches."""

from __future__ import annotations

from dataclasses import replace

from livevirt.kube.control.cache import Change, Key, key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.migration import actions, policy
from livevirt.vm.migration.caches import (
    Caches,
    Expectations,
    Sources,
    instance_key,
    instance_uids,
    migration_keys,
)
from livevirt.vm.migration.queue import Active, Blocked, Entry, MigrationQueue, Waiting
from livevirt.vm.migration.snapshot import (
    Pod,
    Snapshot,
    read_instance,
    read_migration,
    read_pod,
    read_state,
)


class ObservedQueue:
    """The migration queue, kept up to date by the informers."""

    def __init__(self, caches: Caches, now: Now) -> None:
        self._caches, self._now = caches, now
        self._queue = MigrationQueue(self.entry)
        self.expectations = Expectations(now, lambda key: self._queue.invalidate([key]))
        sources = caches.sources
        sources.migrations.on_change(self._migration_changed)
        sources.instances.on_change(lambda change: self._instance_changed(change.key))
        sources.pods.on_change(self._pod_changed)

    def admitted(self) -> frozenset[Key]:
        """Return the migrations that may start now."""
        limits = policy.limits(self._caches.sources.kubevirt())
        return self._queue.admitted(limits, self._now())

    def entry(self, key: Key) -> Entry | None:
        """Return the entry of a migration, None once it has ended."""
        obj = self._caches.sources.migrations.get(key)
        if obj is None or status_of(obj).get("phase") in FINAL:
            return None
        return Active(self._source_node(obj)) if self._is_active(obj) else self._inactive(obj)

    def _is_active(self, obj: Object) -> bool:
        """Return whether a migration has a target pod, or is past needing one."""
        key, phase = key_of(obj), status_of(obj).get("phase") or "Pending"
        return (
            phase != "Pending"
            or self.expectations.expects_target(key)
            or self.expectations.replaces_target(key)
            or bool(self._caches.target_pods(obj["metadata"]["uid"]))
        )

    def _inactive(self, obj: Object) -> Waiting | Blocked:
        """Return the entry of a migration that has not started: it could now, or cannot yet."""
        mine, vmi = read_migration(obj), self._caches.instance(obj)
        if vmi is None or mine.deleting or self._caches.conflicting(obj):
            return Blocked()
        instance = read_instance(vmi)
        if not instance.running or instance.copying_volume or instance.not_migratable:
            return Blocked()
        back_off = self._caches.back_off(obj, self._now())
        if wait := max(back_off, self.expectations.retry_in(key_of(obj))):
            return Blocked(self._now() + wait)
        return Waiting(mine.uid, instance.node, mine.priority, mine.created)

    def _source_node(self, obj: Object) -> str:
        uid, vmi = obj["metadata"]["uid"], self._caches.instance(obj)
        state = read_state(status_of(vmi).get("migrationState"))
        if state is not None and state.uid == uid:
            return state.source_node
        expected = self.expectations.source_node(key_of(obj))
        return expected or read_instance(vmi).node if vmi is not None else expected

    def _migration_changed(self, change: Change) -> None:
        self._queue.invalidate([change.key])
        for side in (change.old, change.new):
            if side is not None:
                self._instance_changed(instance_key(side))

    def _instance_changed(self, vmi: Key) -> None:
        self._queue.invalidate(map(key_of, self._caches.migrations(vmi)))

    def _pod_changed(self, change: Change) -> None:
        for side in (change.old, change.new):
            if side is not None:
                self._queue.invalidate(migration_keys(side))


class Observer:
    """Builds the snapshot that one migration is decided from."""

    def __init__(self, sources: Sources, now: Now) -> None:
        self.caches, self._now = Caches(sources), now
        self.queue = ObservedQueue(self.caches, now)
        self.expectations = self.queue.expectations

    def snapshot(self, obj: Object) -> Snapshot:
        """Return everything the decision about a migration depends on."""
        key, now = key_of(obj), self._now()
        mine, vmi = read_migration(obj), self.caches.instance(obj)
        found = Snapshot(
            mine,
            now,
            None if vmi is None else read_instance(vmi),
            target=self._target(mine.uid, vmi),
            conflicting=self.caches.conflicting(obj),
            target_expected=self.expectations.expects_target(key),
            back_off=self.caches.back_off(obj, now),
            retry_in=self.expectations.retry_in(key),
        )
        found = replace(found, source=self._source(found, key.namespace))
        if found.target is None or found.target.deleting:
            self._recover_replacement(key, found)
            found = replace(found, target_replaced=self.expectations.replaces_target(key))
        if found.target is None and not mine.final:
            found = replace(found, admitted=key in self.queue.admitted())
        state = found.vmi.state if found.vmi is not None else None
        if state is not None and self.caches.is_orphaned(state, obj):
            pod = self.caches.pod(Key(key.namespace, state.target_pod))
            found = replace(found, orphaned=True, orphaned_target=pod)
        return found

    def _recover_replacement(self, key: Key, found: Snapshot) -> None:
        """Note a target pod that was deleted for being too small before we were started."""
        pod, wanted = found.target, not found.migration.final and found.state is None
        known = self.expectations.replaces_target(key)
        if pod is not None and pod.too_small and wanted and not known:
            self.expectations.replace_target(key, pod.uid)

    def _target(self, uid: str, vmi: Object | None) -> Pod | None:
        """Return the target pod, unless it was created for an earlier instance of that name."""
        for obj in self.caches.target_pods(uid):
            if vmi is None:
                return read_pod(obj)
            if vmi["metadata"]["uid"] in instance_uids(obj):
                namespace = self.caches.sources.namespace(vmi["metadata"]["namespace"])
                return replace(read_pod(obj), too_small=actions.is_too_small(obj, vmi, namespace))
        return None

    def _source(self, found: Snapshot, namespace: str) -> Pod | None:
        """Return the pod the guest leaves: where it runs, or where it ran before it moved."""
        state, mine, vmi = found.state, found.migration, found.vmi
        recorded = state.source_pod if state is not None else mine.source_pod
        if recorded:
            return self.caches.pod(Key(namespace, recorded))
        if vmi is None or not vmi.node:
            return None
        pods = self.caches.launcher_pods(vmi.uid)
        here = [each for each in pods if each.node == vmi.node and not each.ended]
        return max(here, key=lambda each: (each.created, each.name), default=None)
