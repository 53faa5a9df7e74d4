"""What to do about an instance: frozen data in, steps out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from livevirt.kube.objects.conditions import FINAL
from livevirt.vm.lifecycle.vmi.view import InstanceSnapshot, Launcher

#: The node reports how a guest ended. After this time without a report, the phase is set here.
PATIENCE = timedelta(seconds=5)
_BEFORE_NODE = ("Pending", "Scheduling")  # phases in which no guest has run yet


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the launcher pod."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Ask the node to end the guest within so many seconds."""

    name: str
    uid: str
    grace: int


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take our finalizer off the instance."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after that time."""

    time: timedelta


Step = CreatePod | DeletePod | LetGo | Wait


def phase(seen: InstanceSnapshot) -> str:
    """Return the phase the instance is to be in, as far as that is not the node's to say."""
    vmi, pod = seen.vmi, seen.pod
    if vmi.final:
        return vmi.phase
    if pod is None or pod.ended:
        never_ran = vmi.phase in _BEFORE_NODE
        if never_ran and (pod is not None or vmi.deleting or vmi.phase == "Scheduling"):
            return "Failed"
        return "Failed" if not never_ran and seen.left >= PATIENCE else vmi.phase
    if vmi.phase in _BEFORE_NODE:
        return "Scheduled" if pod.node else "Scheduling"
    return vmi.phase


def end_unknown(seen: InstanceSnapshot) -> bool:
    """Return whether the guest must have ended and the node has not reported how."""
    over = seen.pod is None or seen.pod.ended
    return over and not seen.vmi.final and seen.vmi.phase not in _BEFORE_NODE


def plan(seen: InstanceSnapshot) -> list[Step]:
    """List the steps towards a guest that runs, or to its end."""
    vmi, pod = seen.vmi, seen.pod
    waits: list[Step] = (
        [Wait(PATIENCE - seen.left)] if end_unknown(seen) and phase(seen) not in FINAL else []
    )
    if vmi.deleting:
        if seen.pods:
            return [
                *(_delete(each, vmi.grace) for each in seen.pods if _may(each, vmi.grace)),
                *waits,
            ]
        return waits or ([LetGo()] if vmi.held else [])
    if vmi.phase == "Pending" and pod is None:
        return [] if seen.missing is not None else [CreatePod()]
    return waits


def _may(pod: Launcher, grace: int) -> bool:
    """Return whether deleting a pod changes anything: it ends, or ends sooner."""
    return not pod.deleting or pod.grace > max(grace, 1)


def _delete(pod: Launcher, grace: int) -> DeletePod:
    # With no grace at all the pod would be gone before its guest is.
    return DeletePod(pod.name, pod.uid, max(grace, 1))
