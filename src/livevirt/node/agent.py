"""The node agent: sees to it that the pods bound to its node run as QEMU, and says what is true.

It can be killed at any moment, and guests run on. What it finds at its start it takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import Controller
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.key import Key, key_of
from livevirt.kube.objects.quantity import Quantity
from livevirt.kube.objects.request import Object
from livevirt.node import events, log_cap, parting
from livevirt.node.cgroups import Cgroups
from livevirt.node.guest import Guest
from livevirt.node.host import Host
from livevirt.node.images import ImageStore
from livevirt.node.keeper import Keeper
from livevirt.node.local import Local, Locals
from livevirt.node.mover import Mover
from livevirt.node.registration import Facts, Registration
from livevirt.node.report import Reporter
from livevirt.node.scratch import Scratch
from livevirt.node.start import Starter
from livevirt.node.volumes import Volumes
from livevirt.node.watched import Watched
from livevirt.paths import DataDir
from livevirt.vm.volumes.volume_lists import claim_of

WORKERS = 8

#: Called whenever something about a guest may be new: what QEMU says, or its agent.
GuestWatcher = Callable[[Guest], None]


class Agent:
    """One node. `run` it; ask it for guests."""

    def __init__(
        self,
        name: str,
        client: Client,
        data: DataDir,
        images: ImageStore,
        capacity: Mapping[str, Quantity],
        host: Host,
        now: Now,
        *,
        retired: bool = False,
    ) -> None:
        self.name = name
        self.watchers: list[GuestWatcher] = []
        self._host, self._now = host, now
        self._watched = Watched(client, name)
        self._cgroups = Cgroups.discover(name, capacity["cpu"].milli())
        facts = Facts(
            name,
            capacity,
            host.accelerator,
            host.qemu,
            self._cgroups.problem,
            offer=host.offer,
            shared_cpus=self._cgroups.cpuset_problem,
            retired=retired,
        )
        self._registration = Registration(client, facts, now)
        self._recorder = Recorder(client, events.COMPONENT, now, name)
        volumes = Volumes(
            client, images, (data.volumes,), host.account.owner if host.account else None
        )
        starter = Starter(name, host, volumes, self._cgroups, Scratch(data.scratch))
        self._mover = mover = Mover(name, client, self._recorder, starter, host.handovers, now)
        self._reporter = Reporter(
            client, self._recorder, starter, self._watched, mover, capacity, now
        )
        self._locals = Locals(data.nodes / name / "pods", data.run, self._wake)
        self._keeper = Keeper(
            client, self._watched, self._locals, starter, mover, self._reporter, now
        )
        self._controller = Controller(f"node-{name}", self._keeper.reconcile, workers=WORKERS)

    async def run(self) -> None:
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
                for what, informer in watched:
                    group.create_task(informer.run(), name=f"{self.name}-{what}")
                group.create_task(self._recorder.run(), name=f"{self.name}-events")
                group.create_task(self._registration.run(), name=f"{self.name}-registration")
                group.create_task(self._controller.run(), name=f"{self.name}-pods-controller")
                group.create_task(log_cap.keep_short(self._logs), name=f"{self.name}-logs")
        finally:
            await parting.settle(self._locals, self._host.handovers, self._now)
            for local in self._locals:
                await local.close()

    @property
    def unconfined(self) -> str:
        """Why pods have no limits here; empty if they have."""
        return self._cgroups.problem

    @property
    def shares_cpus(self) -> str:
        """Why no pod can have CPUs of its own here; empty if it can."""
        return self._cgroups.cpuset_problem

    def pods(self) -> list[Local]:
        """Return what this node has of its pods."""
        return list(self._locals)

    def guest(self, namespace: str, vmi: str) -> Guest | None:
        """Return the running guest of a VMI, if it is on this node."""
        return self._locals.guest(namespace, vmi)

    def grace(self, namespace: str, vmi: str) -> int:
        """Return the seconds that a VMI's guest has to shut down, as far as it says."""
        found = self._watched.vmis.get(Key(namespace, vmi))
        return int((found or {"spec": {}})["spec"].get("terminationGracePeriodSeconds") or 0)

    def moves(self, namespace: str, vmi: str) -> bool:
        """Tell whether a guest of this node is about to leave it."""
        return any(
            self._mover.leaves(local, self._keeper.instance(local))
            for local in self._locals.named(namespace, vmi)
        )

    def held_pod(self, key: Key) -> Local | None:
        """Return what this node has of a pod, once it was started."""
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
            own = local.intent.exclusive if local.intent else None
            self._host.cpus.adopt(local.folder.uid, own.cpus if own else (), local.cgroup)
            self._controller.queue.add(local.key)

    def _pods_with(self, claim: Object) -> list[Key]:
        """Return the pods whose guests have a claim, for their status tells of it."""
        named = key_of(claim)
        return [
            local.key
            for local in self._locals
            if local.key.namespace == named.namespace
            and (vmi := self._keeper.instance(local)) is not None
            and any(claim_of(each) == named.name for each in vmi["spec"].get("volumes") or ())
        ]

    def _logs(self) -> Iterator[Path]:
        for local in self._locals:
            yield from local.folder.logs

    def _retry_deferred(self, change: Change) -> None:
        for key in self._reporter.deferred - {change.key}:
            self._controller.queue.add(key)

    def _retry_volumes(self, change: Change) -> None:
        for local in self._locals:
            if local.attacher is not None and local.key.namespace == change.key.namespace:
                local.attacher.nudge(change.key.name)
