"""Keeps a ServiceAccount `default` in every namespace."""

from __future__ import annotations

import contextlib
import logging

from livevirt.errors import AlreadyExists, Forbidden, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.controllers.stored import Feed
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.kube.store import Event, Store
from livevirt.kube.store import Key as StoreKey

log = logging.getLogger(__name__)

NAME = "default"
_RESOURCE = core.SERVICE_ACCOUNT.resource


def wanted(namespace: Object | None, present: bool) -> Object | None:
    """Return the account to create, or None if there is nothing to do."""
    if namespace is None or present or "deletionTimestamp" in namespace["metadata"]:
        return None
    metadata = {"name": NAME, "namespace": namespace["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


class ServiceAccounts:
    """Watches namespaces, and accounts that are deleted."""

    def __init__(self, client: Client, store: Store, namespaces: Informer, feed: Feed) -> None:
        self._client, self._store, self._namespaces = client, store, namespaces
        self._controller = Controller("serviceaccounts", self.reconcile)
        self._controller.watches(namespaces)
        feed.subscribe(self._note)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _note(self, event: Event) -> None:
        key = event.key
        if event.type == "DELETED" and key.resource == _RESOURCE and key.name == NAME:
            self._controller.queue.add(Key("", key.namespace))

    async def reconcile(self, key: Key) -> Result:
        """See to it that a namespace has its account."""
        present = self._store.get(StoreKey(_RESOURCE, key.name, NAME)) is not None
        account = wanted(self._namespaces.get(key), present)
        if account is not None:
            # It was created in between, or the namespace has gone or begins to: all is well.
            with contextlib.suppress(AlreadyExists, NotFound, Forbidden):
                await self._client.create(core.SERVICE_ACCOUNT, account, key.name)
                log.info("service account created", extra={"namespace": key.name})
        return DONE
