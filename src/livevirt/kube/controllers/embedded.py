"""The controllers a bare API server needs when no cluster runs them for us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informers import Informers
from livevirt.kube.controllers.events import Expiry
from livevirt.kube.controllers.feed import Feed
from livevirt.kube.controllers.gc.collector import Collector
from livevirt.kube.controllers.namespaces import Namespaces
from livevirt.kube.controllers.quota import Quotas
from livevirt.kube.controllers.scheduler.controller import Scheduler
from livevirt.kube.controllers.scheduler.pod import DEFAULT_SCHEDULER
from livevirt.kube.controllers.serviceaccounts import ServiceAccounts
from livevirt.kube.objects import core
from livevirt.kube.store import Store


@dataclass(frozen=True, slots=True)
class Shared:
    """What every controller is built from."""

    client: Client
    store: Store
    now: Now
    informers: Informers
    feed: Feed


#: Builds a controller from the shared parts and runs it until cancelled. What it needs of them it
#: takes before it first waits: the feed begins right after.
Factory = Callable[[Shared], Coroutine[Any, Any, None]]


async def _collector(shared: Shared) -> None:
    await Collector(shared.client, shared.store, shared.feed).run()


async def _namespaces(shared: Shared) -> None:
    informer = shared.informers.of(core.NAMESPACE)
    await Namespaces(shared.client, shared.store, shared.now, informer, shared.feed).run()


async def _service_accounts(shared: Shared) -> None:
    informer = shared.informers.of(core.NAMESPACE)
    await ServiceAccounts(shared.client, shared.store, informer, shared.feed).run()


async def _quotas(shared: Shared) -> None:
    informer = shared.informers.of(core.QUOTA)
    await Quotas(shared.client, shared.store, shared.now, informer, shared.feed).run()


async def _expiry(shared: Shared) -> None:
    await Expiry(shared.client, shared.store, shared.now).run()


async def _scheduler(shared: Shared) -> None:
    kinds = (core.POD, core.NODE, core.NAMESPACE)
    recorder = Recorder(shared.client, DEFAULT_SCHEDULER, shared.now)
    informers = (shared.informers.of(kind) for kind in kinds)
    scheduler = Scheduler(shared.client, shared.now, recorder, *informers)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="scheduler-events")
        group.create_task(scheduler.run(), name="scheduler")


FACTORIES: tuple[Factory, ...] = (
    _collector,
    _namespaces,
    _service_accounts,
    _quotas,
    _expiry,
    _scheduler,
)


async def run(client: Client, store: Store, now: Now, extra: Sequence[Factory] = ()) -> None:
    """Run the controllers, and those of `extra`, until cancelled."""
    shared = Shared(client, store, now, Informers(client), Feed(store))
    async with asyncio.TaskGroup() as group:
        for factory in (*FACTORIES, *extra):
            group.create_task(factory(shared))
        shared.informers.start(group)
        group.create_task(shared.feed.run(), name="feed")
