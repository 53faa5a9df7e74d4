"""Starting a guest: everything it needs, then the intent on the disk, then the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from livevirt.errors import LivevirtError
from livevirt.kube.control import backoff
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.times import format_time
from livevirt.node import attachments, domain, exclusive, resize
from livevirt.node import intent as intents
from livevirt.node.attacher import Attacher
from livevirt.node.attachments import Item
from livevirt.node.domain import BadDomain, Place
from livevirt.node.exclusive import NoCpus
from livevirt.node.guest import Guest
from livevirt.node.host import Host
from livevirt.node.intent import Exclusive, Incoming, Intent
from livevirt.node.local import Local
from livevirt.node.migration.handover import Offer
from livevirt.node.network import requests
from livevirt.node.network.namespace import NetworkError
from livevirt.node.network.port import GuestPort
from livevirt.node.pod_status import Waiting
from livevirt.node.process import SpawnFailed
from livevirt.node.runtime import Runtime
from livevirt.node.volumes import NodeVolumes, Prepared, VolumeProblem
from livevirt.qemu import block_nodes, migration
from livevirt.qemu.cmdline import argv
from livevirt.qemu.disk import Disk, unmarked
from livevirt.qemu.machine import Machine
from livevirt.qemu.observe import Observed
from livevirt.vm.spec import disks
from livevirt.vm.volumes.volume_lists import claim_of

_FIRST_RETRY, _LAST_RETRY = 2.0, 60.0  # seconds
_BACK_OFF = {"ErrImagePull": "ImagePullBackOff"}


class NotReady(LivevirtError):
    """A guest cannot be started yet; the pod's status has the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def waiting(self, attempts: int) -> Waiting:
        """Return what the container waits for, after so many attempts."""
        reason = _BACK_OFF.get(self.reason, self.reason) if attempts > 1 else self.reason
        return Waiting(reason, str(self))

    def retry(self, attempts: int) -> timedelta:
        """Return how long to wait before the next attempt."""
        return timedelta(seconds=backoff.delay(attempts, _FIRST_RETRY, _LAST_RETRY))


@dataclass(frozen=True, slots=True)
class GuestSetup:
    """What a pod's QEMU is started with."""

    machine: Machine
    exclusive: Exclusive | None  # CPUs of the pod's own
    incoming: Incoming | None = None  # the migration that brings the guest
    ports: tuple[GuestPort, ...] = ()  # of interfaces that are on the node network


