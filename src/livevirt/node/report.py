"""Writes the status of VMIs and has that of their pods written, and only what has changed."""

from __future__ import annotations

import functools
import logging
from dataclasses import replace
from datetime import timedelta

from livevirt.errors import NotFound
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import parse_time
from livevirt.node import attachments, device_keeper, events, sizing, vmi_status
from livevirt.node import process as processes
from livevirt.node.device_keeper import DeviceKeeper
from livevirt.node.guest import NOTHING_YET
from livevirt.node.local import Local
from livevirt.node.migration.migrations import NodeMigrations
from livevirt.node.probes import Prober, Reports
from livevirt.node.runtime import PodReporter
from livevirt.node.sizing import IDLE
from livevirt.node.start import Starter
from livevirt.node.watched import NodeApi
from livevirt.vm import kinds
from livevirt.vm.sizing import hot_change, reservation

log = logging.getLogger(__name__)


class Reporter:
    """Writes the statuses of one node's VMIs; `pods` those of its pods.

    Every write names the version that was read: who was overtaken reads and decides again.
    """

    def __init__(
        self,
        api: NodeApi,
        starter: Starter,
        migrations: NodeMigrations,
        pods: PodReporter,
    ) -> None:
        self.pods = pods
        self._client, self._recorder, self._now = api.client, api.recorder, api.now
        self._starter, self._watched = starter, api.watched
        self._migrations = migrations

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
        return None if pod is None else await self.pods.report(local, pod)

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
                ports=local.intent.ports,
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
                devices=local.keeper.report if local.keeper else None,
                migrates=self._starter.migrates,
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
        """Let the guest have the volumes and devices it asks for, unless it is about to end."""
        guest = local.guest
        if guest is None or pod is None or guest.seen is None or local.ending is not None:
            return
        if "deletionTimestamp" in pod["metadata"]:
            return
        if local.attacher is None:
            local.attacher = self._starter.attacher(local, guest)
        local.attacher.want(attachments.goal(vmi))
        if local.keeper is None:
            local.keeper = DeviceKeeper(guest, local.wake)
        local.keeper.want(device_keeper.goal(vmi, guest.intent.machine))

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
            ready = conditions.is_true(status_of(pod).get("conditions"), "Ready")
            began = parse_time(intent.created)
            local.prober = Prober(guest, began, reports, ready=ready)
        local.prober.want(vmi["spec"], self._now())


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
