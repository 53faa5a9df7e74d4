"""What size a guest may have now, and what its instance reports of the change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.quantity import Format, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.node import resize
from livevirt.node.pod_status import RESIZE_IN_PROGRESS, RESIZE_PENDING
from livevirt.qemu.plan import MachineSnapshot
from livevirt.vm.sizing import baseline, hot_change
from livevirt.vm.sizing.guest_size import ADVICE, Cause, CpuState, MemoryState
from livevirt.vm.sizing.hot_change import NOT_ACCEPTING, PLUG_FAILED, PLUGGING, UNPLUGGING, Obstacle
from livevirt.vm.sizing.reservation import Size, asked, covers, reservation
from livevirt.vm.spec.resources import Compute


@dataclass(frozen=True, slots=True)
class Stage:
    """Where one resource stands."""

    reason: str
    message: str
    cause: Cause | None = None  # why the guest does not have it


@dataclass(frozen=True, slots=True)
class Progress:
    """Where CPUs and memory stand; None is done, or not begun."""

    cpu: Stage | None = None
    memory: Stage | None = None


IDLE = Progress()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong in the last round: QEMU refused, or the guest did."""

    refused: str = ""
    kept: str = ""
    low: bool = False  # the guest has too little free memory to give any back


NO_TROUBLE = Trouble()


def size(seen: MachineSnapshot) -> Size:
    """Return the size a guest may use at any time, which its pod must hold.

    That is what is plugged, online or not, and memory that it was offered and may take.
    """
    return Size(seen.held_sockets, max(seen.plugged, seen.offered))


def reached(wanted: Size, seen: MachineSnapshot) -> bool:
    """Return whether the guest has just what is wanted, as far as it can confirm that."""
    cpus = seen.sockets == seen.held_sockets == wanted.sockets
    return cpus and seen.memory == seen.plugged == wanted.memory


def progress(
    wanted: Size,
    seen: MachineSnapshot,
    *,
    late: bool = False,
    cpu: Trouble = NO_TROUBLE,
    memory: Trouble = NO_TROUBLE,
    unmovable: bool = False,
) -> Progress:
    """Return where a change stands; `late`: the guest has done nothing for too long.

    `unmovable`: it has memory that its kernel may keep.
    """
    cpus = CpuState(
        sockets=seen.sockets,
        wanted=wanted.sockets,
        per_socket=seen.machine.cpu.per_socket,
        present=seen.present,
        agent=seen.vcpus is not None,
        emulated=seen.machine.accelerator != "kvm",
    )
    state = MemoryState(
        used=seen.memory,
        plugged=seen.plugged,
        wanted=wanted.memory,
        boot=seen.machine.memory.boot,
        agent=seen.blocks is not None,
        unmovable=unmovable,
        ballooned=seen.ballooned,
        statistics=_has_statistics(seen),
    )
    return Progress(
        _stage(cpus.cause, cpus.sockets < cpus.wanted, late, cpu, _cpu_words(cpus)),
        _stage(state.cause, state.plugged <= state.wanted, late, memory, _memory_words(state)),
    )


def _has_statistics(seen: MachineSnapshot) -> bool:
    found = seen.observed.memory.balloon
    return found is not None and found.statistics is not None


def _stage(
    cause: Cause | None, grows: bool, late: bool, trouble: Trouble, what: str
) -> Stage | None:
    if cause is None:
        return None
    if trouble.refused:
        return Stage(PLUG_FAILED, f"QEMU refused: {trouble.refused}; it is tried again", cause)
    if late or trouble.low:
        why = f" ({trouble.kept})" if trouble.kept else ""
        message = f"{what}{why}. {ADVICE[cause]}. It is retried"
        return Stage(NOT_ACCEPTING, message, cause)
    return Stage(PLUGGING if grows else UNPLUGGING, what, cause)


def _cpu_words(cpus: CpuState) -> str:
    if cpus.sockets > cpus.wanted:
        return f"the guest still uses {cpus.sockets} sockets, {cpus.wanted} are wanted"
    return f"the guest uses {cpus.sockets} of {cpus.wanted} sockets"


def _memory_words(memory: MemoryState) -> str:
    used, wanted = _shown(memory.used), _shown(memory.wanted)
    if memory.plugged > memory.wanted:
        return f"the guest still has {_shown(memory.plugged)}, {wanted} is wanted"
    if memory.used < memory.plugged:
        return f"the guest uses {used} of {wanted}, {_shown(memory.plugged)} is plugged in"
    return f"the guest has taken {used} of {wanted}"


def _shown(amount: int) -> str:
    return str(Quantity.from_int(amount, Format.BINARY_SI))


def goal(vmi: Object, pod: Object, seen: MachineSnapshot) -> Size:
    """Return the size to bring a guest to: the one asked for as soon as the pod has room for it.

    Until then the guest gets nothing more; what it should give back it gives at once.
    """
    has, wanted = size(seen), asked(vmi)
    return wanted if _covered(vmi, pod, has) else wanted.smallest(has)


class Begun(Enum):
    """Whether a change that goes well is reported."""

    REPORTED = "the status is written anyway"
    IF_WAITING = "only while its pod has not got the size"
    UNREPORTED = "it may be done in a moment"


@dataclass(frozen=True, slots=True)
class _Resize:
    """Where the resize of a pod stands, for the size its guest is to have."""

    covered: bool  # what is in force is enough
    final: bool  # and no more than that
    failure: Obstacle | None  # of a resize that the node cannot do


