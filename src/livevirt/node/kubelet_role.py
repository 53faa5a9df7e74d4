"""The kubelet's part of reporting: embedded, the status of pods and their resizes are ours."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from livevirt.errors import NotFound
from livevirt.kube.control.cache import Change, Key
from livevirt.kube.objects import core
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import format_time
from livevirt.node import events, pod_status, resize, vmi_status
from livevirt.node.cgroups import PodCgroup
from livevirt.node.intent import port_addresses
from livevirt.node.pod_status import Resources, Waiting
from livevirt.node.resize import Grants
from livevirt.node.watched import NodeApi
from livevirt.vm.lifecycle.vmi.launcher import not_run

if TYPE_CHECKING:
    from livevirt.node.local import Local

log = logging.getLogger(__name__)

RETRY_DEFERRED = timedelta(minutes=3)
RETRY_FAILED = timedelta(seconds=2)  # a guest that gave memory back may not have freed it yet


class KubeletRole:
    """Writes the whole status of pods, grants their resizes and removes them at their end.

    Every write names the version that was read: who was overtaken reads and decides again.
    """

    def __init__(self, api: NodeApi, capacity: Mapping[str, Quantity]) -> None:
        self.deferred: set[Key] = set()  # pods whose resize waits for room
        self._client, self._recorder, self._now = api.client, api.recorder, api.now
        self._capacity = capacity
        self._grants = Grants()
        api.watched.pods.on_change(self._grants.note)

    async def report(self, local: Local, pod: Object) -> timedelta | None:
        """Bring the pod's status up to date, and a resize that it asks for into force."""
        resources = self._resources(local, pod)
        seen = pod_status.ObservedPod(
            pod=pod,
            now=self._now(),
            resources=resources,
            started=local.intent.created if local.intent and local.spawned else "",
            pod_addresses=port_addresses(local.intent),
            paused=vmi_status.is_paused(local.standing),
            waiting=local.waiting,
            ending=local.ending,
            ready=local.prober is None or local.prober.ready,
        )
        status = pod_status.status(seen)
        await self._write(pod, status)
        events.resized(self._recorder, pod, status)
        if resources.failed:
            return RETRY_FAILED
        return RETRY_DEFERRED if local.key in self.deferred else None

    async def report_place(self, local: Local, pod: Object) -> None:
        """Report that a pod is ready for an incoming guest, with no QEMU yet."""
        state = (resize.container_status(pod).get("state") or {}).get("running") or {}
        seen = pod_status.ObservedPod(
            pod=pod,
            now=self._now(),
            resources=self._resources(local, pod),
            started=state.get("startedAt") or format_time(self._now()),
        )
        await self._write(pod, pod_status.status(seen))

    async def refuse(self, pod: Object) -> None:
        """Report that a pod runs no guest and is not run, or remove it."""
        if "deletionTimestamp" in pod["metadata"]:
            await self.remove(pod)
        elif status_of(pod).get("phase") not in FINAL:
            await self._write(pod, pod_status.refused(pod, not_run(pod), self._now()))

    async def remove(self, pod: Object) -> None:
        """Remove a pod of which nothing runs any more."""
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                core.POD,
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                grace_seconds=0,
            )
        except NotFound:
            return

    def forget(self, local: Local) -> None:
        """Keep nothing about a pod that is gone."""
        self.deferred.discard(local.key)

    def waiting(self, change: Change) -> Iterable[Key]:
        """Return the pods whose resize waits for room."""
        return self.deferred - {change.key}

    async def _write(self, pod: Object, status: Object) -> None:
        """Write a pod's status, unless it is unchanged."""
        if status == pod.get("status"):
            return
        metadata = pod["metadata"]
        try:
            await self._client.patch(
                core.POD,
                metadata["name"],
                metadata["namespace"],
                {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status},
                subresource="status",
            )
        except NotFound:
            return

    def _resources(self, local: Local, pod: Object) -> Resources:
        """Grant what the pod asks for if there is room, put it in force, and say what is."""
        wanted, current = resize.desired(pod), resize.in_force(pod)
        self.deferred.discard(local.key)
        if current is None or local.guest is None or resize.same(wanted, current):
            return Resources(wanted.get("requests") or {}, wanted)
        allocated = resize.container_status(pod).get("allocatedResources") or {}
        asked, beside = resize.asked(pod), self._grants.beside(local.key)
        others = {"cpu": beside.cpu, "memory": beside.memory}
        decision = resize.decide(asked, others, self._capacity)
        match resize.fixed(pod, current) or decision:
            case resize.Refused(reason, message):
                if reason == "Deferred":
                    self.deferred.add(local.key)
                return Resources(allocated, current, pending=Waiting(reason, message))
            case resize.Granted():
                self._grants.grant(local.key, Share(**asked))
                failure = _put_in_force(local.cgroup, wanted)
                if failure:
                    return Resources(wanted.get("requests") or {}, current, failed=failure)
        log.info("pod resized", extra={"pod": str(local.key)})
        return Resources(wanted.get("requests") or {}, wanted)


def _put_in_force(cgroup: PodCgroup, wanted: Object) -> str:
    """Put other limits in force; return what went wrong, if anything did."""
    limits = resize.limits(wanted)
    used = cgroup.memory_used()
    if limits.memory_limit is not None and used >= limits.memory_limit:
        return (
            "cannot decrease memory limits: attempting to set pod memory limit"
            f" ({Quantity.from_int(limits.memory_limit, Format.BINARY_SI)})"
            f" below current usage ({used} bytes)"
        )
    try:
        cgroup.apply(limits)
    except OSError as error:
        return str(error)
    return ""
