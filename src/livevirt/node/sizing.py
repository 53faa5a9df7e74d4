"""What size a guest may have now, and what its instance says of the change. Pure."""

from __future__ import annotations

from datetime import datetime

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.node import resize
from livevirt.node.pod_status import RESIZE_IN_PROGRESS, RESIZE_PENDING
from livevirt.node.progress import Progress, progress, size
from livevirt.qemu.plan import Seen
from livevirt.vm.sizing import hot_change
from livevirt.vm.sizing.reservation import Size, asked, covers, reservation
from livevirt.vm.spec.resources import Compute


def goal(vmi: Object, pod: Object, seen: Seen) -> Size:
    """Return the size to bring a guest to: the one asked for as soon as the pod has room for it.

    Until then the guest gets nothing more; what it should give back it gives at once.
    """
    has, wanted = size(seen), asked(vmi)
    return wanted if _covered(vmi, pod, has) else wanted.smallest(has)


def told(
    vmi: Object, pod: Object | None, seen: Seen, stands: Progress, now: datetime
) -> list[Condition] | None:
    """Return the instance's conditions with what is true of a change of size.

    Where the resize is still the controller's to ask for, its words stay.
    """
    found: list[Condition] | None = (vmi.get("status") or {}).get("conditions")
    if pod is None or not hot_change.under_way(vmi):
        return found
    has, wanted = size(seen), asked(vmi)
    need, covered = reservation(vmi, has), _covered(vmi, pod, has)
    final, pending = _final(pod, need), _pending(pod, need)
    for type_, same, stage in (
        (hot_change.CPU, has.sockets == wanted.sockets, stands.cpu),
        (hot_change.MEMORY_TYPE, seen.memory == has.memory == wanted.memory, stands.memory),
    ):
        if not conditions.is_true(found, type_):
            continue
        if same and final:
            found = conditions.without_condition(found, type_)
        elif covered and stage is not None:
            found = _put(found, type_, (stage.reason, stage.message), now)
        elif pending is not None:
            found = _put(found, type_, pending, now)
    return _with_cpus(found, wanted, seen, stands, now) if covered else found


def _with_cpus(
    found: list[Condition] | None, wanted: Size, seen: Seen, stands: Progress, now: datetime
) -> list[Condition] | None:
    """Return the conditions with the CPUs that a change of memory alone found to be others.

    So they are when the agent that took emulated CPUs offline is gone: nobody knows of it now. The
    last condition does not go before that is told, for with it the pod's size would be forgotten.
    """
    if conditions.is_true(found, hot_change.CPU) or seen.sockets == wanted.sockets:
        return found
    over = not conditions.is_true(found, hot_change.MEMORY_TYPE)
    stage = stands.cpu or (progress(wanted, seen).cpu if over else None)
    return _put(found, hot_change.CPU, (stage.reason, stage.message), now) if stage else found


def _put(
    found: list[Condition] | None, type_: str, words: tuple[str, str], now: datetime
) -> list[Condition]:
    return hot_change.put(found or [], hot_change.condition(type_, *words), now)


def _covered(vmi: Object, pod: Object, has: Size) -> bool:
    return covers(resize.in_force(pod) or {}, reservation(vmi, has))


def _final(pod: Object, need: Compute) -> bool:
    """Tell whether the pod holds what it must, and no more."""
    in_force = resize.in_force(pod)
    return resize.same(resize.desired(pod), in_force) and _is(in_force or {}, need)


def _is(resources: Object, need: Compute) -> bool:
    """Tell whether a container's resources request just what is needed."""
    requests = resources.get("requests") or {}
    return all(
        name in requests and parse(requests[name]) == parse(need.requests[name])
        for name in ("cpu", "memory")
        if name in need.requests
    )


def _pending(pod: Object, need: Compute) -> tuple[str, str] | None:
    """Return the reason and words of a resize that the node cannot do.

    One that asks for something else than is needed now is not worth a word.
    """
    if not _is(resize.desired(pod), need):
        return None
    listed = (pod.get("status") or {}).get("conditions")
    if (found := conditions.find(listed, RESIZE_PENDING)) is not None:
        return found["reason"], found.get("message", "")
    found = conditions.find(listed, RESIZE_IN_PROGRESS)
    if found is not None and found.get("reason") == "Error":
        return hot_change.RESIZE_FAILED, found.get("message", "")
    return None
