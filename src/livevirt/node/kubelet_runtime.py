"""Pods that a kubelet runs: the launcher in a pod becomes QEMU once it is given the arguments."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import container_cgroups, exclusive, launcher_pod, pod_dir
from livevirt.node.cgroups import Hierarchy, PodCgroup, cpu_list
from livevirt.node.exclusive import NoCpus
from livevirt.node.intent import CgroupDir, Exclusive, Intent
from livevirt.node.launcher_pod import COMPUTE, ContainerRoot, LauncherDir
from livevirt.node.pod_dir import PodDir
from livevirt.node.pod_volumes import PodVolumes
from livevirt.node.process import Process
from livevirt.node.runtime import Exit
from livevirt.node.volumes import Prepared, VolumeProblem
from livevirt.qemu.accelerator import Accelerator
from livevirt.vm.lifecycle.vmi import kubelet_pod

if TYPE_CHECKING:
    from livevirt.node.local import Local

STOP_SECONDS = 0.5  # between looks for pods that the kubelet stops
_BECOME_SECONDS, _LOOK_SECONDS = 2.0, 0.02  # in which a launcher becomes QEMU
_DEVICES = ("/dev/kvm", "/dev/net/tun", "/dev/vhost-net")
_TERMINATION_LOG = "/dev/termination-log"
_CPUS = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}


@dataclass(frozen=True, slots=True)
class Directories:
    """Where we keep our notes about pods, and where the kubelet keeps the pods."""

    pods: Path
    kubelet: Path


class KubeletRuntime:
    """Starts QEMU in pods of a kubelet, and finds it again by the pod's cgroup."""

    emulator = launcher_pod.EMULATOR
    migrates = False

    def __init__(
        self,
        directories: Directories,
        accelerator: Accelerator,
        hierarchies: Sequence[Hierarchy],
        volumes: PodVolumes,
    ) -> None:
        self._directories, self._accelerator = directories, accelerator
        self._hierarchies, self._volumes = tuple(hierarchies), volumes

    def folder(self, uid: str) -> LauncherDir:
        """Return the files of a pod, which need not be there."""
        return LauncherDir(self._directories.pods, self._directories.kubelet, uid)

    def folders(self) -> Iterator[PodDir]:
        """Yield the files of every pod that left something on this node."""
        for each in pod_dir.all_in(self._directories.pods, self._directories.pods):
            yield self.folder(each.uid)

    def adopt(self, local: Local) -> None:
        """Do nothing: the kubelet has kept everything about the pod."""

    def is_ready(self, pod: Object) -> bool:
        """Return whether all containers of the pod run."""
        status = status_of(pod)
        sidecars = {
            each["name"]
            for each in pod["spec"].get("initContainers") or ()
            if each.get("restartPolicy") == "Always"
        }
        statuses = (
            *(status.get("containerStatuses") or ()),
            *(s for s in status.get("initContainerStatuses") or () if s["name"] in sidecars),
        )
        return bool(statuses) and all("running" in (each.get("state") or {}) for each in statuses)

    def is_stopping(self, local: Local) -> bool:
        """Return whether the kubelet stops the pod, whether it is being deleted or not."""
        folder = local.folder
        return isinstance(folder, LauncherDir) and os.path.lexists(folder.stop)

    async def watch_stops(self, locals_: Iterable[Local]) -> None:
        """Wake pods that the kubelet begins to stop, until cancelled."""
        known: set[str] = set()
        while True:
            stopping = {each.folder.uid: each for each in locals_ if self.is_stopping(each)}
            for uid in stopping.keys() - known:
                stopping[uid].wake()
            known = set(stopping)
            await asyncio.sleep(STOP_SECONDS)

    def accelerator(self, pod: Object) -> Accelerator:
        """Return the node's accelerator if the pod has the device for it, else emulation."""
        limits = next(
            (
                (each.get("resources") or {}).get("limits") or {}
                for each in pod["spec"]["containers"]
                if each["name"] == COMPUTE
            ),
            {},
        )
        if self._accelerator.name == "kvm" and kubelet_pod.KVM not in limits:
            return Accelerator("tcg", "the pod has no /dev/kvm, because emulation is allowed")
        return self._accelerator

    def cgroups(self, pod: Object) -> tuple[CgroupDir, ...]:
        """Return the cgroups of the container that becomes QEMU."""
        id = launcher_pod.running_id(pod, COMPUTE)
        return container_cgroups.find(self._hierarchies, pod["metadata"]["uid"], id) if id else ()

    def own_cpus(self, pod: Object, vmi: Object) -> Exclusive | None:
        """Return the CPUs that the kubelet has given to the pod alone; raises NoCpus."""
        count, wanted = pod_resources.exclusive_cpus(pod), exclusive.asked(vmi)
        if wanted is None:
            return None
        if count == 0:
            raise NoCpus("the guest needs dedicated CPUs and its pod requests none")
        cpus = _cpus(self.cgroups(pod))
        if len(cpus) != count:
            raise NoCpus(
                f"the pod requests {count} dedicated CPUs and the kubelet has given it {len(cpus)}:"
                " it needs the CPU manager policy static"
            )
        return exclusive.deal(cpus, wanted)

    def create(self, folder: PodDir) -> None:
        """Create the directory of our notes."""
        folder.create(None)

    async def prepare(
        self, folder: PodDir, pod: Object, vmi: Object, metadata: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Return the volumes of an instance that has no guest yet; raises VolumeProblem."""
        assert isinstance(folder, LauncherDir)

        def root(container: str) -> ContainerRoot | None:
            return self._root(pod, container)

        compute = root(COMPUTE)
        if compute is None:
            raise VolumeProblem("ContainerCreating", "the container of QEMU does not run")
        for device in _DEVICES:
            compute.give(device)
        return await self._volumes.prepare(vmi, folder, root, metadata)

    async def spawn(self, folder: PodDir, intent: Intent) -> Process | None:
        """Let the launcher become QEMU; return its process if that happens soon."""
        assert isinstance(folder, LauncherDir)
        if not PodCgroup(intent.cgroups).pids():
            raise OSError("the container of QEMU does not run")
        await asyncio.to_thread(folder.write_argv, intent.argv)
        folder.spawned.touch(0o600)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BECOME_SECONDS):
                while True:
                    found = folder.find(intent)
                    if found is not None:
                        return found
                    await asyncio.sleep(_LOOK_SECONDS)
        return None

    def exit_of(self, local: Local, pod: Object | None) -> Exit | None:
        """Return how QEMU has exited, None until the kubelet reports it."""
        return Exit() if pod is None else launcher_pod.exit_of(pod)

    def record_exit(self, local: Local, message: str) -> None:
        """Show in the pod's status why its guest ends, and let a hook return that waits for it."""
        folder = local.folder
        assert isinstance(folder, LauncherDir)
        with contextlib.suppress(OSError):  # removed by the kubelet
            folder.release_stop()
        if local.guest is None:
            return
        root = ContainerRoot(local.guest.process.pid)
        with contextlib.suppress(OSError):  # it is gone already
            handle = root.open(_TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC)
            with os.fdopen(handle, "w") as file:
                file.write(message)

    def clean(self, local: Local) -> None:
        """Do nothing: the kubelet cleans up after the pod."""

    def remove_disks(self, vmi_uid: str) -> None:
        """Do nothing: these disks are volumes of the pod."""

    def _root(self, pod: Object, container: str) -> ContainerRoot | None:
        """Return the file system of a container of the pod, None if it does not run."""
        id = launcher_pod.running_id(pod, container)
        if not id:
            return None
        dirs = container_cgroups.find(self._hierarchies, pod["metadata"]["uid"], id)
        pids = PodCgroup(dirs).pids()
        return ContainerRoot(min(pids)) if pids else None


def _cpus(dirs: Iterable[CgroupDir]) -> list[int]:
    """Return the CPUs that a cgroup is confined to."""
    for folder in dirs:
        if "cpuset" in folder.controllers:
            with contextlib.suppress(OSError):
                return cpu_list(Path(folder.path, _CPUS[folder.version]).read_text())
    return []