def size_status(
    vmi: Object,
    pod: Object | None,
    seen: MachineSnapshot,
    stands: Progress,
    now: datetime,
    begun: Begun = Begun.REPORTED,
) -> tuple[list[Condition] | None, Object | None]:
    """Return `conditions` and `observedSizeRevision` of an instance, by what is true of its size.

    `begun` decides what to do about a change that goes well, which is not worth a write of its own.
    """
    status = vmi.get("status") or {}
    found: list[Condition] | None = status.get("conditions")
    changing = _changing(vmi, stands)
    if pod is None or not changing:
        return found, status.get(hot_change.OBSERVED)
    has, wanted = size(seen), asked(vmi)
    need, covered = reservation(vmi, has), _covered(vmi, pod, has)
    resizing = _Resize(covered, _final(vmi, pod, need), _failure(pod, need))
    done = []
    for type_, same, stage in (
        (hot_change.CPU, seen.sockets == has.sockets == wanted.sockets, stands.cpu),
        (hot_change.MEMORY_TYPE, seen.memory == has.memory == wanted.memory, stands.memory),
    ):
        if type_ not in changing:
            continue
        if same and resizing.final:
            found = conditions.without_condition(found, type_)
            done.append(type_)
            continue
        condition = _condition(vmi, type_, resizing, stage)
        lasts = begun is Begun.REPORTED or (begun is Begun.IF_WAITING and not covered)
        if condition is None and lasts and conditions.find(found, type_) is None:
            condition = hot_change.begun(vmi, type_)
        if condition is not None:
            found = conditions.replaced(found, condition, now)
    over = hot_change.MEMORY_TYPE in done or hot_change.MEMORY_TYPE not in changing
    if covered and hot_change.CPU not in changing:
        stage = stands.cpu or (progress(wanted, seen).cpu if over else None)
        found = _with_forgotten_cpus(found, wanted, seen, stage, now)
    return found, hot_change.observed(vmi, done)


def _changing(vmi: Object, stands: Progress) -> list[str]:
    """Return the types of changes under way, and of sizes that a guest has lost since.

    A kernel that boots again may leave offline what was plugged in before.
    """
    stages = {hot_change.CPU: stands.cpu, hot_change.MEMORY_TYPE: stands.memory}
    under_way = hot_change.under_way(vmi)
    return [
        type_
        for type_, stage in stages.items()
        if type_ in under_way or (stage is not None and stage.reason == NOT_ACCEPTING)
    ]


def _condition(vmi: Object, type_: str, resizing: _Resize, stage: Stage | None) -> Condition | None:
    """Return the condition of a change that is not done, None if there is nothing new to report."""
    held = resizing.failure or hot_change.obstacle(vmi)
    if resizing.covered:
        if stage is not None:
            return hot_change.condition(type_, stage.reason, stage.message)
        waits = held is not None and held.reason == hot_change.WAITING_FOR_MIGRATION
        return hot_change.condition(type_, held.reason, held.message) if held and waits else None
    if held is not None:
        return hot_change.condition(type_, held.reason, held.message)
    old = conditions.find((vmi.get("status") or {}).get("conditions"), type_)
    if old is None or old.get("reason") == hot_change.PLUG_FAILED:
        return None  # a pod that gave back what QEMU did not plug is not resized for a while
    return hot_change.begun(vmi, type_)


def _with_forgotten_cpus(
    found: list[Condition] | None,
    wanted: Size,
    seen: MachineSnapshot,
    stage: Stage | None,
    now: datetime,
) -> list[Condition] | None:
    """Return the conditions with the CPUs that a change of memory alone found to be others.

    So they are when the agent that took emulated CPUs offline is gone: it is not known now. The
    last condition does not go before that is reported: with it the pod's size would be forgotten.
    """
    if stage is None or seen.sockets == wanted.sockets:
        return found
    condition = hot_change.condition(hot_change.CPU, stage.reason, stage.message)
    return conditions.replaced(found, condition, now)


def _covered(vmi: Object, pod: Object, has: Size) -> bool:
    return covers(resize.in_force(pod) or {}, reservation(vmi, has))


def _final(vmi: Object, pod: Object, need: Compute) -> bool:
    """Return whether the pod holds what it must, and no more."""
    in_force = resize.in_force(pod) or {}
    if baseline.left_behind(vmi, in_force):
        return False
    own = (vmi["spec"]["domain"].get("resources") or {}).get("limits") or {}
    limited = all(_limited(in_force, need, name, own=name in own) for name in ("cpu", "memory"))
    return resize.same(resize.desired(pod), in_force) and _is(in_force, need) and limited


def _limited(resources: Object, need: Compute, name: str, *, own: bool) -> bool:
    """Return whether a limit is as it must be; one that the owner did not set is not checked."""
    if not own or name not in need.limits:
        return True
    has = (resources.get("limits") or {}).get(name)
    return has is not None and parse(has) == parse(need.limits[name])


def _is(resources: Object, need: Compute) -> bool:
    """Return whether a container's resources request just what is needed."""
    requests = resources.get("requests") or {}
    return all(
        name in requests and parse(requests[name]) == parse(need.requests[name])
        for name in ("cpu", "memory")
        if name in need.requests
    )


def _failure(pod: Object, need: Compute) -> Obstacle | None:
    """Return why the node cannot do a resize, if it is one to what is needed now."""
    if not _is(resize.desired(pod), need):
        return None
    listed = (pod.get("status") or {}).get("conditions")
    if (found := conditions.find(listed, RESIZE_PENDING)) is not None:
        return Obstacle(found["reason"], found.get("message", ""))
    found = conditions.find(listed, RESIZE_IN_PROGRESS)
    if found is not None and found.get("reason") == "Error":
        return Obstacle(hot_change.RESIZE_FAILED, found.get("message", ""))
    return None
