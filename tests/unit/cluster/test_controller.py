from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import cast

from livevirt.cluster import controller
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.runtime import Informers, Runtime
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import User
from livevirt.vm import controllers
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.monitoring.collector import Collector

from ..kube.control.memory_handler import MemoryHandler, settle


class Recording:
    """Makes informers, and keeps what was asked for."""

    def __init__(self, client: LocalClient) -> None:
        self._informers = Informers(client)
        self.asked: set[tuple[Kind, str]] = set()

    def of(self, kind: Kind, labels: str = "") -> Informer:
        self.asked.add((kind, labels))
        return self._informers.of(kind, labels)


async def test_given_the_controllers_then_a_waiting_replica_caches_all_that_they_watch() -> None:
    client = LocalClient(MemoryHandler(), User("me"))
    recording = Recording(client)
    runtime = Runtime(client, lambda: datetime.now(UTC), cast(Informers, recording))
    factories = (*controllers.ALL, Collector().run)
    tasks = [asyncio.ensure_future(factory(runtime)) for factory in factories]
    await settle()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    cached = {(kind, "") for kind in controller.CACHED} | {(core.REVISION, revisions.NAME)}
    assert recording.asked == cached
