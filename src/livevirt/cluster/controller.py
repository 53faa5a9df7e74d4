"""`livevirt controller`: the controllers of virtual machines on a Kubernetes cluster.

They are those of the embedded server. Scheduler, garbage collector, quota and claims are
Kubernetes' own here.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from livevirt.cluster import fields
from livevirt.cluster.endpoints import Endpoints
from livevirt.cluster.leader import Candidacy, Leader
from livevirt.kube.client.access import Access
from livevirt.kube.client.limits import COMPONENT, Limits
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.client.transport import Transport
from livevirt.kube.control.metrics import Family, Histogram, Sample
from livevirt.kube.control.requests import Requests
from livevirt.kube.control.runtime import Factory, Informers, Runtime
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.vm import controllers, kinds
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.lifecycle.vmi.pod_runtime import Kubelet
from livevirt.vm.monitoring.collector import Collector

log = logging.getLogger(__name__)

NAME = "livevirt-controller"
LEADER = Family(
    "livevirt_leader", "gauge",
    "Whether this replica of a component is the one that works (1) or waits (0).",
    ("component",),
)  # fmt: skip
FAMILIES: tuple[Family, ...] = (LEADER,)

#: Cached also while another replica leads, so that a takeover need not wait for lists.
CACHED: tuple[Kind, ...] = (
    kinds.VM, kinds.VMI, kinds.MIGRATION, kinds.MIGRATION_POLICY, kinds.KUBEVIRT,
    kinds.DATA_VOLUME, kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE, kinds.PREFERENCE,
    kinds.CLUSTER_PREFERENCE, core.POD, core.NODE, core.NAMESPACE, core.CLAIM, core.QUOTA,
    core.LIMIT_RANGE, core.PRIORITY_CLASS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """How one replica runs."""

    host: str
    port: int
    candidacy: Candidacy
    limits: Limits = COMPONENT
    image: str = launcher.IMAGE  # of launcher pods


def utc_now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


class Replica:
    """One replica of the controllers, with the parts that its endpoints report on."""

    def __init__(self, access: Access, settings: Settings) -> None:
        self._settings = settings
        self._requests = Requests()
        # Renewals must not wait behind the requests of the controllers, and one that is not
        # answered leaves time for another.
        timeout = Limits(timeout=settings.candidacy.timing.renew / 2)
        self._lease_transport = Transport(access, allowed=timeout, observer=self._requests)
        lease_client = RemoteClient(access, manager=NAME, transport=self._lease_transport)
        self._leader = Leader(lease_client, settings.candidacy, utc_now)
        self._transport = Transport(
            access, allowed=settings.limits, observer=self._requests, fence=self._leader.check
        )
        client = RemoteClient(access, manager=NAME, transport=self._transport)
        self._runtime = Runtime(client, utc_now, Informers(client, fields.transform))
        self._pods = Kubelet(settings.image, self._runtime.informers)
        self._machines = Collector()

    async def run(self, ready: Callable[[str, int], None]) -> None:
        """Serve the endpoints, and the controllers while this replica leads, until cancelled."""
        endpoints = Endpoints(self._problem, self._unready, (self._samples, self._requests.samples))
        host, informers = self._settings.host, self._runtime.informers
        try:
            async with (
                endpoints.listening(host, self._settings.port) as port,
                asyncio.TaskGroup() as group,
            ):
                ready(host, port)
                for kind in CACHED:
                    informers.of(kind)
                informers.of(core.REVISION, labels=revisions.NAME)
                informers.start(group)
                group.create_task(self._leader.run(self._work), name="leader")
        finally:
            await self._lease_transport.close()
            await self._transport.close()

    async def _work(self) -> None:
        await self._pods.wait_synced()
        attachments = functools.partial(controllers.attachments, pods=self._pods)
        common = controllers.factories(self._pods)
        factories: tuple[Factory, ...] = (*common, attachments, self._machines.run)
        async with asyncio.TaskGroup() as group:
            for factory in factories:
                group.create_task(factory(self._runtime))

    def _problem(self) -> str:
        return "" if self._leader.healthy else "the lease could not be renewed"

    def _unready(self) -> str:
        missing = self._runtime.informers.unsynced()
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    async def _samples(self) -> list[Sample | Histogram]:
        leading = Sample(LEADER, (NAME,), float(self._leader.leading))
        if not self._leader.leading:
            return [leading]  # the leader reports the virtual machines, once for all replicas
        return [leading, *await self._machines.samples()]
