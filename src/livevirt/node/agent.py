"""The node agent: runs the pods bound to its node as QEMU processes, and reports their status.

It can be killed at any moment, and guests run on. What it finds when it starts it takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key, key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import Controller
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.supervisor import Supervisor, Work
from livevirt.kube.objects.request import Object
from livevirt.node import events, pod_dir
from livevirt.node.guest import Guest
from livevirt.node.host import Host
from livevirt.node.local import Local, Locals
from livevirt.node.migration import stop
from livevirt.node.migration.migrations import NodeMigrations
from livevirt.node.pod_reconciler import PodReconciler
from livevirt.node.report import Reporter
from livevirt.node.runtime import PodReporter, Runtime
from livevirt.node.start import Starter
from livevirt.node.volumes import NodeVolumes
from livevirt.node.watched import NodeApi, Watched
from livevirt.vm.volumes.volume_lists import claim_of

WORKERS = 8

#: Called whenever something about a guest may be new: reported by QEMU or by the agent.
GuestWatcher = Callable[[Guest], None]


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What differs between a node of this machine and one of a cluster."""

    runtime: Runtime
    volumes: NodeVolumes
    pods: PodReporter
    registration: Work  # keeps the Node object current until cancelled
    watch: Callable[[Iterable[Local]], Awaitable[None]] | None = None  # wakes pods, until cancelled
    unconfined: str = ""  # why pods have no limits here; empty if they have
    shares_cpus: str = ""  # why no pod can have dedicated CPUs here; empty if it can


class Agent:
    """One node. `run` it; ask it for guests."""

    def __init__(
        self, name: str, client: Client, host: Host, now: Now, setup: Callable[[NodeApi], NodeParts]
    ) -> None:
        self.name = name
        self.watchers: list[GuestWatcher] = []
        self._host, self._now = host, now
        self._watched = Watched(client, name)
        self._recorder = Recorder(client, events.COMPONENT, now, name)
        api = NodeApi(name, client, self._watched, self._recorder, now)
        self.parts = parts = setup(api)
        starter = Starter(name, host, parts.volumes, parts.runtime)
        self._migrations = NodeMigrations(api, starter, host.handovers)
        self._reporter = Reporter(api, starter, self._migrations, parts.pods)
        self._locals = Locals(parts.runtime, self._wake)
        self._reconciler = PodReconciler(
            api, self._locals, starter, self._migrations, self._reporter
        )
        self._controller = Controller(f"node-{name}", self._reconciler.reconcile, workers=WORKERS)

    async def run(self, supervisor: Supervisor) -> None:
        """Work until cancelled; guests run on."""
        watched = self._watched
        self._controller.watches(watched.pods).watches(watched.vmis, watched.pods_of)
        self._controller.watches(watched.claims, self._pods_with)
        watched.pods.on_change(self._retry_deferred)
        for claims in (watched.claims, watched.data_volumes):  # a DataVolume's claim has its name
            claims.on_change(self._retry_volumes)
        self._adopt()
        try:
            async with asyncio.TaskGroup() as group:
                for what, work in self._works():
                    name = f"{self.name}-{what}"
                    group.create_task(supervisor.keep(name, work), name=name)
        finally:
            await stop.settle(self._locals, self._host.handovers, self._now)
            for local in self._locals:
                await local.close()

    def _works(self) -> Iterator[tuple[str, Work]]:
        """Yield what runs in the background; each may fail and be run again by itself."""
        for what, informer in self._watched:
            yield what, informer.run
        yield "events", self._recorder.run
        yield "registration", self.parts.registration
        yield "pods-controller", self._controller.run
        if (watch := self.parts.watch) is not None:
            yield "pods-watch", lambda: watch(self._locals)
        yield "logs", lambda: pod_dir.keep_short(self._logs)

    @property
    def unconfined(self) -> str:
        """Why pods have no limits here; empty if they have."""
        return self.parts.unconfined

    @property
    def shares_cpus(self) -> str:
        """Why no pod can have dedicated CPUs here; empty if it can."""
        return self.parts.shares_cpus

    def pods(self) -> list[Local]:
        """Return what this node has of its pods."""
        return list(self._locals)

    def guest(self, namespace: str, vmi: str) -> Guest | None:
        """Return the running guest of a VMI, if it is on this node."""
        return self._locals.guest(namespace, vmi)

    def grace(self, namespace: str, vmi: str) -> int:
        """Return the seconds that a VMI's guest has to shut down, if it is set."""
        found = self._watched.vmis.get(Key(namespace, vmi))
        return int((found or {"spec": {}})["spec"].get("terminationGracePeriodSeconds") or 0)

    def is_leaving(self, namespace: str, vmi: str) -> bool:
        """Return whether a guest of this node is migrating to another one."""
        return any(
            self._migrations.is_leaving(local, self._reconciler.instance(local))
            for local in self._locals.named(namespace, vmi)
        )

    def held_pod(self, key: Key) -> Local | None:
        """Return what this node keeps of a pod, once it was started."""
        pod = self._watched.pods.get(key)
        local = self._locals.get(pod["metadata"]["uid"]) if pod else None
        return local if local and local.intent else None

    def _wake(self, key: Key) -> None:
        """Queue a pod for reconciling, and notify the watchers of its guest."""
        self._controller.queue.add(key)
        for local in self._locals.of_key(key):
            if local.guest is not None:
                for watcher in self.watchers:
                    watcher(local.guest)

    def _adopt(self) -> None:
        """Take over what an earlier run left."""
        for local in self._locals.adopt():
            self.parts.runtime.adopt(local)
            self._controller.queue.add(local.key)

    def _pods_with(self, claim: Object) -> list[Key]:
        """Return the pods whose guests use a claim, because it is part of their status."""
        named = key_of(claim)
        return [
            local.key
            for local in self._locals
            if local.key.namespace == named.namespace
            and (vmi := self._reconciler.instance(local)) is not None
            and any(claim_of(each) == named.name for each in vmi["spec"].get("volumes") or ())
        ]

    def _logs(self) -> Iterator[Path]:
        for local in self._locals:
            yield from local.folder.logs

    def _retry_deferred(self, change: Change) -> None:
        for key in self.parts.pods.waiting(change):
            self._controller.queue.add(key)

    def _retry_volumes(self, change: Change) -> None:
        for local in self._locals:
            if local.attacher is not None and local.key.namespace == change.key.namespace:
                local.attacher.nudge(change.key.name)
