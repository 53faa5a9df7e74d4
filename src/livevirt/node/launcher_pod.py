"""A launcher pod as its node sees it: what the kubelet reports, and where its files are.

Paths inside the pod are those that `vm` renders. Directories of the pod can be written by QEMU,
which a guest may have taken over, so nothing in them is reached through a symbolic link.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from livevirt.files import private
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import process as processes
from livevirt.node.cgroups import PodCgroup
from livevirt.node.intent import Intent
from livevirt.node.pod_dir import PodDir
from livevirt.node.process import Process
from livevirt.node.runtime import Exit
from livevirt.vm.lifecycle.vmi import kubelet_pod, launcher

COMPUTE = launcher.CONTAINER
EMULATOR = "/usr/bin/qemu-system-x86_64"  # in our image
OWNER = (launcher.RUN_AS, launcher.RUN_AS)
_VAR_RUN = PurePosixPath("/var/run")
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


# ---------------------------------------------------------------- what the kubelet reports


def container_status(pod: Object, name: str) -> Object:
    """Return the status of a container, also of an init container; empty if there is none."""
    status = status_of(pod)
    listed = (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    )
    return next((each for each in listed if each["name"] == name), {})


def running_id(pod: Object, name: str) -> str:
    """Return the id of a container that runs, without the name of its runtime; else nothing."""
    found = container_status(pod, name)
    if "running" not in (found.get("state") or {}):
        return ""
    return str(found.get("containerID") or "").rpartition("://")[2]


def exit_of(pod: Object) -> Exit | None:
    """Return how the container of QEMU has exited, None if the kubelet does not report it yet."""
    ended = (container_status(pod, COMPUTE).get("state") or {}).get("terminated")
    if ended is not None:
        complaint = str(ended.get("message") or "").strip()
        return Exit(ended.get("reason") == "OOMKilled", complaint)
    return Exit() if status_of(pod).get("phase") in FINAL else None


# ---------------------------------------------------------------- files


def empty_dir(kubelet: Path, uid: str, volume: str) -> Path:
    """Return where a kubelet keeps a pod's volume of the type emptyDir."""
    return kubelet / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / volume


class LauncherDir(PodDir):
    """The files of one pod: our notes in a directory of ours, sockets in one of the pod."""

    def __init__(self, pods: Path, kubelet: Path, uid: str) -> None:
        super().__init__(pods, pods, uid)
        self.run = empty_dir(kubelet, uid, kubelet_pod.RUN_VOLUME)
        self.scratch = empty_dir(kubelet, uid, kubelet_pod.SCRATCH_VOLUME)
        self.serial = self.run / "serial.log"
        self.argv = self.run / "argv"  # becomes QEMU's command line
        self.stop = self.run / "stop"  # exists once the kubelet stops the pod
        self.stopped = self.run / "stopped"  # lets the hook return by which the kubelet stops it
        self.logs = (self.serial,)
        self.qemu_run = Path(kubelet_pod.RUN_DIRECTORY)
        self.qemu_serial = Path(kubelet_pod.CONSOLE_FILE)

    def create(self, owner: tuple[int, int] | None) -> None:
        """Create the directory of our notes; the pod's are the kubelet's."""
        for folder in (*reversed(self.root.parents[:3]), self.root):
            private.folder(folder)

    def locked(self) -> bool:
        """Return whether the container runs, as QEMU or about to become it."""
        if not os.path.lexists(self.argv):
            return False
        intent = self.read_intent()
        return intent is not None and bool(PodCgroup(intent.cgroups).pids())

    def find(self, intent: Intent) -> Process | None:
        """Return the process that was intended, if it runs: one of the pod's own container."""
        return processes.find(intent.argv, PodCgroup(intent.cgroups).pids())

    def remove_run(self) -> None:
        """Do nothing: the kubelet removes the directories of the pod."""

    def release_stop(self) -> None:
        """Let the hook return that waits for the end of the guest, if there is one."""
        if os.path.lexists(self.stop):
            with contextlib.suppress(FileExistsError):
                os.close(
                    os.open(self.stopped, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644)
                )

    def write_argv(self, argv: Iterable[str]) -> None:
        """Let the launcher become QEMU, unless it was let before; on the disk when this returns."""
        if os.path.lexists(self.argv):
            return
        unfinished = self.run / "argv.part"
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o644)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)
            file.write(b"".join(os.fsencode(each) + b"\0" for each in argv))
            file.flush()
            os.fsync(handle)
        unfinished.rename(self.argv)


class ContainerRoot:
    """The file system of a running container, as the container itself sees it."""

    def __init__(self, pid: int) -> None:
        self.path = Path(f"/proc/{pid}/root")

    def below(self, inside: str | PurePosixPath) -> Path:
        """Return where we see a path of the container."""
        return self.path / str(self._resolved(inside)).lstrip("/")

    def open(self, inside: str | PurePosixPath, flags: int = os.O_RDONLY) -> int:
        """Open a file of the container; raises OSError, also if a link leads there."""
        *folders, name = self._resolved(inside).relative_to("/").parts or ("",)
        handle = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                part = os.open(folder, os.O_PATH | os.O_DIRECTORY | _FLAGS, dir_fd=handle)
                os.close(handle)
                handle = part
            return os.open(name or ".", flags | _FLAGS, dir_fd=handle)
        finally:
            os.close(handle)

    def give(self, inside: str | PurePosixPath) -> None:
        """Let QEMU's user open a device of the container, if it is there.

        A device has the owner and the mode that it has on the node. This changes the container's
        own copy, in a directory that only root can write.
        """
        with contextlib.suppress(FileNotFoundError):
            os.chown(self.below(inside), *OWNER, follow_symlinks=False)

    def _resolved(self, inside: str | PurePosixPath) -> PurePosixPath:
        """Return a path without the one link that our image has on the way to mounts: /var/run."""
        path = PurePosixPath(inside)
        if path.is_relative_to(_VAR_RUN) and (self.path / "var" / "run").is_symlink():
            return PurePosixPath("/run") / path.relative_to(_VAR_RUN)
        return path

    def names(self, inside: str | PurePosixPath) -> list[str]:
        """Return the names of the regular files in a directory; raises OSError."""
        handle = self.open(inside, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return sorted(
                name
                for name in os.listdir(handle)
                if stat.S_ISREG(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode)
            )
        finally:
            os.close(handle)
