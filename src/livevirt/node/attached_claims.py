"""Claims that attachment pods hold on this node, for guests that run.

A disk reaches QEMU as a file descriptor. It is opened here below the file system of the attachment
pod, without following a link that something in the claim may be, and kept until QEMU has it. Its
path is a link in a directory of ours, named after the claim, so that QEMU's name for the disk stays
the same whichever pod holds the claim.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from livevirt.files import private, raw_file
from livevirt.kube.control.cache import Key
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import container_cgroups, launcher_pod
from livevirt.node.cgroups import Hierarchy, PodCgroup
from livevirt.node.launcher_pod import OWNER, ContainerRoot
from livevirt.node.volumes import CLAIM_FILE, FAILED_MOUNT, Prepared, VolumeProblem, claim_size
from livevirt.qemu.disk import Image
from livevirt.vm.volumes import attachment_pods

WAITING = "AttachmentPodPending"
_BY_CLAIM = "attachment-pods-by-claim"


class AttachedClaims:
    """Opens the disks of claims that attachment pods hold."""

    def __init__(self, pods: Informer, hierarchies: Sequence[Hierarchy], links: Path) -> None:
        """Use the pods of this node; `links` is a directory of ours."""
        self._pods, self._hierarchies, self._links = pods, tuple(hierarchies), links
        self._open: dict[str, int] = {}  # descriptors by the path of their link
        pods.index(_BY_CLAIM, _claims)

    def open(self, claim: Object) -> Prepared:
        """Return the disk of a claim that is bound; raises VolumeProblem until a pod holds it."""
        meta, block = claim["metadata"], claim["spec"].get("volumeMode") == "Block"
        root = self._root(Key(meta["namespace"], meta["name"]))
        try:
            handle = _opened_device(root) if block else _opened_file(root, claim_size(claim))
        except (OSError, ValueError) as error:
            raise VolumeProblem(FAILED_MOUNT, f"PVC {meta['name']}: {error}") from error
        private.folders(self._links)
        path = str(self._links / meta["uid"])
        _link(path, handle)
        before, self._open[path] = self._open.get(path), handle
        if before is not None:  # of an attempt that was given up
            os.close(before)
        image = Image(path, "raw", block=block)
        return Prepared(image, direct=_takes_direct(handle), claim=claim)

    def release(self, prepared: Prepared) -> None:
        """Close a disk that QEMU has opened itself, or will not."""
        path = prepared.image.path
        handle = self._open.pop(path, None)
        if handle is not None:
            os.close(handle)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _root(self, claim: Key) -> ContainerRoot:
        """Return the file system of a container that holds a claim."""
        problem = VolumeProblem(WAITING, f"the attachment pod of PVC {claim.name} does not exist")
        for pod in self._pods.by(_BY_CLAIM, claim):
            id = launcher_pod.running_id(pod, attachment_pods.CONTAINER)
            uid = pod["metadata"]["uid"]
            dirs = container_cgroups.find(self._hierarchies, uid, id) if id else ()
            if pids := PodCgroup(dirs).pids():
                return ContainerRoot(min(pids))
            problem = _waiting(pod)
        raise problem


def _waiting(pod: Object) -> VolumeProblem:
    """Return what an attachment pod waits for."""
    name = pod["metadata"]["name"]
    scheduled = conditions.find(status_of(pod).get("conditions"), "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return VolumeProblem(
            str(scheduled.get("reason") or WAITING), f"pod {name}: {scheduled.get('message')}"
        )
    state = launcher_pod.container_status(pod, attachment_pods.CONTAINER).get("state") or {}
    waiting = state.get("waiting") or {}
    reason = str(waiting.get("reason") or WAITING)
    return VolumeProblem(reason, f"pod {name}: {waiting.get('message') or 'does not run yet'}")


def _opened_file(root: ContainerRoot, size: int) -> int:
    """Open the disk's file in a file system, which is created or grown if necessary."""
    inside = PurePosixPath(attachment_pods.DIRECTORY, CLAIM_FILE)
    path = root.below(inside)
    missing = not os.path.lexists(path)
    raw_file.ensure(path, size)
    if missing:
        os.chown(path, *OWNER, follow_symlinks=False)
    return _checked(root.open(inside, os.O_PATH), stat.S_ISREG, "no regular file")


def _opened_device(root: ContainerRoot) -> int:
    return _checked(root.open(attachment_pods.DEVICE, os.O_PATH), stat.S_ISBLK, "no block device")


def _checked(handle: int, accepts: Callable[[int], bool], problem: str) -> int:
    if accepts(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise ValueError(f"its disk is {problem}")


def _link(path: str, handle: int) -> None:
    unfinished = f"{path}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished)
    os.symlink(f"/proc/{os.getpid()}/fd/{handle}", unfinished)
    os.rename(unfinished, path)


def _takes_direct(handle: int) -> bool:
    try:
        os.close(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def _claims(pod: Object) -> list[Key]:
    if not attachment_pods.is_attachment(pod) or "deletionTimestamp" in pod["metadata"]:
        return []
    claim = attachment_pods.annotation(pod, attachment_pods.CLAIM)
    return [Key(pod["metadata"]["namespace"], claim)]
