"""Installs the catalog of instance types and preferences, and keeps it at its version.

Missing objects are created, so a deleted one is back after the next start; ours of another version
are replaced; everything else is its owner's and left alone, and nothing is ever deleted. With
`commonInstancetypesDeployment.enabled: false` in the KubeVirt object nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import NamedTuple

from livevirt import catalog
from livevirt.catalog import guests, series
from livevirt.errors import AlreadyExists
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.runtime import Runtime
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config

log = logging.getLogger(__name__)

_SETTINGS = Key(config.NAMESPACE, config.NAME)


class Writes(NamedTuple):
    """What makes the objects of one kind those of the catalog."""

    create: list[Object]
    replace: list[Object]


def plan(wanted: Iterable[Object], found: Iterable[Object]) -> Writes:
    """Return what is missing and what is ours but of another version, as it should be."""
    there = {obj["metadata"]["name"]: obj for obj in found}
    writes = Writes([], [])
    for obj in wanted:
        old = there.get(obj["metadata"]["name"])
        if old is None:
            writes.create.append(obj)
        elif catalog.is_ours(old) and catalog.version_of(old) != catalog.version_of(obj):
            writes.replace.append(_upgraded(old, obj))
    return writes


def _upgraded(old: Object, new: Object) -> Object:
    """Return the new object in the old one's place; what others labelled it with stays."""
    meta = dict(old["metadata"])
    for field in ("labels", "annotations"):
        meta[field] = {**_foreign(meta.get(field) or {}), **new["metadata"][field]}
    return {**new, "metadata": meta}


def _foreign(marks: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in marks.items() if not key.startswith(catalog.PREFIX)}


def enabled(kubevirt: Object) -> bool:
    """Return whether the KubeVirt object wants the catalog, which is the default."""
    settings = (kubevirt.get("spec") or {}).get("configuration") or {}
    deployment = settings.get("commonInstancetypesDeployment") or {}
    return deployment.get("enabled") is not False


class Catalog:
    """Installs the catalog once it is wanted; a quiet start costs one list of each kind."""

    def __init__(self, client: Client, informer: Informer) -> None:
        self._client, self._informer = client, informer
        self._controller = Controller("catalog", self.reconcile).watches(informer)
        self._installed = False

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result:
        """Install the catalog if the KubeVirt object wants it and that has not been done yet."""
        if key != _SETTINGS:
            return DONE
        obj = self._informer.get(key)
        wanted = obj is not None and enabled(obj)
        if wanted and not self._installed:
            await install(self._client)
        self._installed = wanted
        return DONE


async def install(client: Client) -> None:
    """Bring both kinds to the catalog's version."""
    for kind, wanted in (
        (kinds.CLUSTER_INSTANCETYPE, series.instancetypes()),
        (kinds.CLUSTER_PREFERENCE, guests.preferences()),
    ):
        writes = plan(wanted, (await client.list(kind)).items)
        async with asyncio.TaskGroup() as group:  # the store commits together what waits together
            for obj in writes.create:
                group.create_task(_create(client, kind, obj))
            for obj in writes.replace:
                group.create_task(client.update(kind, obj))
        if any(writes):
            counts = {"new": len(writes.create), "replaced": len(writes.replace)}
            facts = {"kind": kind.kind, "version": catalog.VERSION, **counts}
            log.info("catalog installed", extra=facts)


async def _create(client: Client, kind: Kind, obj: Object) -> None:
    with contextlib.suppress(AlreadyExists):  # a user was quicker: it is theirs
        await client.create(kind, obj)


async def run(runtime: Runtime) -> None:
    """Run the controller until cancelled; a factory for `embedded.run`."""
    client = runtime.client.for_component("catalog-controller")
    await Catalog(client, runtime.informers.of(kinds.KUBEVIRT)).run()
