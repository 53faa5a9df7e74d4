"""Watches the objects that metrics are about, with the informers the controllers have anyway.

Between scrapes it only times what changes: a few comparisons per event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from livevirt.errors import ApiError
from livevirt.kube.control.cache import Change, Key, key_of
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.metrics import Family, Histogram, Sample
from livevirt.kube.control.runtime import Runtime
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.launcher import CREATED_BY
from livevirt.vm.monitoring import live_changes, objects, phases
from livevirt.vm.monitoring.live_changes import LiveChanges, Took
from livevirt.vm.monitoring.phases import Phases

LEASES = "kube-node-lease"

FAMILIES: tuple[Family, ...] = (
    *objects.FAMILIES,
    *phases.FAMILIES,
    *live_changes.FAMILIES,
)


class Collector:
    """Collects the metrics of all virtual machines. `run` it; a scrape calls `samples`."""

    def __init__(self) -> None:
        self._phases, self._changes = Phases(), LiveChanges()
        self._steps, self._whole = Histogram(live_changes.STEPS), Histogram(live_changes.WHOLE)
        self._runtime: Runtime | None = None

    async def run(self, runtime: Runtime) -> None:
        """Follow the objects until cancelled; a `Factory`."""
        self._runtime, of = runtime, runtime.informers.of
        of(kinds.VM).on_change(self._vm_changed)
        of(kinds.VMI).on_change(self._vmi_changed)
        of(kinds.MIGRATION).on_change(self._migration_changed)
        of(core.POD).on_change(self._pod_changed)
        for kind in (core.NODE, core.CLAIM):
            of(kind)  # read by a scrape only
        await asyncio.Event().wait()

    def guest_changed(self, key: Key, sockets: int, memory: int) -> None:
        """Take note of what QEMU has plugged in; the node calls it whenever that may be new."""
        if self._runtime is not None:
            self._count(self._changes.guest_changed(key, sockets, memory, self._now()))

    def awaits(self, key: Key) -> bool:
        """Return whether it matters now what QEMU has plugged in."""
        return self._changes.under_way(key)

    async def samples(self) -> list[Sample | Histogram]:
        """Return the current metrics."""
        found: list[Sample | Histogram] = [*self._phases.samples(), self._steps, self._whole]
        if self._runtime is None:
            return found
        of = self._runtime.informers.of
        vms, vmis, migrations = of(kinds.VM), of(kinds.VMI), of(kinds.MIGRATION)
        found += objects.of_machines(vms.list(), _by_name(vmis))
        found += objects.of_disks(vms.list(), _by_name(of(core.CLAIM)))
        names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in migrations.list()}
        found += objects.of_instances(vmis.list(), self._running_pods(), names)
        found += objects.of_migrations(migrations.list())
        found += objects.of_nodes(of(core.NODE).list(), await self._leases())
        return found

    # ------------------------------------------------------------ changes

    def _vm_changed(self, change: Change) -> None:
        self._changes.vm_changed(change, self._now())

    def _vmi_changed(self, change: Change) -> None:
        now = self._now()
        self._phases.instance_changed(change, now)
        self._count(self._changes.vmi_changed(change, now))

    def _migration_changed(self, change: Change) -> None:
        self._phases.migration_changed(change, self._now())

    def _pod_changed(self, change: Change) -> None:
        self._count(self._changes.pod_changed(change, self._now()))

    def _count(self, durations: list[Took]) -> None:
        for resource, step, seconds in durations:
            if step:
                self._steps.observe((resource, step), seconds)
            else:
                self._whole.observe((resource,), seconds)

    # ------------------------------------------------------------ what a scrape reads

    def _now(self) -> float:
        assert self._runtime is not None
        return self._runtime.now().timestamp()

    def _running_pods(self) -> dict[str, str]:
        """Return the running pod of each instance on its node, by the instance's uid."""
        assert self._runtime is not None
        of, found = self._runtime.informers.of, {}
        for pod in of(core.POD).list():
            uid = (pod["metadata"].get("labels") or {}).get(CREATED_BY)
            if uid and status_of(pod).get("phase") == "Running":
                vmi = of(kinds.VMI).get(Key(pod["metadata"]["namespace"], _owner(pod)))
                node = status_of(vmi).get("nodeName")
                if node in (None, pod["spec"].get("nodeName")):
                    found[uid] = pod["metadata"]["name"]
        return found

    async def _leases(self) -> list[Object]:
        assert self._runtime is not None
        try:
            return (await self._runtime.client.list(core.LEASE, LEASES)).items
        except ApiError:
            return []  # there is none before the first node has registered


def _by_name(informer: Informer) -> Mapping[tuple[str, str], Object]:
    return {key_of(each): each for each in informer.list()}


def _owner(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((each["name"] for each in owners if each.get("kind") == kinds.VMI.kind), "")