class Starter:
    """Starts the guests of one node."""

    def __init__(self, node: str, host: Host, volumes: NodeVolumes, runtime: Runtime) -> None:
        self._node, self._host, self._volumes, self._runtime = node, host, volumes, runtime

    @property
    def migrates(self) -> bool:
        """Whether guests can be sent to other nodes."""
        return self._runtime.migrates

    async def start(self, local: Local, pod: Object, vmi: Object, now: datetime) -> None:
        """Bring a guest to life; raises NotReady while something it needs is missing."""
        folder = local.folder
        try:
            self._runtime.create(folder)
            metadata = {
                "instance-id": domain.firmware_uuid(vmi),
                "local-hostname": vmi["spec"].get("hostname") or vmi["metadata"]["name"],
            }
            prepared = await self._runtime.prepare(folder, pod, vmi, metadata)
            await self._leave_out(vmi, prepared)
            own = self._runtime.own_cpus(pod, vmi)
            wanted = exclusive.asked(vmi)
            booted = wanted.vcpus if wanted is not None else 0
            cells = tuple(map(self._host.cpus.cell, own.vcpus[:booted])) if own else ()
            place = Place(str(folder.qemu_run), str(folder.qemu_serial), cells)
            machine = domain.machine(vmi, prepared, self._runtime.accelerator(pod), place)
            ports = await self._connect(pod, vmi, machine)
        except VolumeProblem as error:
            raise NotReady(error.reason, str(error)) from error
        except (BadDomain, NoCpus) as error:
            raise NotReady("CreateContainerConfigError", str(error)) from error
        except (OSError, NetworkError) as error:  # no space, most likely
            raise NotReady("CreateContainerError", str(error)) from error
        setup = GuestSetup(requests.connected(machine, ports), own, ports=ports)
        await self._intend(local, pod, vmi, setup, now)

    async def _connect(self, pod: Object, vmi: Object, machine: Machine) -> tuple[GuestPort, ...]:
        """Return the ports of the guest's interfaces on the node network, if there is one."""
        network = self._host.network
        if network is None:
            return ()
        asked = requests.requested(vmi, machine)
        return await network.connect(pod["metadata"]["uid"], vmi["metadata"]["uid"], asked)

    async def _leave_out(self, vmi: Object, prepared: dict[str, Prepared]) -> None:
        """Leave out the volumes that QEMU would not start with and that can come later.

        Raises VolumeProblem for one that cannot.
        """
        spec, meta = vmi["spec"], vmi["metadata"]
        later = disks.may_come_later(spec)
        for name, drive in domain.hot_drives(spec, prepared).items():
            if not block_nodes.image_taken(drive):
                continue
            if name not in later:
                claim = next(claim_of(v) for v in spec["volumes"] if v["name"] == name)
                others = await self._volumes.holders(meta["namespace"], claim, meta["uid"])
                who = f" by VMI {', '.join(others)}" if others else ""
                raise VolumeProblem(attachments.CLAIM_IN_USE, f"PVC {claim} is in use{who}")
            self._volumes.release(prepared.pop(name))
        for name in domain.crowded_out(spec, prepared):
            del prepared[name]  # the device of the claim, if it is one, is for the other disk

    async def receive(
        self, local: Local, pod: Object, vmi: Object, uid: str, offer: Offer, now: datetime
    ) -> None:
        """Make a place for a guest that comes from elsewhere; raises NotReady if there is none."""
        folder = local.folder
        try:
            self._runtime.create(folder)
            own = self._runtime.own_cpus(pod, vmi)
        except NoCpus as error:
            raise NotReady("CreateContainerConfigError", str(error)) from error
        except OSError as error:
            raise NotReady("CreateContainerError", str(error)) from error
        machine = replace(
            offer.machine,
            run_dir=str(folder.qemu_run),
            serial_log=str(folder.qemu_serial),
            incoming=True,
            paused=True,  # until it is known to have come
        )
        incoming = Incoming(uid=uid, paused=offer.paused)
        network, ids = self._host.network, (pod["metadata"]["uid"], vmi["metadata"]["uid"])
        ports = network.receive(*ids) if network is not None else ()
        await self._intend(local, pod, vmi, GuestSetup(machine, own, incoming, ports), now)

    async def _intend(
        self, local: Local, pod: Object, vmi: Object, setup: GuestSetup, now: datetime
    ) -> None:
        """Write the start intent, then start QEMU from it."""
        machine = replace(setup.machine, emulator=self._runtime.emulator)
        run, qemu_run = local.folder.run, local.folder.qemu_run
        intent = Intent(
            boot_id=intents.boot_id(),
            node=self._node,
            namespace=pod["metadata"]["namespace"],
            pod=pod["metadata"]["name"],
            pod_uid=pod["metadata"]["uid"],
            vmi=vmi["metadata"]["name"],
            vmi_uid=vmi["metadata"]["uid"],
            argv=tuple(argv(machine)),
            machine=machine,
            cgroups=self._runtime.cgroups(pod),
            limits=resize.limits(resize.desired(pod)),
            exclusive=setup.exclusive,
            incoming=setup.incoming,
            ports=setup.ports,
            created=format_time(now),
            sockets="" if run == qemu_run else str(run),
        )
        await asyncio.to_thread(local.folder.write_intent, intent)
        local.intent = intent
        await self.spawn(local)

    async def spawn(self, local: Local) -> None:
        """Start the process that was intended, unless one is there."""
        assert local.intent is not None
        try:
            found = await self._runtime.spawn(local.folder, local.intent)
        except (OSError, SpawnFailed, NetworkError) as error:
            raise NotReady("RunContainerError", str(error)) from error
        if found is not None:
            local.follow(found)

    async def described(self, guest: Guest, vmi: Object) -> Machine:
        """Return the machine that could take a guest as it is now; raises Undescribed."""
        await guest.refresh()
        observed, machine = guest.view.observed, guest.intent.machine
        assert observed is not None  # it was looked at just now
        places = await migration.places(guest.qmp(), observed)
        goal = attachments.goal(vmi)
        asked = (*goal.items, *goal.fixed)
        unknown = [item for item in asked if _is_other(item, machine, observed)]
        namespace = vmi["metadata"]["namespace"]
        asked_for = [disk async for disk in self._attachable(namespace, unknown)]
        known = [*asked_for, *map(unmarked, asked_for)]  # an earlier version may have named it
        fixed = {item.id for item in unknown if not item.hot}  # only their image can be another
        later = [
            _switched(disk, machine) if disk.id in fixed else disk
            for disk in domain.plugged(known, machine)
        ]
        return migration.as_it_stands(machine, observed, places, later)

    async def _attachable(self, namespace: str, items: Iterable[Item]) -> AsyncIterator[Disk]:
        """Yield the drives of disks that a guest may have been given since its start."""
        for item in items:
            prepared = None
            if item.volume is not None:
                try:
                    prepared = await self._volumes.attachable(namespace, item.volume)
                except VolumeProblem:
                    continue
            if prepared is None and domain.kind_of(item.disk) != "cdrom":
                continue
            try:
                yield domain.drive(item.disk, prepared, hot=item.hot)
            except ValueError:
                continue  # no guest was ever given such a drive

    def attacher(self, local: Local, guest: Guest) -> Attacher:
        """Return who attaches and detaches the volumes of a guest that runs."""
        return Attacher(guest, self._volumes, local.wake)


def _is_other(item: Item, machine: Machine, observed: Observed) -> bool:
    """Return whether a drive that is there is not as it was at the start."""
    there = observed.drive(item.id)
    return there is not None and not any(
        disk.id == there.id and disk.node == there.node for disk in machine.disks
    )


def _switched(disk: Disk, machine: Machine) -> Disk:
    """Return a drive of the start with the image it was copied to; the drive is the same."""
    start = next((each for each in machine.disks if each.id == disk.id), disk)
    return replace(
        start,
        image=disk.image,
        readonly=disk.readonly,
        cache=disk.cache,
        discard=disk.discard,
    )
