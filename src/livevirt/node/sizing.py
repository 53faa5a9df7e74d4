"""What size a guest may have now, and what its instance says of the change. Pure."""

from __future__ import annotations

from datetime import datetime

from livevirt.api import conditions
from livevirt.api.conditions import Condition
from livevirt.api.quantity import parse
from livevirt.api.request import Object
from livevirt.node import resize
from livevirt.node.pod_status import RESIZE_IN_PROGRESS, RESIZE_PENDING
from livevirt.node.progress import Progress, size
from livevirt.qemu.plan import Seen
from livevirt.rollout import hot_change
from livevirt.rollout.reservation import Size, asked, covers, held, reservation


def goal(vmi: Object, pod: Object, seen: Seen) -> Size:
    """Return the size to bring a guest to: the one asked for as soon as the pod has room for it.

    Until then the guest gets nothing more; what it should give back it gives at once.
    """
    has, wanted = size(seen), asked(vmi)
    return wanted if _covered(vmi, pod, has) else wanted.smallest(has)


def told(
    vmi: Object, pod: Object | None, seen: Seen, progress: Progress, now: datetime
) -> list[Condition] | None:
    """Return the instance's conditions with what is true of a change of size.

    Where the resize is still the controller's to ask for, its words stay.
    """
    found: list[Condition] | None = (vmi.get("status") or {}).get("conditions")
    if pod is None or not hot_change.under_way(vmi):
        return found
    has, wanted = size(seen), asked(vmi)
    covered, final = _covered(vmi, pod, has), _final(vmi, pod, wanted)
    pending = _pending(pod)
    for type_, same, stage in (
        (hot_change.CPU, seen.sockets == wanted.sockets, progress.cpu),
        (hot_change.MEMORY_TYPE, seen.memory == wanted.memory, progress.memory),
    ):
        if not conditions.is_true(found, type_):
            continue
        if same and final:
            found = conditions.without_condition(found, type_)
        elif covered and stage is not None:
            words = hot_change.condition(type_, stage.reason, stage.message)
            found = hot_change.put(found or [], words, now)
        elif pending is not None:
            found = hot_change.put(found or [], hot_change.condition(type_, *pending), now)
    return found


def _covered(vmi: Object, pod: Object, has: Size) -> bool:
    return covers(resize.in_force(pod) or {}, reservation(vmi, has))


def _final(vmi: Object, pod: Object, wanted: Size) -> bool:
    """Tell whether the pod holds what the size asked for needs, and no more."""
    needed = held(vmi, wanted).requests
    in_force = (resize.in_force(pod) or {}).get("requests") or {}
    return resize.same(resize.desired(pod), resize.in_force(pod)) and all(
        name in in_force and parse(in_force[name]) == parse(needed[name])
        for name in ("cpu", "memory")
        if name in needed
    )


def _pending(pod: Object) -> tuple[str, str] | None:
    """Return the reason and words of a resize that the node cannot do."""
    listed = (pod.get("status") or {}).get("conditions")
    if (found := conditions.find(listed, RESIZE_PENDING)) is not None:
        return found["reason"], found.get("message", "")
    found = conditions.find(listed, RESIZE_IN_PROGRESS)
    if found is not None and found.get("reason") == "Error":
        return hot_change.RESIZE_FAILED, found.get("message", "")
    return None
