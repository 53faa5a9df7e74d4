"""What the decision about an instance depends on, read from the objects once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.lifecycle.vmi_admission import FINALIZER
from livevirt.vm.migration import migratability
from livevirt.vm.sizing.hot_change import Obstacle

_WAITING = (
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
    "FailedPvcNotFound", "ClaimInUse",  # of a hotpluggable volume that cannot come later
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an instance does not get on, for programs and for people."""

    reason: str
    message: str
    claim: str = ""  # that is not there


@dataclass(frozen=True, slots=True)
class Launcher:
    """The pod of an instance."""

    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    home: bool = True  # the guest is in it, or is to start in it
    deleting: bool = False
    grace: int = 0  # seconds its deletion leaves it
    unschedulable: Problem | None = None  # where the scheduler finds no node
    problem: Problem | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing runs in it any more."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class Instance:
    """A VirtualMachineInstance."""

    phase: str = "Pending"
    deleting: bool = False
    held: bool = True  # by our finalizer
    grace: int = 30

    @property
    def final(self) -> bool:
        """Whether the guest has ended."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """Everything the decision depends on, read at one moment."""

    vmi: Instance
    pods: tuple[Launcher, ...] = ()
    missing: Problem | None = None  # a claim is not there, or a DataVolume cannot be used yet
    failure: Problem | None = None  # of this pass
    obstacle: Obstacle | None = None  # to a change of size
    left: timedelta = timedelta(0)  # how long the guest's end has been unknown

    @property
    def pod(self) -> Launcher | None:
        """The pod the guest is in or is to start in; where it comes from or goes to is another."""
        return next((pod for pod in self.pods if pod.home), None)


def instance(vmi: Object) -> Instance:
    """Return the view of an instance."""
    meta = vmi["metadata"]
    return Instance(
        phase=status_of(vmi).get("phase") or "Pending",
        deleting="deletionTimestamp" in meta,
        held=FINALIZER in (meta.get("finalizers") or ()),
        grace=launcher.grace(vmi),
    )


def is_home(pod: Object, vmi: Object) -> bool:
    """Return whether an instance's guest is in a pod, or is to start in it and not to come."""
    node = status_of(vmi).get("nodeName")
    if node:
        return bool(pod["spec"].get("nodeName") == node)
    return migratability.JOB not in (pod["metadata"].get("labels") or {})


def pod(obj: Object, vmi: Object) -> Launcher:
    """Return the view of a launcher pod of an instance."""
    meta, spec, status = obj["metadata"], obj["spec"], status_of(obj)
    scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
    waits = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
    return Launcher(
        name=meta["name"],
        uid=meta["uid"],
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        home=is_home(obj, vmi),
        deleting="deletionTimestamp" in meta,
        grace=meta.get("deletionGracePeriodSeconds") or 0,
        unschedulable=Problem("Unschedulable", scheduled.get("message", "")) if waits else None,
        problem=_problem(status),
    )


def _problem(status: Object) -> Problem | None:
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _WAITING:
                return Problem(waiting["reason"], waiting.get("message", ""))
    return None
