"""Counts what namespaces use of their ResourceQuotas.

Admission adds what is created at once; what is given back, and a quota's first count, come from
here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from livevirt.errors import NotFound
from livevirt.kube.admission import quotas
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.controllers.stored import Feed
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quota_usage import tracks
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.store import Event, Store
from livevirt.kube.store import Key as StoreKey

GATHER = 0.1  # seconds in which changes are counted together
AGAIN = Result(after=timedelta(minutes=5))  # some usage ends by the clock alone
_SHRINK = (core.POD.resource, core.CLAIM.resource)  # may give back while they live


def counted_kinds(registry: Registry, quota: Object) -> list[Kind]:
    """Return the kinds whose objects a quota counts."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    return [
        kind
        for kind in registry.stored.values()
        if kind.namespaced and any(tracks(kind, resource) for resource in hard)
    ]


class Quotas:
    """Watches quotas; changes of what they count come from the feed."""

    def __init__(
        self, client: Client, store: Store, now: Now, informer: Informer, feed: Feed
    ) -> None:
        self._client, self._store, self._now = client, store, now
        self._registry = feed.registry
        self._informer = informer
        informer.index("namespace", lambda quota: [quota["metadata"]["namespace"]])
        self._controller = Controller("quota", self.reconcile)
        self._controller.watches(informer)
        feed.subscribe(self._note)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _note(self, event: Event) -> None:
        given_back = event.type == "DELETED" or (
            event.type == "MODIFIED" and event.key.resource in _SHRINK
        )
        if given_back and event.key.namespace:
            for quota in self._informer.by("namespace", event.key.namespace):
                self._controller.queue.add_after(key_of(quota), GATHER)

    async def reconcile(self, key: Key) -> Result:
        """Write a quota's count if the status differs."""
        # The quota is read before what it counts: a charge made in between makes our write fail.
        stored = self._store.get(StoreKey(core.QUOTA.resource, *key))
        if stored is None:
            return DONE
        quota: Object = msgspec.json.decode(stored.value)
        counted = {
            kind: self._objects(kind, key.namespace)
            for kind in counted_kinds(self._registry, quota)
        }
        status = quotas.recount(quota, counted, self._now())
        if status != status_of(quota):
            try:
                await self._client.update(
                    core.QUOTA, {**quota, "status": status}, subresource="status"
                )
            except NotFound:
                return DONE
        return AGAIN

    def _objects(self, kind: Kind, namespace: str) -> Iterable[Object]:
        page = self._store.list(kind.resource, namespace)
        return (msgspec.json.decode(item.value) for item in page.items)
