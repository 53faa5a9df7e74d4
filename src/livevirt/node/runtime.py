"""How a node runs its pods, the only thing that differs between one machine and a cluster.

Embedded, the node agent is the kubelet: it starts QEMU itself (`process_runtime`). On a cluster, a
kubelet has started the pod, and the launcher in it becomes QEMU (`pod_runtime`). Everything else
about a guest is the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from livevirt.kube.control.cache import Change, Key
from livevirt.kube.objects.request import Object
from livevirt.node.intent import CgroupDir, Exclusive, Intent
from livevirt.node.pod_dir import PodDir
from livevirt.node.process import Process
from livevirt.node.volumes import Prepared
from livevirt.qemu.accelerator import Accelerator

if TYPE_CHECKING:
    from livevirt.node.local import Local


@dataclass(frozen=True, slots=True)
class Exit:
    """What is known about the exit of a QEMU that was not asked to exit."""

    oom_killed: bool = False
    complaint: str = ""  # the end of what it printed


class Runtime(Protocol):
    """Runs the processes of a node's pods."""

    emulator: str  # the program, as a launcher finds it
    migrates: bool  # whether guests can be sent to other nodes

    def folder(self, uid: str) -> PodDir:
        """Return the files of a pod, which need not be there."""

    def folders(self) -> Iterator[PodDir]:
        """Yield the files of every pod that left something on this node."""

    def adopt(self, local: Local) -> None:
        """Take over what an earlier run left of a pod."""

    def is_ready(self, pod: Object) -> bool:
        """Return whether a guest can be started in the pod now."""

    def is_stopping(self, local: Local) -> bool:
        """Return whether the pod is being stopped, also without being deleted."""

    def accelerator(self, pod: Object) -> Accelerator:
        """Return the accelerator that the pod can use."""

    def cgroups(self, pod: Object) -> tuple[CgroupDir, ...]:
        """Return the cgroups that QEMU will be in."""

    def own_cpus(self, pod: Object, vmi: Object) -> Exclusive | None:
        """Return the CPUs that a pod has for itself, None if it shares them; raises NoCpus."""

    def create(self, folder: PodDir) -> None:
        """Create the files of a pod."""

    async def prepare(
        self, folder: PodDir, pod: Object, vmi: Object, metadata: Mapping[str, Any]
    ) -> dict[str, Prepared]:
        """Return the volumes of an instance that has no guest yet; raises VolumeProblem."""

    async def spawn(self, folder: PodDir, intent: Intent) -> Process | None:
        """Start QEMU, unless it runs; return its process if it is known.

        Raises OSError or SpawnFailed.
        """

    def exit_of(self, local: Local, pod: Object | None) -> Exit | None:
        """Return how a QEMU that is gone has exited, None if that will be known soon."""

    def record_exit(self, local: Local, message: str) -> None:
        """Show in the pod why its guest ends, before QEMU does."""

    def clean(self, local: Local) -> None:
        """Give back what a guest that has ended had of this machine; files stay."""

    def remove_disks(self, vmi_uid: str) -> None:
        """Remove what a guest wrote to disks that do not outlive it."""


class PodReporter(Protocol):
    """Writes what the API shows of a node's pods."""

    async def report(self, local: Local, pod: Object) -> timedelta | None:
        """Bring the pod's status up to date; return when to look again without being woken."""

    async def report_place(self, local: Local, pod: Object) -> None:
        """Report that a pod is ready for an incoming guest, with no QEMU yet."""

    async def refuse(self, pod: Object) -> None:
        """Report that a pod runs no guest and is not run, or remove it."""

    async def remove(self, pod: Object) -> None:
        """Remove a pod of which nothing runs any more."""

    def forget(self, local: Local) -> None:
        """Keep nothing about a pod that is gone."""

    def waiting(self, change: Change) -> Iterable[Key]:
        """Return the pods that may continue after a change of another pod."""
