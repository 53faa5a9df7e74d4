"""Migrates guests off the nodes they have to leave."""

from __future__ import annotations

import contextlib
import logging

from livevirt.errors import AlreadyExists, ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key, key_of
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.evacuation.plan import (
    ClearEvacuation,
    Guest,
    Migrate,
    ReportStuck,
    Snapshot,
    Step,
    drained,
    is_running,
    plan,
    read_guest,
)
from livevirt.vm.migration import policy, request
from livevirt.vm.migration.migratability import node_of
from livevirt.vm.migration.snapshot import EVACUATION, migration_uids

log = logging.getLogger(__name__)

PREFIX = "kubevirt-evacuation-"
_KUBEVIRT = Key(settings.NAMESPACE, settings.NAME)
_INDEX, _YES = "evacuation", "yes"


class EvacuationController:
    """Watches instances, nodes, migrations and settings; everything is decided in one pass."""

    def __init__(self, client: Client, recorder: Recorder, informers: Informers) -> None:
        self._client, self._recorder = client, recorder
        of = informers.of
        self._instances, self._migrations = of(kinds.VMI), of(kinds.MIGRATION)
        self._nodes, self._settings = of(core.NODE), of(kinds.KUBEVIRT)
        self._pods = of(core.POD)
        self._created: dict[Key, str] = {}  # guest → its migration, while that is not cached
        self._stuck: dict[Key, str] = {}  # guest → the reason that was recorded last
        self._instances.index(_INDEX, _index_keys)
        self._migrations.index(_INDEX, lambda each: [] if request.is_final(each) else [_YES])
        self._pods.index(_INDEX, migration_uids)
        self._controller = Controller("evacuation", self.reconcile)
        for informer in (self._instances, self._migrations, self._nodes, self._pods):
            self._controller.watches(informer, lambda _: ())  # enqueued by the handlers below
        self._controller.watches(self._settings)
        self._instances.on_change(self._instance_changed)
        self._migrations.on_change(self._migration_changed)
        self._nodes.on_change(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _instance_changed(self, change: Change) -> None:
        old, new = _relevant(change.old), _relevant(change.new)
        if old != new and new is not None:
            self._controller.queue.add(_KUBEVIRT)

    def _migration_changed(self, change: Change) -> None:
        name = change.key.name
        self._created = {vmi: each for vmi, each in self._created.items() if each != name}
        self._controller.queue.add(_KUBEVIRT)

    def _node_changed(self, change: Change) -> None:
        taints = [
            ((each or {}).get("spec") or {}).get("taints") for each in (change.old, change.new)
        ]
        if taints[0] != taints[1]:
            self._controller.queue.add(_KUBEVIRT)

    async def reconcile(self, key: Key) -> Result:
        """Migrate the guests that must leave, as far as the limits allow."""
        if key != _KUBEVIRT:
            return DONE
        failed, steps = None, plan(self._snapshot())
        stuck = {step.guest for step in steps if isinstance(step, ReportStuck)}
        self._stuck = {guest: why for guest, why in self._stuck.items() if guest in stuck}
        for step in steps:
            try:
                await self._act(step)
            except ApiError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return DONE

    def _snapshot(self) -> Snapshot:
        kubevirt = self._settings.get(_KUBEVIRT)
        nodes = drained(self._nodes.list(), policy.settings(kubevirt)["nodeDrainTaintKey"])
        unfinished = self._migrations.by(_INDEX, _YES)
        # One that was created and is not in the cache yet counts as well.
        created = [request.Unfinished(n, "", vmi) for vmi, n in self._created.items()]
        active = [request.vmi_of(each) for each in unfinished if self._is_active(each)]
        found = {key_of(vmi): vmi for vmi in self._instances.by(_INDEX, _YES)}
        for node in nodes:
            found |= {key_of(vmi): vmi for vmi in self._instances.by(_INDEX, Key("", node))}
        default = settings.read(kubevirt).eviction_strategy
        sources = (node_of(self._instances.get(vmi)) for vmi in (*active, *self._created))
        return Snapshot(
            guests=tuple(read_guest(vmi, default) for vmi in found.values()),
            drained=nodes,
            migrations=(*map(request.read_unfinished, unfinished), *created),
            active=tuple(sources),
            limits=policy.limits(kubevirt),
        )

    def _is_active(self, migration: Object) -> bool:
        targets = self._pods.by(_INDEX, migration["metadata"]["uid"])
        return request.is_active(migration, targets)

    async def _act(self, step: Step) -> None:
        vmi = self._instances.get(step.guest)
        if vmi is None:
            return
        match step:
            case Migrate(node=node):
                await self._migrate(vmi, node)
            case ClearEvacuation():
                await self._clear(vmi)
            case ReportStuck(why=why):
                if self._stuck.get(step.guest) != why:
                    self._stuck[step.guest] = why
                    message = f"The guest has to leave node {node_of(vmi)} and cannot: {why}"
                    self._recorder.event(vmi, "Warning", "NoMigration", message)

    async def _migrate(self, vmi: Object, node: str) -> None:
        key = key_of(vmi)
        name = request.next_name(PREFIX, vmi, self._migrations.list(key.namespace))
        manifest = request.manifest(key, name, (EVACUATION, node), request.SYSTEM_CRITICAL)
        try:
            await self._client.create(kinds.MIGRATION, manifest, key.namespace)
        except AlreadyExists:
            return  # created before, and not in the cache yet
        except ApiError as error:
            message = f"Error creating a migration: {error.message}"
            self._recorder.event(vmi, "Warning", "FailedCreate", message)
            raise
        if self._migrations.get(Key(key.namespace, name)) is None:
            self._created[key] = name
        log.info("evacuation created", extra={"vmi": str(key), "migration": name})
        message = f"Created migration {name}: the guest has to leave node {node}"
        self._recorder.event(vmi, "Normal", "SuccessfulCreate", message)

    async def _clear(self, vmi: Object) -> None:
        meta = vmi["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {"metadata": version, "status": {"evacuationNodeName": None}}
        with contextlib.suppress(NotFound):
            await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)


def _index_keys(vmi: Object) -> list[object]:
    """Return the index keys of a guest: its node, and a mark if it is to be evacuated."""
    if not is_running(vmi):
        return []
    evacuated = bool(status_of(vmi).get("evacuationNodeName"))
    return [Key("", node_of(vmi)), *([_YES] if evacuated else [])]


def _relevant(vmi: Object | None) -> Guest | None:
    """Return what of an instance the decision depends on."""
    return read_guest(vmi, "") if vmi is not None and is_running(vmi) else None
