"""The controllers a bare API server needs when no cluster runs them for us."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Factory, Informers, Runtime
from livevirt.kube.control.supervisor import Supervisor, Work
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


def _run_everything(pod: Object) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What differs between a server and a test of single controllers."""

    not_run: Callable[[Object], str] = _run_everything  # why no node runs a pod; "" if nodes do
    supervisor: Supervisor | None = None  # restarts one that fails, which ends them all without


async def run(
    client: Client,
    store: Store,
    now: Now,
    registry: Registry,
    extra: Sequence[Factory] = (),
    environment: Environment | None = None,
) -> None:
    """Run the controllers of a bare API server, and those of `extra`, until cancelled."""
    environment = environment or Environment()
    supervisor = environment.supervisor
    runtime = Runtime(client, now, Informers(client))
    parts = Embedded(runtime, store, Feed(store, registry), environment.not_run)
    works: list[tuple[str, Work]] = [
        *((_name(each), functools.partial(each, parts)) for each in CONTROLLERS),
        *((_name(each), functools.partial(each, runtime)) for each in extra),
    ]
    async with asyncio.TaskGroup() as group:
        for name, work in works:
            group.create_task(supervisor.keep(name, work) if supervisor else _once(work), name=name)
        runtime.informers.start(group, supervisor)
        feed = parts.feed.run
        group.create_task(supervisor.keep("feed", feed) if supervisor else feed(), name="feed")


async def _once(work: Work) -> None:
    await work()


def _name(factory: Callable[..., Any]) -> str:
    """Return a controller's name: that of its function, or of the module if all are called so."""
    if isinstance(factory, functools.partial):
        factory = factory.func
    name = factory.__name__.strip("_")
    return factory.__module__.removeprefix("livevirt.") if name == "run" else name
