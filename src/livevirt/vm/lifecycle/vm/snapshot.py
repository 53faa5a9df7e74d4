"""What the plan for a VirtualMachine depends on, read from the objects once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from livevirt.kube.objects import times
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vm_admission import FINALIZER
from livevirt.vm.spec.defaults import run_strategy

START, STOP = "Start", "Stop"
ORPHAN = "orphan"  # the finalizer of a deletion that leaves dependents behind
LATE_VOLUMES = "kubevirt.io/immediate-data-volume-creation"
#: A DataVolume in one of these is filled, or will be once a pod uses it.
USABLE = ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")


@dataclass(frozen=True, slots=True)
class Request:
    """Something a person asked for that is still to be done."""

    action: str
    uid: str = ""  # of the instance to stop
    paused: bool = False  # start, but do not run yet


@dataclass(frozen=True, slots=True)
class StartFailure:
    """How often in a row a guest ended before it ran."""

    count: int
    uid: str  # of the last one
    retry_at: datetime


@dataclass(frozen=True, slots=True)
class Machine:
    """A VirtualMachine."""

    name: str
    strategy: str
    known_strategy: str = ""  # the one of the last pass
    deleting: bool = False
    has_finalizer: bool = True  # ours
    orphaning: bool = False
    requests: tuple[Request, ...] = ()
    failure: StartFailure | None = None
    volumes: tuple[str, ...] = ()  # names of the DataVolumes it makes
    late_volumes: bool = False  # made at the start only


@dataclass(frozen=True, slots=True)
class Guest:
    """The instance of the VM's name."""

    uid: str
    phase: str = ""
    owner: str = "this"  # this, none, another
    deleting: bool = False
    ran: bool = False

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class VmSnapshot:
    """Everything the decision depends on, read at one moment."""

    vm: Machine
    guest: Guest | None
    now: datetime
    volumes: Mapping[str, str]  # phase of each DataVolume there is, by name

    @property
    def requests(self) -> tuple[Request, ...]:
        """What is asked for and not done yet."""
        left = self.vm.requests
        while left and _done(left[0], self.guest):
            left = left[1:]
        return left


def machine(vm: Object) -> Machine:
    """Return the view of a VirtualMachine."""
    meta, spec, status = vm["metadata"], vm["spec"], status_of(vm)
    finalizers = meta.get("finalizers") or ()
    annotations = meta.get("annotations") or {}
    return Machine(
        name=meta["name"],
        strategy=run_strategy(spec),
        known_strategy=status.get("runStrategy") or "",
        deleting="deletionTimestamp" in meta,
        has_finalizer=FINALIZER in finalizers,
        orphaning=ORPHAN in finalizers,
        requests=tuple(map(_request, status.get("stateChangeRequests") or ())),
        failure=_failure(status.get("startFailure")),
        volumes=tuple(_volume_names(spec)),
        late_volumes=annotations.get(LATE_VOLUMES) == "false",
    )


def _volume_names(spec: Object) -> Iterator[str]:
    """Yield the DataVolumes of a VM; of one being deleted their names may be unchecked."""
    for template in spec.get("dataVolumeTemplates") or ():
        if name := (template.get("metadata") or {}).get("name"):
            yield name


def guest(vmi: Object | None, vm: Object) -> Guest | None:
    """Return the view of the instance of a VM's name."""
    if vmi is None:
        return None
    meta, status = vmi["metadata"], status_of(vmi)
    phase = status.get("phase") or ""
    passed = {each.get("phase") for each in status.get("phaseTransitionTimestamps") or ()}
    return Guest(
        uid=meta["uid"],
        phase=phase,
        owner=_owner(meta, vm["metadata"]["uid"]),
        deleting="deletionTimestamp" in meta,
        ran="Running" in passed or phase == "Running",
    )


def _owner(meta: Object, uid: str) -> str:
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return "this" if owner["uid"] == uid else "another"
    return "none"


def _request(written: Object) -> Request:
    data = written.get("data") or {}
    return Request(written["action"], written.get("uid") or "", data.get("paused") == "true")


def _failure(written: Object | None) -> StartFailure | None:
    if not written:
        return None
    return StartFailure(
        written.get("consecutiveFailCount", 0),
        written.get("lastFailedVMIUID", ""),
        times.parse_time(written["retryAfterTimestamp"]),
    )


def _done(request: Request, guest: Guest | None) -> bool:
    if request.action == STOP:
        return guest is None or guest.uid != request.uid
    return guest is not None and not guest.deleting and not guest.final
