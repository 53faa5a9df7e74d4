"""Asks for the migrations and evictions that guests need, and calls them off."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache

from livevirt.errors import ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.key import Key, key_of
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core, node_share
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.migration import migratability, policy, request
from livevirt.vm.migration.view import WORKLOAD_UPDATE, jobs
from livevirt.vm.verdict import edit, headroom
from livevirt.vm.workload_update import events, room, view
from livevirt.vm.workload_update.plan import Abort, Evict, Migrate, Stay, Step, Wait, plan
from livevirt.vm.workload_update.view import Guest, Need, Seen

log = logging.getLogger(__name__)

PREFIX = "kubevirt-workload-update-"
COUNT = "outdatedVirtualMachineInstanceWorkloads"
_KUBEVIRT = Key(config.NAMESPACE, config.NAME)
_INDEX, _YES = "workload-update", "yes"
_TARGETS = "workload-update-targets"

Shares = Callable[[], list[tuple[Object, node_share.Share]]]  # what each node has given out


class WorkloadUpdates:
    """Watches instances, migrations and settings; woken only by what changes a need."""

    def __init__(self, client: Client, now: Now, recorder: Recorder, informers: Informers) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        of = informers.of
        self._instances, self._migrations = of(kinds.VMI), of(kinds.MIGRATION)
        self._settings, self._pods = of(kinds.KUBEVIRT), of(core.POD)
        self._nodes, self._namespaces = of(core.NODE), of(core.NAMESPACE)
        self._quotas, self._ranges = of(core.QUOTA), of(core.LIMIT_RANGE)
        self._asked: dict[str, str] = {}  # uid of a guest → the migration of it not seen yet
        self._full: dict[str, datetime] = {}  # uid of a guest → since when its node has no room
        self._told: dict[str, str] = {}  # uid of a guest → why it stays
        self._last_batch: datetime | None = None  # of evictions
        self._instances.index(_INDEX, lambda vmi: [_YES] if view.changing(vmi) else [])
        self._migrations.index(
            _INDEX, lambda each: [] if request.final(each) else [_YES, _vmi(each)]
        )
        self._pods.index(_INDEX, lambda pod: filter(None, [node_share.instance_of(pod)]))
        self._pods.index(_TARGETS, jobs)
        self._controller = Controller("workload-update", self.reconcile)
        self._controller.watches(self._settings)
        for informer in (self._instances, self._migrations):
            self._controller.watches(informer, lambda _: ())  # woken by those below
        self._instances.on_change(self._note)
        self._migrations.on_change(self._note_migration)

    async def run(self) -> None:
        """Work until cancelled."""
        for informer in (self._pods, self._nodes, self._namespaces, self._quotas, self._ranges):
            await informer.synced.wait()
        await self._controller.run()

    def _note(self, change: Change) -> None:
        if _matters(change.old) != _matters(change.new):
            self._controller.queue.add(_KUBEVIRT)

    def _note_migration(self, change: Change) -> None:
        self._asked = {uid: name for uid, name in self._asked.items() if name != change.key.name}
        self._controller.queue.add(_KUBEVIRT)

    async def reconcile(self, key: Key) -> Result:
        """Give the guests that need one another pod, as far as that may be now."""
        kubevirt = self._settings.get(key)
        if key != _KUBEVIRT or kubevirt is None or "deletionTimestamp" in kubevirt["metadata"]:
            return DONE
        seen = self._seen(kubevirt)
        waits, failed = [], None
        for step in plan(seen):
            if isinstance(step, Wait):
                waits.append(step.time)
                continue
            try:
                await self._do(step)
            except ApiError as error:
                failed = failed or error
        needy = [vmi for vmi in self._instances.by(_INDEX, _YES) if view.need(vmi) is not None]
        self._told = {uid: why for uid, why in self._told.items() if uid in map(_uid, needy)}
        await self._count(kubevirt, len(needy))
        if failed is not None:
            raise failed
        return Result(after=min(waits)) if waits else DONE

    # ------------------------------------------------------------ reading

    def _seen(self, kubevirt: Object) -> Seen:
        settings = view.settings(kubevirt, policy.limits(kubevirt))
        under_way = self._migrations.by(_INDEX, _YES)
        changing = self._instances.by(_INDEX, _YES)
        keys = dict.fromkeys([*map(key_of, changing), *map(_vmi, under_way)])
        found = [vmi for vmi in map(self._instances.get, keys) if vmi is not None]
        self._note_full(found)
        shares = cache(lambda: node_share.by_node(self._nodes.list(), self._pods.list()))
        guests = (self._guest(kubevirt, vmi, shares) for vmi in found)
        # One that was asked for and is not seen yet counts, and its guest gets no other.
        kept = tuple(each for each in guests if each.uid not in self._asked)
        leaving = [self._instances.get(_vmi(each)) for each in under_way if self._counts(each)]
        leaving += [vmi for vmi in found if _uid(vmi) in self._asked]
        nodes = tuple(map(edit.node_of, leaving))
        return Seen(kept, settings, nodes, self._now(), self._last_batch)

    def _counts(self, migration: Object) -> bool:
        targets = self._pods.by(_TARGETS, migration["metadata"]["uid"])
        return request.counts(migration, targets)

    def _note_full(self, guests: Iterable[Object]) -> None:
        full = [_uid(vmi) for vmi in guests if view.need(vmi) is Need.FULL]
        self._full = {uid: self._full.get(uid, self._now()) for uid in full}

    def _guest(self, kubevirt: Object, vmi: Object, shares: Shares) -> Guest:
        uid, need = _uid(vmi), view.need(vmi)
        migrations = self._migrations.by(_INDEX, key_of(vmi))
        pod = room.pod_of(vmi, self._pods.by(_INDEX, uid))
        return view.guest(
            vmi,
            tuple(map(request.unfinished, migrations)),
            hindrance=self._hindrance(kubevirt, vmi, pod, shares) if need is not None else "",
            pod=_evictable(pod),
            waited=self._now() - self._full.get(uid, self._now()),
        )

    def _hindrance(self, kubevirt: Object, vmi: Object, pod: Object | None, shares: Shares) -> str:
        """Return why a guest may not migrate.

        For one that could stay there must be a place; for others that place will be looked for.
        """
        found = migratability.hindrance(vmi, config.read(kubevirt))
        if found or view.need(vmi) not in view.IN_PLACE_TOO:
            return found
        namespace = vmi["metadata"]["namespace"]
        around = headroom.Seen(
            self._namespaces.get(Key("", namespace)),
            self._quotas.list(namespace),
            self._ranges.list(namespace),
            pod,
            nodes=shares(),
        )
        return room.hindrance(vmi, kubevirt, around)

    # ------------------------------------------------------------ acting

    async def _do(self, step: Step) -> None:
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
            case Stay(why=why):
                if self._told.get(_uid(vmi)) != why:
                    self._told[_uid(vmi)] = why
                    events.stays(self._recorder, vmi, why)

    async def _migrate(self, vmi: Object, priority: str) -> None:
        key, need = key_of(vmi), view.need(vmi)
        order = request.request(key, PREFIX, (WORKLOAD_UPDATE, ""), priority)
        try:
            made = await self._client.create(kinds.MIGRATION, order, key.namespace)
        except ApiError as error:
            events.not_asked(self._recorder, vmi, error.message)
            raise
        name = made["metadata"]["name"]
        if self._migrations.get(Key(key.namespace, name)) is None:
            self._asked[_uid(vmi)] = name
        log.info("migration asked for", extra={"vmi": str(key), "migration": name})
        events.asked(self._recorder, vmi, name, need.value if need is not None else "another pod")

    async def _evict(self, vmi: Object, pod: str) -> None:
        namespace = vmi["metadata"]["namespace"]
        meta = {"name": pod, "namespace": namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        self._last_batch = self._now()
        try:
            await self._client.create(
                core.POD, eviction, namespace, name=pod, subresource="eviction"
            )
        except NotFound:
            return
        except ApiError as error:
            events.not_evicted(self._recorder, vmi, pod, error.message)
            return  # its turn comes again with the next batch
        log.info("pod evicted", extra={"vmi": str(key_of(vmi)), "pod": pod})
        events.evicted(self._recorder, vmi, pod)

    async def _abort(self, vmi: Object, name: str, uid: str) -> None:
        namespace = vmi["metadata"]["namespace"]
        try:
            await self._client.delete(kinds.MIGRATION, name, namespace, uid=uid)
        except NotFound:
            return
        except ApiError as error:
            events.not_aborted(self._recorder, vmi, name, error.message)
            raise
        log.info("migration called off", extra={"vmi": str(key_of(vmi)), "migration": name})
        events.aborted(self._recorder, vmi, name)

    async def _count(self, kubevirt: Object, number: int) -> None:
        """Write how many guests need another pod, if that is another number than before."""
        if (kubevirt.get("status") or {}).get(COUNT, 0) == number:
            return
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.KUBEVIRT, config.NAME, config.NAMESPACE, {"status": {COUNT: number}},
                subresource="status",
            )  # fmt: skip


def _matters(vmi: Object | None) -> object:
    """Return what of an instance the decision depends on."""
    if vmi is None or not (view.changing(vmi) or view.called_off(vmi)):
        return None
    return view.guest(vmi, ()), migratability.unmovable(vmi)


def _uid(vmi: Object) -> str:
    return str(vmi["metadata"]["uid"])


def _vmi(migration: Object) -> Key:
    return request.vmi_of(migration)


def _evictable(pod: Object | None) -> str:
    """Return the name of a pod, unless it is on its way out."""
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return ""
    return str(pod["metadata"]["name"])
