"""The conditions of an instance whose size is being changed, and the reasons they go through.

`HotVCPUChange` and `HotMemoryChange` are True from the moment the instance asks for another size
until its guest has it and its pod holds no more than that. Both appear in the very write that
changes the spec, so there is no moment at which a change is under way and nobody says so.
"""

from __future__ import annotations

from datetime import datetime

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.quantity import Format, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.sizing.reservation import asked
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.live_patch import MEMORY, SOCKETS

CPU, MEMORY_TYPE = "HotVCPUChange", "HotMemoryChange"
TYPES = (CPU, MEMORY_TYPE)
VOLUME = "HotVolumeChange"  # while a volume is not where it should be; the node says so

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

_FIELDS = {SOCKETS: CPU, MEMORY: MEMORY_TYPE}


def begun(judgement: Judgement, listed: list[Condition] | None, now: datetime) -> list[Condition]:
    """Return the conditions of an instance that is about to get what a judgement calls live."""
    found = listed if listed is not None else []
    for change in judgement.changes:
        if change.path in _FIELDS and change.live:
            found = put(found, _condition(change), now)
    return found


def under_way(vmi: Object) -> list[str]:
    """Return the types of the changes of size that an instance is going through."""
    listed = (vmi.get("status") or {}).get("conditions")
    return [type_ for type_ in TYPES if conditions.is_true(listed, type_)]


def with_reason(
    listed: list[Condition] | None, reason: str, message: str, now: datetime
) -> list[Condition]:
    """Return the conditions in which every change under way says that it stands there."""
    found = listed if listed is not None else []
    for type_ in TYPES:
        if conditions.is_true(found, type_):
            found = put(found, condition(type_, reason, message), now)
    return found


def reached(vmi: Object, type_: str) -> str:
    """Return the sentence that ends the story of a change."""
    size = asked(vmi)
    if type_ == CPU:
        return f"The guest has {size.sockets} CPU socket{'' if size.sockets == 1 else 's'}"
    return f"The guest has {Quantity.from_int(size.memory, Format.BINARY_SI)} of memory"


def condition(type_: str, reason: str, message: str) -> Condition:
    """Return the condition of a change under way."""
    return {"type": type_, "status": "True", "reason": reason, "message": message}


def put(listed: list[Condition], wanted: Condition, now: datetime) -> list[Condition]:
    """Return the list with the condition, the very list if it says that already."""
    old = conditions.find(listed, wanted["type"])
    if old is not None and all(old.get(k) == wanted.get(k) for k in wanted):
        return listed
    return conditions.with_condition(listed, wanted, now)


def _condition(change: Ruling) -> Condition:
    what = f"{change.running} -> {change.wanted}"
    # A full node is asked to resize the pod all the same: it may have room by then.
    migrates = (
        change.verdict is Verdict.LIVE_AFTER_MIGRATION and change.reason is not Reason.NODE_FULL
    )
    shrinks = change.verdict is Verdict.LIVE or (
        migrates and parse(change.wanted) < parse(change.running)
    )
    if migrates and not shrinks:
        message = f"{what}: {change.message}"
        return condition(_FIELDS[change.path], WAITING_FOR_MIGRATION, message)
    if shrinks:  # it costs the pod nothing, and a pod it moves to has the size it then has
        message = f"{what}: the guest gives it back, then its pod"
        return condition(_FIELDS[change.path], UNPLUGGING, message)
    return condition(_FIELDS[change.path], WAITING, f"{what}: the pod is resized first")
