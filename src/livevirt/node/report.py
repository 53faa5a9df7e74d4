"""Writes the status of pods and VMIs, and only what has changed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from livevirt.errors import NotFound
from livevirt.kube.control.cache import Key
from livevirt.kube.objects import core
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.quantity import Quantity
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.times import format_time, parse_time
from livevirt.node import attachments, events, pod_status, resize, sizing, vmi_status
from livevirt.node import process as processes
from livevirt.node.guest import NOTHING_YET
from livevirt.node.local import Local
from livevirt.node.migration.migrations import NodeMigrations
from livevirt.node.pod_status import Resources, Waiting
from livevirt.node.probes import Prober, Reports
from livevirt.node.resize import Grants
from livevirt.node.sizing import IDLE
from livevirt.node.start import Starter
from livevirt.node.watched import NodeApi
from livevirt.vm import kinds
from livevirt.vm.sizing import hot_change, reservation

log = logging.getLogger(__name__)

RETRY_DEFERRED = timedelta(minutes=3)
RETRY_FAILED = timedelta(seconds=2)  # a guest that gave memory back may not have freed it yet


class Reporter:
    """Writes the statuses of one node's pods and VMIs.

    Every write names the version that was read: who was overtaken reads and decides again.
    """

    def __init__(
        self,
        api: NodeApi,
        starter: Starter,
        migrations: NodeMigrations,
        capacity: Mapping[str, Quantity],
    ) -> None:
        self.deferred: set[Key] = set()  # pods whose resize waits for room
        self._client, self._recorder, self._now = api.client, api.recorder, api.now
        self._starter, self._watched, self._capacity = starter, api.watched, capacity
        self._migrations = migrations
        self._grants = Grants()
        api.watched.pods.on_change(self._grants.note)

    async def report(
        self, local: Local, pod: Object | None, vmi: Object | None
    ) -> timedelta | None:
        """Write the status; return when to look again without being woken."""
        moved = vmi is not None and await self._migrations.report(local, vmi)
        guest = local.guest
        if moved and local.ending is not None:
            return timedelta(0)  # there is more to report, of the instance as it is now
        if local.ending is None and (guest is None or guest.view.standing is None):
            return None  # QEMU will say something in a moment, or be gone
        if vmi is not None and not moved:
            await self._report_home(local, pod, vmi)
        if pod is None:
            return None
        resources = await self.report_pod(local, pod)
        if resources.failed:
            return RETRY_FAILED
        return RETRY_DEFERRED if local.key in self.deferred else None

    async def report_pod(self, local: Local, pod: Object) -> Resources:
        """Bring the pod's status up to date, and a resize that it asks for into force."""
        resources = self._resources(local, pod)
        seen = pod_status.ObservedPod(
            pod=pod,
            now=self._now(),
            resources=resources,
            started=local.intent.created if local.intent and local.spawned else "",
            paused=vmi_status.is_paused(local.standing),
            waiting=local.waiting,
            ending=local.ending,
            ready=local.prober is None or local.prober.ready,
        )
        status = pod_status.status(seen)
        await self.write_pod(pod, status)
        events.resized(self._recorder, pod, status)
        return resources

    async def write_pod(self, pod: Object, status: Object) -> None:
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

    async def report_place(self, local: Local, pod: Object) -> None:
        """Report that a pod is ready for an incoming guest, with no QEMU yet."""
        state = (resize.container_status(pod).get("state") or {}).get("running") or {}
        seen = pod_status.ObservedPod(
            pod=pod,
            now=self._now(),
            resources=self._resources(local, pod),
            started=state.get("startedAt") or format_time(self._now()),
        )
        await self.write_pod(pod, pod_status.status(seen))

    def say_shutting_down(self, vmi: Object) -> None:
        """Record the event that the guest was asked to shut down."""
        events.shutting_down(self._recorder, vmi)

    async def _report_home(self, local: Local, pod: Object | None, vmi: Object) -> None:
        """Speak for the instance, if its guest is here; change it, unless it is about to leave."""
        held = self._migrations.follow(local, vmi)
        if not self._migrations.is_home(local, vmi):
            return
        if not held:
            _adjust(local, pod, vmi)
            self._attach(local, pod, vmi)
            self._probe(local, pod, vmi)
        if local.ending is not None and self._migrations.is_undecided(local, vmi):
            return  # the guest may run on another node: the target reports that
        await self._report_vmi(local, pod, vmi)

    async def _report_vmi(self, local: Local, pod: Object | None, vmi: Object) -> None:
        assert local.intent is not None
        changed = vmi_status.patch(
            vmi_status.GuestSnapshot(
                vmi=vmi,
                now=self._now(),
                machine=local.intent.machine,
                view=replace(local.guest.view, standing=local.standing)
                if local.guest
                else NOTHING_YET,
                ending=local.ending,
                claims=self._watched.claims_of(vmi),
                pod=pod,
                progress=local.adjuster.progress if local.adjuster else IDLE,
                brief=local.adjuster is not None
                and local.adjuster.is_brief(bool(hot_change.under_way(vmi))),
                attachments=local.attacher.reported if local.attacher else None,
                copies=local.attacher.copies if local.attacher else {},
            )
        )
        if not changed:
            return
        metadata = vmi["metadata"]
        try:
            await self._client.patch(
                kinds.VMI,
                metadata["name"],
                metadata["namespace"],
                {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": changed},
            )
        except NotFound:
            return
        if "phaseTransitionTimestamps" in changed:
            if local.ending is not None:
                events.ended(self._recorder, vmi, local.ending)
            else:
                events.started(self._recorder, vmi)
        else:
            events.size_changed(self._recorder, vmi, changed)
        if "volumeStatus" in changed:
            events.volumes_changed(self._recorder, vmi, changed["volumeStatus"])
        if "migratedVolumes" in changed:
            events.volumes_copied(self._recorder, vmi, changed["migratedVolumes"] or [])

    def _attach(self, local: Local, pod: Object | None, vmi: Object) -> None:
        """Let the guest have the volumes it asks for; one that is to end keeps what it has."""
        guest = local.guest
        if guest is None or pod is None or guest.seen is None or local.ending is not None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            return
        if local.attacher is None:
            local.attacher = self._starter.attacher(local, guest)
        local.attacher.want(attachments.goal(vmi))

    def _probe(self, local: Local, pod: Object | None, vmi: Object) -> None:
        """Probe the guest as its instance asks for; one that is to end is not probed."""
        guest, intent = local.guest, local.intent
        if guest is None or intent is None or pod is None:
            return
        if local.ending is not None or "deletionTimestamp" in pod["metadata"]:
            if local.prober is not None:
                local.prober.stop()
            return
        if local.prober is None:
            failed = functools.partial(events.unhealthy, self._recorder, vmi)
            reports = Reports(local.wake, failed, functools.partial(_end, local))
            ready = bool(resize.container_status(pod).get("ready"))
            began = parse_time(intent.created)
            local.prober = Prober(guest, began, reports, ready=ready)
        local.prober.want(vmi["spec"], self._now())

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
                failure = self._starter.resize(local, wanted)
                if failure:
                    return Resources(wanted.get("requests") or {}, current, failed=failure)
        log.info("pod resized", extra={"pod": str(local.key)})
        return Resources(wanted.get("requests") or {}, wanted)


def _end(local: Local, why: str) -> None:
    """Kill QEMU, so that its guest has failed; `kubectl logs` shows why."""
    log.warning("guest killed", extra={"pod": str(local.key), "reason": why})
    if local.guest is not None:
        local.folder.complain(why)
        processes.kill(local.guest.process)


def _adjust(local: Local, pod: Object | None, vmi: Object) -> None:
    """Let the guest have the size it may have now; one that is to end keeps what it has."""
    if local.guest is None or local.adjuster is None or pod is None:
        return
    seen = local.guest.seen
    if seen is None or local.ending is not None or "deletionTimestamp" in pod["metadata"]:
        return
    local.adjuster.want(sizing.goal(vmi, pod, seen), reservation.asked(vmi).sockets)
