"""What to do about a VirtualMachine: frozen data in, steps out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from livevirt.vm.lifecycle.vm.snapshot import START, STOP, USABLE, Guest, Request, VmSnapshot

#: Strategies that start by themselves, so that failing starts must be spaced out.
STARTING = ("Always", "RerunOnFailure", "Once")


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Put our finalizer on the VM."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Take our finalizer off the VM."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Become the owner of the instance."""

    uid: str


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Create a DataVolume from its template."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Start the guest."""

    paused: bool = False


@dataclass(frozen=True, slots=True)
class DeleteInstance:
    """Stop the guest."""

    uid: str


@dataclass(frozen=True, slots=True)
class SwitchToAlways:
    """Let a halted VM run, as a person asked for."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at that moment."""

    until: datetime


#: Steps that an edit of a running guest need not wait for.
NON_BLOCKING = (AddFinalizer, CreateVolume)
Step = (
    AddFinalizer
    | RemoveFinalizer
    | Adopt
    | CreateVolume
    | CreateInstance
    | DeleteInstance
    | SwitchToAlways
    | Wait
)


def plan(seen: VmSnapshot) -> list[Step]:
    """List the steps towards what the VM asks for."""
    vm, guest = seen.vm, seen.guest
    if vm.deleting:
        return _leave(seen)
    steps: list[Step] = [] if vm.has_finalizer else [AddFinalizer()]
    if guest is not None and guest.owner != "this":
        if guest.owner == "none" and not guest.deleting:
            steps.append(Adopt(guest.uid))  # left behind by a VM of this name
        return steps
    run = _absent(seen) if guest is None else _present(seen, guest)
    starting = any(isinstance(step, CreateInstance) for step in run)
    if starting or not vm.late_volumes:
        missing = [name for name in vm.volumes if name not in seen.volumes]
        steps += map(CreateVolume, missing)
    if starting and any(seen.volumes.get(name) not in USABLE for name in vm.volumes):
        return steps  # their progress will wake us
    return steps + run


def _leave(seen: VmSnapshot) -> list[Step]:
    """List the steps that end the VM: its guest goes first, unless it is to be left behind."""
    vm, guest = seen.vm, seen.guest
    if not vm.has_finalizer:
        return []
    if vm.orphaning or guest is None or guest.owner != "this":
        return [RemoveFinalizer()]
    return [] if guest.deleting else [DeleteInstance(guest.uid)]


def _absent(seen: VmSnapshot) -> list[Step]:
    """List the steps of a VM that has no instance."""
    vm = seen.vm
    asked = next(iter(seen.requests), None)
    start = asked is not None and asked.action == START
    paused = start and asked is not None and asked.paused
    match vm.strategy:
        case "Halted":  # only a paused start is asked for thus; the status forgets others
            return [SwitchToAlways()] if paused else []
        case "Manual":
            return [CreateInstance(paused)] if start else []
        case "RerunOnFailure" if vm.known_strategy == "RerunOnFailure" and not start:
            return []  # it ended well, or a person stopped it
        case "Always" | "RerunOnFailure" | "Once":
            if vm.failure is not None and seen.now < vm.failure.retry_at:
                return [Wait(vm.failure.retry_at)]
            return [CreateInstance(paused)]
        case _:
            return []


def _present(seen: VmSnapshot, guest: Guest) -> list[Step]:
    """List the steps of a VM that has an instance."""
    if guest.deleting:
        return []  # its end will wake us
    delete: list[Step] = [DeleteInstance(guest.uid)]
    stop = Request(STOP, guest.uid) in seen.requests[:1]
    match seen.vm.strategy:
        case "Halted":
            return delete
        case "Always" | "RerunOnFailure" if guest.final or stop:
            return delete
        case "Manual" if stop:
            return delete
        case _:
            return []
