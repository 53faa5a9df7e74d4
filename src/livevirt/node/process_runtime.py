"""Pods as processes of this machine: the node agent does what a kubelet does on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.request import Object
from livevirt.node import exclusive, pod_dir
from livevirt.node import process as processes
from livevirt.node.cgroups import Cgroups, PodCgroup
from livevirt.node.exclusive import NoCpus
from livevirt.node.host import Host
from livevirt.node.intent import CgroupDir, Exclusive, Intent
from livevirt.node.pod_dir import PodDir
from livevirt.node.process import Order, Process
from livevirt.node.runtime import Exit
from livevirt.node.scratch import Scratch
from livevirt.node.volumes import Prepared, Volumes
from livevirt.qemu.accelerator import Accelerator
from livevirt.qemu.machine import FIRST_TAP

if TYPE_CHECKING:
    from livevirt.node.local import Local


@dataclass(frozen=True, slots=True)
class Directories:
    """Where the pods of a node have their files and their sockets."""

    pods: Path
    run: Path


class ProcessRuntime:
    """Starts QEMU as a process that outlives this one, in a cgroup of ours."""

    emulator = "qemu-system-x86_64"
    migrates = True

    def __init__(
        self,
        directories: Directories,
        host: Host,
        cgroups: Cgroups,
        volumes: Volumes,
        scratch: Scratch,
    ) -> None:
        self._directories, self._host, self._groups = directories, host, cgroups
        self._volumes, self._scratch = volumes, scratch

    def folder(self, uid: str) -> PodDir:
        """Return the files of a pod, which need not be there."""
        return PodDir(self._directories.pods, self._directories.run, uid)

    def folders(self) -> Iterator[PodDir]:
        """Yield the files of every pod that left something on this node."""
        return pod_dir.all_in(self._directories.pods, self._directories.run)

    def adopt(self, local: Local) -> None:
        """Take over the CPUs that a pod has for itself."""
        own = local.intent.exclusive if local.intent else None
        self._host.cpus.adopt(local.folder.uid, own.cpus if own else (), local.cgroup)

    def is_ready(self, pod: Object) -> bool:
        """Return True: what a pod needs is made when its guest is started."""
        return True

    def is_stopping(self, local: Local) -> bool:
        """Return False: only the API stops pods."""
        return False

    def accelerator(self, pod: Object) -> Accelerator:
        """Return the accelerator of the machine."""
        return self._host.accelerator

    def cgroups(self, pod: Object) -> tuple[CgroupDir, ...]:
        """Return the cgroups that QEMU will be in."""
        return self._groups.of(pod["metadata"]["uid"]).dirs

    def own_cpus(self, pod: Object, vmi: Object) -> Exclusive | None:
        """Give a pod the CPUs it is to have for itself; None if it shares them with others."""
        count, wanted = pod_resources.exclusive_cpus(pod), exclusive.asked(vmi)
        if count == 0:
            if wanted is not None:
                raise NoCpus("the guest needs dedicated CPUs and its pod requests none")
            return None
        if self._groups.cpuset_problem:
            raise NoCpus(f"no pod can have dedicated CPUs here: {self._groups.cpuset_problem}")
        return exclusive.deal(self._host.cpus.take(pod["metadata"]["uid"], count), wanted)

    def create(self, folder: PodDir) -> None:
        """Create the files of a pod."""
        folder.create(self._owner)

    async def prepare(
        self, folder: PodDir, pod: Object, vmi: Object, metadata: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Return the volumes of an instance that has no guest yet; raises VolumeProblem."""
        scratch = self._scratch.create(vmi["metadata"]["uid"])
        return await self._volumes.prepare(vmi, scratch, metadata)

    async def spawn(self, folder: PodDir, intent: Intent) -> Process | None:
        """Start QEMU, unless it runs; return its process if it is known.

        Raises OSError, SpawnFailed or NetworkError.
        """
        lock = folder.take_lock()
        if lock is None:
            return None
        taps: list[int] = []
        try:
            folder.create_run(self._owner)
            cgroup = PodCgroup(intent.cgroups)
            self._groups.create(cgroup)
            cgroup.apply(intent.limits)
            self._host.cpus.confine(folder.uid, cgroup)
            if self._host.network is not None:
                taps = await self._host.network.open_taps(intent.ports)
            order = Order(
                argv=intent.argv,
                log=folder.stderr,
                marker=folder.spawned,
                lock=lock,
                cgroups=cgroup.procs,
                account=self._host.account,
                inherited=dict(enumerate(taps, FIRST_TAP)),
            )
            return await processes.spawn(order)
        finally:
            for handle in (lock, *taps):
                os.close(handle)

    def exit_of(self, local: Local, pod: Object | None) -> Exit | None:
        """Return how a QEMU that is gone has exited."""
        return Exit(local.cgroup.oom_killed(), local.folder.complaint())

    def record_exit(self, local: Local, message: str) -> None:
        """Do nothing: the pod's status is written from the exit record."""

    def clean(self, local: Local) -> None:
        """Give back what a guest that has ended had of this machine; files stay."""
        self._host.cpus.release(local.folder.uid)
        if self._host.network is not None:
            self._host.network.release(local.folder.uid)
        local.cgroup.remove()
        local.folder.remove_run()

    def remove_disks(self, vmi_uid: str) -> None:
        """Remove what a guest wrote to disks that do not outlive it."""
        self._scratch.remove(vmi_uid)

    @property
    def _owner(self) -> tuple[int, int] | None:
        return self._host.account.owner if self._host.account else None
