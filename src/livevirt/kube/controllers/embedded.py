"""The controllers a bare API server needs when no cluster runs them for us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Factory, Informers, Runtime
from livevirt.kube.controllers.events import Expiry
from livevirt.kube.controllers.gc.collector import Collector
from livevirt.kube.controllers.namespaces import Namespaces
from livevirt.kube.controllers.quota import Quotas
from livevirt.kube.controllers.scheduler.controller import Scheduler, Sources
from livevirt.kube.controllers.scheduler.objects import DEFAULT_SCHEDULER
from livevirt.kube.controllers.serviceaccounts import ServiceAccounts
from livevirt.kube.controllers.stored import Feed
from livevirt.kube.objects import core
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import Object
from livevirt.kube.store import Store

SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class Embedded:
    """What the controllers beside the store are built from."""

    runtime: Runtime
    store: Store
    feed: Feed
    not_run: Callable[[Object], str]  # why no node runs a pod


async def _collector(parts: Embedded) -> None:
    await Collector(parts.runtime.client, parts.store, parts.feed).run()


async def _namespaces(parts: Embedded) -> None:
    informer = parts.runtime.informers.of(core.NAMESPACE)
    await Namespaces(
        parts.runtime.client, parts.store, parts.runtime.now, informer, parts.feed
    ).run()


async def _service_accounts(parts: Embedded) -> None:
    informer = parts.runtime.informers.of(core.NAMESPACE)
    await ServiceAccounts(parts.runtime.client, parts.store, informer, parts.feed).run()


async def _quotas(parts: Embedded) -> None:
    informer = parts.runtime.informers.of(core.QUOTA)
    await Quotas(parts.runtime.client, parts.store, parts.runtime.now, informer, parts.feed).run()


async def _expiry(parts: Embedded) -> None:
    await Expiry(parts.runtime.client, parts.store, parts.runtime.now).run()


async def _scheduler(parts: Embedded) -> None:
    of = parts.runtime.informers.of
    client = parts.runtime.client.for_component(SCHEDULER)
    recorder = Recorder(client, DEFAULT_SCHEDULER, parts.runtime.now)
    sources = Sources(of(core.POD), of(core.NODE), of(core.NAMESPACE))
    scheduler = Scheduler(client, parts.runtime.now, recorder, sources, parts.not_run)
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run(), name="scheduler-events")
        group.create_task(scheduler.run(), name="scheduler")


#: What they need of the parts they take before they first wait: the feed begins right after.
CONTROLLERS: tuple[Callable[[Embedded], Coroutine[Any, Any, None]], ...] = (
    _collector,
    _namespaces,
    _service_accounts,
    _quotas,
    _expiry,
    _scheduler,
)


async def run(
    client: Client,
    store: Store,
    now: Now,
    registry: Registry,
    extra: Sequence[Factory] = (),
    not_run: Callable[[Object], str] = lambda pod: "",
) -> None:
    """Run the controllers of a bare API server, and those of `extra`, until cancelled.

    `not_run` returns why no node runs a pod, empty if nodes do.
    """
    runtime = Runtime(client, now, Informers(client))
    parts = Embedded(runtime, store, Feed(store, registry), not_run)
    async with asyncio.TaskGroup() as group:
        for controller in CONTROLLERS:
            group.create_task(controller(parts))
        for factory in extra:
            group.create_task(factory(runtime))
        runtime.informers.start(group)
        group.create_task(parts.feed.run(), name="feed")
