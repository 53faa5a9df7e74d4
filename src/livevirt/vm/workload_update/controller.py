"""Creates the migrations and evictions that guests need, and deletes those no longer needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from datetime import datetime

from livevirt.errors import AlreadyExists, ApiError, NotFound
from livevirt.kube.client.interface import Client, if_unchanged
from livevirt.kube.control.cache import Change, Key, key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.lifecycle.vmi.pod_runtime import EMBEDDED, PodRuntime
from livevirt.vm.migration import migratability, policy, request
from livevirt.vm.migration.snapshot import WORKLOAD_UPDATE, migration_uids
from livevirt.vm.verdict import growth
from livevirt.vm.verdict.gather import gather_room_now
from livevirt.vm.verdict.verdict_inputs import VerdictInputs
from livevirt.vm.workload_update import plan as workload_update_plan
from livevirt.vm.workload_update import view
from livevirt.vm.workload_update.plan import Abort, Evict, Migrate, ReportStuck, Step, Wait, plan
from livevirt.vm.workload_update.view import Guest, Need, WorkloadSnapshot

log = logging.getLogger(__name__)

PREFIX = "kubevirt-workload-update-"
COUNT = "outdatedVirtualMachineInstanceWorkloads"
_KUBEVIRT = Key(config.NAMESPACE, config.NAME)
_INDEX, _YES = "workload-update", "yes"
_TARGETS = "workload-update-targets"


class WorkloadUpdateController:
    """Watches instances, migrations and settings; reconciles only if what a guest needs changes."""

    def __init__(
        self,
        client: Client,
        now: Now,
        recorder: Recorder,
        informers: Informers,
        runtime: PodRuntime = EMBEDDED,
    ) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._image = runtime.image
        of = informers.of
        self._instances, self._migrations = of(kinds.VMI), of(kinds.MIGRATION)
        self._settings, self._pods = of(kinds.KUBEVIRT), of(core.POD)
        self._reader = InformerReader(informers)
        self._created: dict[str, str] = {}  # uid of a guest → its migration, while not cached
        self._full: dict[str, datetime] = {}  # uid of a guest → since when its node is full
        self._stuck: dict[str, str] = {}  # uid of a guest → the reason that was recorded last
        self._last_batch: datetime | None = None  # of evictions
        self._instances.index(_INDEX, lambda vmi: [_YES] if view.changing(vmi, self._image) else [])
        self._migrations.index(
            _INDEX, lambda each: [] if request.is_final(each) else [_YES, _vmi(each)]
        )
        self._pods.index(_TARGETS, migration_uids)
        self._controller = Controller("workload-update", self.reconcile)
        self._controller.watches(self._settings)
        for informer in (self._instances, self._migrations):
            self._controller.watches(informer, lambda _: ())  # enqueued by the handlers below
        self._instances.on_change(self._instance_changed)
        self._migrations.on_change(self._migration_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reader.wait_synced()
        await self._controller.run()

    def _instance_changed(self, change: Change) -> None:
        if _relevant(change.old, self._image) != _relevant(change.new, self._image):
            self._controller.queue.add(_KUBEVIRT)

    def _migration_changed(self, change: Change) -> None:
        self._created = {
            uid: name for uid, name in self._created.items() if name != change.key.name
        }
        self._controller.queue.add(_KUBEVIRT)

    async def reconcile(self, key: Key) -> Result:
        """Give guests that need another pod one, as far as the limits allow."""
        kubevirt = self._settings.get(key)
        if key != _KUBEVIRT or kubevirt is None or "deletionTimestamp" in kubevirt["metadata"]:
            return DONE
        snapshot = self._snapshot(kubevirt)
        waits, failed = [], None
        for step in plan(snapshot):
            if isinstance(step, Wait):
                waits.append(step.time)
                continue
            try:
                await self._act(step)
            except ApiError as error:
                failed = failed or error
        needy = [vmi for vmi in self._instances.by(_INDEX, _YES) if self._need(vmi) is not None]
        self._stuck = {uid: why for uid, why in self._stuck.items() if uid in map(_uid, needy)}
        await self._count(kubevirt, len(needy))
        if failed is not None:
            raise failed
        return Result(after=min(waits)) if waits else DONE

    # ------------------------------------------------------------ observe

    def _snapshot(self, kubevirt: Object) -> WorkloadSnapshot:
        settings = view.settings(kubevirt, policy.limits(kubevirt))
        unfinished = self._migrations.by(_INDEX, _YES)
        changing = self._instances.by(_INDEX, _YES)
        keys = dict.fromkeys([*map(key_of, changing), *map(_vmi, unfinished)])
        found = [vmi for vmi in map(self._instances.get, keys) if vmi is not None]
        self._track_full(found)
        guests = (self._guest(kubevirt, vmi) for vmi in found)
        # A migration that is not in the cache yet counts, and its guest gets no other.
        kept = tuple(each for each in guests if each.uid not in self._created)
        leaving = [self._instances.get(_vmi(each)) for each in unfinished if self._is_active(each)]
        leaving += [vmi for vmi in found if _uid(vmi) in self._created]
        nodes = tuple(map(migratability.node_of, leaving))
        return WorkloadSnapshot(kept, settings, nodes, self._now(), self._last_batch)

    def _need(self, vmi: Object) -> Need | None:
        return view.need(vmi, self._image)

    def _is_active(self, migration: Object) -> bool:
        targets = self._pods.by(_TARGETS, migration["metadata"]["uid"])
        return request.is_active(migration, targets)

    def _track_full(self, guests: Iterable[Object]) -> None:
        full = [_uid(vmi) for vmi in guests if self._need(vmi) is Need.FULL]
        self._full = {uid: self._full.get(uid, self._now()) for uid in full}

    def _guest(self, kubevirt: Object, vmi: Object) -> Guest:
        uid, need = _uid(vmi), self._need(vmi)
        migrations = self._migrations.by(_INDEX, key_of(vmi))
        pod, _ = self._reader.occupancy(migratability.node_of(vmi), uid)
        return view.guest(
            vmi,
            tuple(map(request.read_unfinished, migrations)),
            hindrance=self._hindrance(kubevirt, vmi) if need is not None else "",
            pod=_evictable(pod),
            waited=self._now() - self._full.get(uid, self._now()),
            image=self._image,
        )

    def _hindrance(self, kubevirt: Object, vmi: Object) -> str:
        """Return why a guest may not migrate.

        A guest that could also stay migrates only if another node has capacity for it.
        """
        settings, spec = config.read(kubevirt), vmi["spec"]
        found = migratability.hindrance(vmi, settings)
        if found or self._need(vmi) not in view.IN_PLACE_TOO:
            return found
        objects = {"kubevirt": kubevirt}
        known = VerdictInputs(spec, spec, vmi, settings, migration_obstacle="", objects=objects)
        return growth.no_migration_of(gather_room_now(known, vmi, self._reader), vmi)

    # ------------------------------------------------------------ act

    async def _act(self, step: Step) -> None:
        vmi = None if isinstance(step, Wait) else self._instances.get(step.guest)
        if vmi is None:
            return
        match step:
            case Migrate(priority=priority):
                await self._migrate(vmi, priority)
            case Evict(pod=pod):
                await self._evict(vmi, pod)
            case Abort(name=name, uid=uid):
                await self._abort(vmi, name, uid)
            case ReportStuck(why=why):
                if self._stuck.get(_uid(vmi)) != why:
                    self._stuck[_uid(vmi)] = why
                    workload_update_plan.stuck(self._recorder, vmi, why)

    async def _migrate(self, vmi: Object, priority: str) -> None:
        key, need = key_of(vmi), self._need(vmi)
        name = request.next_name(PREFIX, vmi, self._migrations.list(key.namespace))
        manifest = request.manifest(key, name, (WORKLOAD_UPDATE, ""), priority)
        try:
            await self._client.create(kinds.MIGRATION, manifest, key.namespace)
        except AlreadyExists:
            return  # created before, and not in the cache yet
        except ApiError as error:
            workload_update_plan.migration_refused(self._recorder, vmi, error.message)
            raise
        if self._migrations.get(Key(key.namespace, name)) is None:
            self._created[_uid(vmi)] = name
        log.info("migration created", extra={"vmi": str(key), "migration": name})
        reason = need.value if need is not None else "another pod"
        workload_update_plan.migration_created(self._recorder, vmi, name, reason)

    async def _evict(self, vmi: Object, pod: str) -> None:
        namespace = vmi["metadata"]["namespace"]
        cached = self._pods.get(Key(namespace, pod))
        if cached is None:
            return
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": cached["metadata"]["uid"]}},
        }
        self._last_batch = self._now()
        try:
            await self._client.create(
                core.POD, eviction, namespace, name=pod, subresource="eviction"
            )
        except NotFound:
            return
        except ApiError as error:
            workload_update_plan.eviction_refused(self._recorder, vmi, pod, error.message)
            return  # retried with the next batch
        log.info("pod evicted", extra={"vmi": str(key_of(vmi)), "pod": pod})
        workload_update_plan.evicted(self._recorder, vmi, pod)

    async def _abort(self, vmi: Object, name: str, uid: str) -> None:
        namespace = vmi["metadata"]["namespace"]
        try:
            await self._client.delete(kinds.MIGRATION, name, namespace, uid=uid)
        except NotFound:
            return
        except ApiError as error:
            workload_update_plan.deletion_refused(self._recorder, vmi, name, error.message)
            raise
        log.info("migration deleted", extra={"vmi": str(key_of(vmi)), "migration": name})
        workload_update_plan.migration_deleted(self._recorder, vmi, name)

    async def _count(self, kubevirt: Object, number: int) -> None:
        """Write how many guests need another pod, if the number has changed."""
        if status_of(kubevirt).get(COUNT, 0) == number:
            return
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.KUBEVIRT, config.NAME, config.NAMESPACE,
                if_unchanged(kubevirt, {"status": {COUNT: number}}), subresource="status",
            )  # fmt: skip


def _relevant(vmi: Object | None, image: str) -> object:
    """Return what of an instance the decision depends on."""
    if vmi is None or not (view.changing(vmi, image) or view.called_off(vmi)):
        return None
    return view.guest(vmi, (), image=image), migratability.unmovable(vmi)


def _uid(vmi: Object) -> str:
    return str(vmi["metadata"]["uid"])


def _vmi(migration: Object) -> Key:
    return request.vmi_of(migration)


def _evictable(pod: Object | None) -> str:
    """Return the name of a pod, unless it is being deleted."""
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return ""
    return str(pod["metadata"]["name"])
