"""A running instance that changes its size: the facts in its status, and the conditions they make.

Each field of the status has one writer, and the conditions follow from the fields:

`sizeRevision`          counts the changes of sockets and of memory; the VM controller, in the very
                        write that changes the spec
`podResize`             what keeps the pod from being resized; the VMI controller
`observedSizeRevision`  the change that guest and pod have; the node agent
`HotVCPUChange`, `HotMemoryChange`
                        True while the two revisions differ; the node agent. One that is done within
                        a second is not reported by the instance, only by its VM.
"""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import FINAL, Condition
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.sizing import guest_size
from livevirt.vm.sizing.reservation import asked, reported_size
from livevirt.vm.verdict.comparison import AMOUNTS, MEMORY, SOCKETS, in_vm
from livevirt.vm.verdict.judgement import Judgement

CPU, MEMORY_TYPE = "HotVCPUChange", "HotMemoryChange"
TYPES = (CPU, MEMORY_TYPE)
VOLUME = "HotVolumeChange"  # while a volume is not where it should be
DEVICE, DEVICE_FAILED = "HotDeviceChange", "DeviceChangeFailed"  # while a device is not as wanted

REQUESTED, OBSERVED, POD_RESIZE = "sizeRevision", "observedSizeRevision", "podResize"

WAITING = "WaitingForResize"
PLUGGING, UNPLUGGING = "Plugging", "Unplugging"
ATTACHING, DETACHING = "Attaching", "Detaching"
NOT_ACCEPTING, PLUG_FAILED = "GuestNotAccepting", "PlugFailed"
WAITING_FOR_MIGRATION = "WaitingForMigration"
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
OVER_QUOTA, OVER_LIMIT_RANGE = "OverQuota", "OverLimitRange"
RESIZE_REFUSED, RESIZE_FAILED = "ResizeRefused", "ResizeFailed"
#: Where the pod has not got what the change needs, so nothing of it has reached the guest.
HELD = (
    WAITING_FOR_MIGRATION, DEFERRED, INFEASIBLE, OVER_QUOTA, OVER_LIMIT_RANGE, RESIZE_REFUSED,
)  # fmt: skip
#: Reasons that a change begins with, which the event about the edit covers.
BEGUN = (WAITING, UNPLUGGING)

_KEYS = {CPU: "cpu", MEMORY_TYPE: "memory"}  # in the revisions
_FIELDS = {
    SOCKETS: "cpu",
    MEMORY: "memory",
    **{in_vm(path): path[-1] for path in AMOUNTS},
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a pod from being resized."""

    reason: str
    message: str


# ---------------------------------------------------------------- the facts


def requested(judgement: Judgement, vmi: Object) -> Object | None:
    """Return the `sizeRevision` of an instance that is about to get what a judgement calls live.

    None if neither the size of the guest nor that of its pod changes.
    """
    changed = {
        _FIELDS[c.path]
        for c in judgement.changes
        if c.path in _FIELDS and c.live and not c.deferred
    }
    if not changed:
        return None
    before = _status(vmi).get(REQUESTED) or {}
    return {**before, **{key: before.get(key, 0) + 1 for key in sorted(changed)}}


def observed(vmi: Object, done: list[str]) -> Object | None:
    """Return the `observedSizeRevision` of an instance in which changes of these types are done."""
    status = _status(vmi)
    before, wanted = status.get(OBSERVED), status.get(REQUESTED) or {}
    reached = {_KEYS[type_]: wanted[_KEYS[type_]] for type_ in done if _KEYS[type_] in wanted}
    return {**(before or {}), **reached} if reached else before


def under_way(vmi: Object) -> list[str]:
    """Return the types of the changes of size that an instance is going through."""
    status = _status(vmi)
    if status.get("phase") in FINAL:
        return []
    wanted, reached = status.get(REQUESTED) or {}, status.get(OBSERVED) or {}
    return [
        type_
        for type_, key in _KEYS.items()
        if wanted.get(key) != reached.get(key)
        or conditions.is_true(status.get("conditions"), type_)
    ]


def obstacle(vmi: Object) -> Obstacle | None:
    """Return what keeps the pod from being resized for the change that is wanted now."""
    status = _status(vmi)
    found = status.get(POD_RESIZE)
    if not found or (found.get(REQUESTED) or {}) != (status.get(REQUESTED) or {}):
        return None
    return Obstacle(found["reason"], found.get("message", ""))


def pod_resize(vmi: Object, found: Obstacle | None) -> Object | None:
    """Return the `podResize` of an instance whose pod cannot be resized because of that."""
    if found is None:
        return None
    if found == obstacle(vmi):
        kept: Object = _status(vmi)[POD_RESIZE]
        return kept
    revision = _status(vmi).get(REQUESTED)
    built = {"reason": found.reason, "message": conditions.human_readable(found.message)}
    return {**built, REQUESTED: revision} if revision else built


def reason_of(vmi: Object, type_: str) -> str:
    """Return where a change stands, by what keeps its pod or else by its condition."""
    if type_ in under_way(vmi) and (found := obstacle(vmi)) is not None:
        return found.reason
    condition = conditions.find(_status(vmi).get("conditions"), type_) or {}
    return str(condition.get("reason") or "")


# ---------------------------------------------------------------- the conditions


def begun(vmi: Object, type_: str) -> Condition:
    """Return the condition of a change that has begun, and that nothing keeps."""
    has, wanted = reported_size(vmi), asked(vmi)
    if type_ == CPU:
        old, new = has.sockets, wanted.sockets
        sizes = f"{old} -> {new}"
    else:
        old, new = has.memory, wanted.memory
        sizes = f"{_amount(old)} -> {_amount(new)}"
    if new == old:
        return condition(type_, WAITING, "the pod is resized")
    if new < old:
        return condition(type_, UNPLUGGING, f"{sizes}: the guest gives it back, then its pod")
    return condition(type_, WAITING, f"{sizes}: the pod is resized first")


def reported(vmi: Object) -> list[Condition]:
    """Return the conditions of an instance, and those of changes that it has not reported yet."""
    listed: list[Condition] = _status(vmi).get("conditions") or []
    new = [type_ for type_ in under_way(vmi) if conditions.find(listed, type_) is None]
    if not new:
        return listed
    held = obstacle(vmi)
    if held is not None:
        return [*listed, *(condition(type_, held.reason, held.message) for type_ in new)]
    return [*listed, *(begun(vmi, type_) for type_ in new)]


def reached(vmi: Object, type_: str) -> str:
    """Return the sentence on a change that is done."""
    size, status = asked(vmi), _status(vmi)
    connected = conditions.is_true(status.get("conditions"), "AgentConnected")
    unsure = guest_size.UNCONFIRMED[guest_size.NO_COMMAND if connected else guest_size.NO_AGENT]
    if type_ == CPU:
        what = f"{size.sockets} CPU socket{'' if size.sockets == 1 else 's'}"
        confirmed = guest_size.cpu_confirmed(vmi)
    else:
        what = f"{_amount(size.memory)} of memory"
        confirmed = guest_size.memory_confirmed(vmi)
    return f"The guest has {what}" if confirmed else f"{what}: {unsure}"


def condition(type_: str, reason: str, message: str) -> Condition:
    """Return the condition of a change under way."""
    return conditions.condition(type_, True, reason, message)


def _amount(size: int) -> str:
    return str(Quantity.from_int(size, Format.BINARY_SI))


def _status(vmi: Object) -> Object:
    return status_of(vmi)
