"""Empties namespaces that are being deleted, and then lets them go."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from livevirt.errors import ApiError, Conflict, LivevirtError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.controllers import stored
from livevirt.kube.controllers.stored import Feed
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.store import Event, Store
from livevirt.kube.store import Key as StoreKey

log = logging.getLogger(__name__)

FINALIZER = "kubernetes"
AT_ONCE = 64  # deletions under way together, so that the store commits them together


class NotEmptied(LivevirtError):
    """Some content could not be deleted; it is tried again."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a namespace still holds."""

    objects: dict[str, int] = field(default_factory=dict)  # resource → how many
    finalizers: dict[str, int] = field(default_factory=dict)  # finalizer → on how many objects
    refusals: tuple[str, ...] = ()  # why content could not be deleted


@dataclass(frozen=True, slots=True)
class Finish:
    """Let the namespace go."""

    finalizers: tuple[str, ...]  # of others, which it keeps


@dataclass(frozen=True, slots=True)
class Report:
    """Report in the status what the namespace waits for."""

    conditions: list[Object]


def plan(namespace: Object, content: Content, now: datetime) -> Finish | Report | None:
    """Return what to do with a namespace whose content is being deleted; None: nothing new."""
    finalizers = (namespace.get("spec") or {}).get("finalizers") or []
    if "deletionTimestamp" not in namespace["metadata"] or FINALIZER not in finalizers:
        return None
    if not content.objects and not content.refusals:
        return Finish(tuple(name for name in finalizers if name != FINALIZER))
    before = status_of(namespace).get("conditions")
    after = before
    for condition in _conditions(content):
        after = conditions.with_condition(after, condition, now)
    return Report(after or []) if after is not before else None


def _conditions(content: Content) -> list[Object]:
    refusals, objects, held = content.refusals, content.objects, content.finalizers
    return [
        _condition("NamespaceDeletionContentFailure", bool(refusals),
                   ("ContentDeletionFailed", "; ".join(refusals[:3])),
                   ("ContentDeleted", "all content is marked for deletion")),
        _condition("NamespaceContentRemaining", bool(objects),
                   ("SomeResourcesRemain", f"still there: {_listed(objects)}"),
                   ("ContentRemoved", "nothing is left")),
        _condition("NamespaceFinalizersRemaining", bool(held),
                   ("SomeFinalizersRemain", f"finalizers wait to be removed: {_listed(held)}"),
                   ("ContentHasNoFinalizers", "no content is held by a finalizer")),
    ]  # fmt: skip


def _condition(type_: str, holds: bool, yes: tuple[str, str], no: tuple[str, str]) -> Object:
    reason, message = yes if holds else no
    return conditions.condition(type_, holds, reason, message)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({counts[name]})" for name in sorted(counts))


class Namespaces:
    """Watches namespaces; changes of their content come from the feed."""

    def __init__(
        self, client: Client, store: Store, now: Now, namespaces: Informer, feed: Feed
    ) -> None:
        self._client, self._store, self._now = client, store, now
        self._namespaces = namespaces
        self._going: set[str] = set()
        self._controller = Controller("namespaces", self.reconcile, workers=2)
        self._controller.watches(namespaces)
        self._kinds = feed.registry.stored
        feed.subscribe(self._note)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _note(self, event: Event) -> None:
        if event.type != "MODIFIED" and event.key.namespace in self._going:
            self._controller.queue.add(Key("", event.key.namespace))

    async def reconcile(self, key: Key) -> Result:
        """Bring a namespace that is being deleted closer to its end."""
        namespace = self._namespaces.get(key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            self._going.discard(key.name)
            return DONE
        self._going.add(key.name)
        refusals = await self._delete_content(key.name)
        content = await self._observe(key.name, refusals)
        try:
            await self._act(namespace, plan(namespace, content, self._now()))
        except NotFound:
            return DONE
        if refusals:
            raise NotEmptied(f"{key.name}: {refusals[0]}")
        return DONE

    async def _delete_content(self, namespace: str) -> list[str]:
        """Delete what is not going yet; return what was said against it."""
        targets = [
            (key, found.uid)
            for resource in self._resources(namespace)
            async for key, value in stored.scan(self._store, resource, namespace)
            if not (found := stored.decode_header(value)).deleting
        ]
        refusals: list[str] = []
        waiting = iter(targets)
        while batch := list(islice(waiting, AT_ONCE)):
            answers = await asyncio.gather(*(self._delete(key, uid) for key, uid in batch))
            refusals += filter(None, answers)
        return refusals

    async def _delete(self, key: StoreKey, uid: str) -> str:
        try:
            await self._client.delete(
                self._kinds[key.resource],
                key.name,
                key.namespace,
                uid=uid,
                propagation="Background",
            )
        except (NotFound, Conflict):
            return ""  # gone, or another one by now, which the feed reports
        except ApiError as error:
            return error.message
        return ""

    async def _observe(self, namespace: str, refusals: Iterable[str]) -> Content:
        held: Counter[str] = Counter()
        objects: Counter[str] = Counter()
        for resource in self._resources(namespace):
            async for _, value in stored.scan(self._store, resource, namespace):
                objects[resource] += 1
                held.update(stored.decode_header(value).finalizers or ())
        return Content(dict(objects), dict(held), tuple(refusals))

    def _resources(self, namespace: str) -> list[str]:
        return [
            resource
            for resource, kind in self._kinds.items()
            if kind.namespaced and self._store.count(resource, namespace)
        ]

    async def _act(self, namespace: Object, step: Finish | Report | None) -> None:
        meta = namespace["metadata"]
        match step:
            case Finish(finalizers):
                spec = {**namespace["spec"], "finalizers": list(finalizers)}
                await self._client.update(
                    core.NAMESPACE, {**namespace, "spec": spec}, subresource="finalize"
                )
                log.info("namespace emptied", extra={"namespace": meta["name"]})
            case Report(wanted):
                named = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
                await self._client.patch(
                    core.NAMESPACE, meta["name"], "",
                    {"metadata": named, "status": {"conditions": wanted}}, subresource="status",
                )  # fmt: skip
