"""Moves guests off the nodes they have to leave."""

from __future__ import annotations

import contextlib
import logging

from livevirt.errors import ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.key import Key, key_of
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.evacuation import events, view
from livevirt.vm.evacuation.plan import Clear, Migrate, Step, Stuck, plan
from livevirt.vm.migration import policy, request
from livevirt.vm.migration.view import EVACUATION, jobs
from livevirt.vm.verdict import edit

log = logging.getLogger(__name__)

PREFIX = "kubevirt-evacuation-"
_KUBEVIRT = Key(settings.NAMESPACE, settings.NAME)
_INDEX, _YES = "evacuation", "yes"


class Evacuations:
    """Watches instances, nodes, migrations and settings; everything is decided in one pass."""

    def __init__(self, client: Client, recorder: Recorder, informers: Informers) -> None:
        self._client, self._recorder = client, recorder
        of = informers.of
        self._instances, self._migrations = of(kinds.VMI), of(kinds.MIGRATION)
        self._nodes, self._settings = of(core.NODE), of(kinds.KUBEVIRT)
        self._pods = of(core.POD)
        self._asked: dict[Key, str] = {}  # guest → the migration of it not seen yet
        self._told: dict[Key, str] = {}  # guest → why it stays
        self._instances.index(_INDEX, _places)
        self._migrations.index(_INDEX, lambda each: [] if request.final(each) else [_YES])
        self._pods.index(_INDEX, jobs)
        self._controller = Controller("evacuation", self.reconcile)
        for informer in (self._instances, self._migrations, self._nodes, self._pods):
            self._controller.watches(informer, lambda _: ())  # woken by those below
        self._controller.watches(self._settings)
        self._instances.on_change(self._note)
        self._migrations.on_change(self._note_migration)
        self._nodes.on_change(self._note_node)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _note(self, change: Change) -> None:
        old, new = _view(change.old), _view(change.new)
        if old != new and new is not None:
            self._controller.queue.add(_KUBEVIRT)

    def _note_migration(self, change: Change) -> None:
        self._asked = {vmi: name for vmi, name in self._asked.items() if name != change.key.name}
        self._controller.queue.add(_KUBEVIRT)

    def _note_node(self, change: Change) -> None:
        taints = [
            ((each or {}).get("spec") or {}).get("taints") for each in (change.old, change.new)
        ]
        if taints[0] != taints[1]:
            self._controller.queue.add(_KUBEVIRT)

    async def reconcile(self, key: Key) -> Result:
        """Move those that must leave, as far as that may be now."""
        if key != _KUBEVIRT:
            return DONE
        failed, steps = None, plan(self._seen())
        stuck = {step.guest for step in steps if isinstance(step, Stuck)}
        self._told = {guest: why for guest, why in self._told.items() if guest in stuck}
        for step in steps:
            try:
                await self._do(step)
            except ApiError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return DONE

    def _seen(self) -> view.Seen:
        kubevirt = self._settings.get(_KUBEVIRT)
        drained = view.drained(self._nodes.list(), policy.settings(kubevirt)["nodeDrainTaintKey"])
        under_way = self._migrations.by(_INDEX, _YES)
        # One that was asked for and is not seen yet counts as well.
        asked = [request.Unfinished(n, "", vmi) for vmi, n in self._asked.items()]
        going = [request.vmi_of(each) for each in under_way if self._counts(each)]
        found = {key_of(vmi): vmi for vmi in self._instances.by(_INDEX, _YES)}
        for node in drained:
            found |= {key_of(vmi): vmi for vmi in self._instances.by(_INDEX, Key("", node))}
        usual = settings.read(kubevirt).eviction_strategy
        return view.Seen(
            guests=tuple(view.guest(vmi, usual) for vmi in found.values()),
            drained=drained,
            migrations=(*map(request.unfinished, under_way), *asked),
            leaving=tuple(edit.node_of(self._instances.get(vmi)) for vmi in (*going, *self._asked)),
            limits=policy.limits(kubevirt),
        )

    def _counts(self, migration: Object) -> bool:
        targets = self._pods.by(_INDEX, migration["metadata"]["uid"])
        return request.counts(migration, targets)

    async def _do(self, step: Step) -> None:
        vmi = self._instances.get(step.guest)
        if vmi is None:
            return
        match step:
            case Migrate(node=node):
                await self._migrate(vmi, node)
            case Clear():
                await self._clear(vmi)
            case Stuck(why=why):
                if self._told.get(step.guest) != why:
                    self._told[step.guest] = why
                    events.stuck(self._recorder, vmi, edit.node_of(vmi), why)

    async def _migrate(self, vmi: Object, node: str) -> None:
        key = key_of(vmi)
        order = request.request(key, PREFIX, (EVACUATION, node), request.SYSTEM_CRITICAL)
        try:
            made = await self._client.create(kinds.MIGRATION, order, key.namespace)
        except ApiError as error:
            events.not_asked(self._recorder, vmi, error.message)
            raise
        name = made["metadata"]["name"]
        if self._migrations.get(Key(key.namespace, name)) is None:
            self._asked[key] = name
        log.info("evacuation asked for", extra={"vmi": str(key), "migration": name})
        events.asked(self._recorder, vmi, name, node)

    async def _clear(self, vmi: Object) -> None:
        meta = vmi["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {"metadata": version, "status": {"evacuationNodeName": None}}
        with contextlib.suppress(NotFound):
            await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)


def _places(vmi: Object) -> list[object]:
    """Return what a guest is found under: its node, and a mark if an eviction marked it."""
    if not view.runs(vmi):
        return []
    marked = bool((vmi.get("status") or {}).get("evacuationNodeName"))
    return [Key("", edit.node_of(vmi)), *([_YES] if marked else [])]


def _view(vmi: Object | None) -> view.Guest | None:
    """Return what of an instance the decision depends on."""
    return view.guest(vmi, "") if vmi is not None and view.runs(vmi) else None
