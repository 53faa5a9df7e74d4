"""The verdict on an edit of a VM: pure, so that it is known before the edit is made.

Judged is always what is wanted against what runs, never against the edit before, so that edits add
up and a revert is no change at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import LIVE_UPDATE_GATE
from livevirt.vm.sizing.reservation import Size, reserved, size_of
from livevirt.vm.sizing.reservation import held as pod_of
from livevirt.vm.spec import instance
from livevirt.vm.spec.effective import plain
from livevirt.vm.spec.instance import Instance
from livevirt.vm.spec.resources import compute
from livevirt.vm.verdict import fields, volume_edits
from livevirt.vm.verdict.case import Case
from livevirt.vm.verdict.changes import Difference, Name, differences, find, in_vm
from livevirt.vm.verdict.ground import Ground, prepare
from livevirt.vm.verdict.growth import growth, kept, room
from livevirt.vm.verdict.judgement import Change, Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.live_patch import MEMORY, MEMORY_REQUEST, SOCKETS, apply, live_patch

PARTIAL_GATE = "PartialLiveUpdate"
_SIZES = (SOCKETS, MEMORY)
_PLACEMENT = tuple(in_vm((field,)) for field in ("nodeSelector", "affinity", "tolerations"))


def judge(case: Case) -> Judgement:
    """Return the verdict on every field in which the wanted spec differs from what runs.

    A VM without a guest has none: all that is written takes effect at its next start.
    """
    if case.vmi is None or not case.runs:
        return Judgement()
    ground = prepare(case, case.vmi)
    volumes: list[Change] = []
    if ground.has_drives:
        ruled = volume_edits.rulings(ground)
        volumes = [_available(case, _volume_change(*each)) for each in ruled]
    others = [_change(each, fields.rule(ground, each)) for each in _others(ground)]
    others = [_staged(case, _available(case, change)) for change in others]
    if not case.config.enabled(PARTIAL_GATE):
        others = _held_back(volumes, others)
    if case.migrating:
        others, volumes = [*map(_after_migration, others)], [*map(_after_migration, volumes)]
    judgement = Judgement((*others, *volumes), ground.started, ground.wanted, running=True)
    return _resized(ground, case.vmi, judgement)


def refuse(judgement: Judgement, errors: Iterable[FieldError]) -> Judgement:
    """Return the judgement with what admission refuses, which no rule here knows of."""
    changes = {change.path: change for change in judgement.changes}
    for error in errors:
        ruling = Ruling(Verdict.REFUSED, Reason.INVALID, error.message)
        known = changes.get(error.field)
        if known is None:
            changes[error.field] = Change(error.field, None, None, ruling)
        elif known.verdict is not Verdict.REFUSED:
            changes[error.field] = replace(known, ruling=ruling)
    return replace(judgement, changes=tuple(changes.values()))


def _others(ground: Ground) -> list[Difference]:
    """List what differs outside disks and volumes; what already runs is no difference."""
    ours = (volume_edits.DISKS, volume_edits.VOLUMES)
    return [
        each
        for each in differences(ground.before, ground.after)
        if each.path[: len(ours[0])] != ours[0]
        and each.path[: len(ours[1])] != ours[1]
        and find(ground.vmi, each.path) != each.wanted
    ]


def _change(difference: Difference, ruling: Ruling, volume: str = "") -> Change:
    path, running, wanted = difference
    return Change(in_vm(path), plain(running), plain(wanted), ruling, volume)


def _volume_change(difference: Difference, ruling: Ruling) -> Change:
    name = next(part for part in difference.path if isinstance(part, Name))
    return _change(difference, ruling, str(name))


def _available(case: Case, change: Change) -> Change:
    """Return a change as the node can do it: what it does not know how to waits for a restart."""
    size = change.path in _SIZES and Reason.IN_PLACE in case.around.lacking
    if not size and change.ruling.reason not in case.around.lacking:
        return change
    if change.verdict is Verdict.REFUSED:
        return replace(change, ruling=replace(change.ruling, nearest=None))
    what = "volumes" if change.volume else "CPU and memory"
    message = f"live {what} are not available in this release"
    return replace(change, ruling=Ruling(Verdict.RESTART, Reason.NOT_AVAILABLE, message))


def _staged(case: Case, change: Change) -> Change:
    """Return a change as the rollout strategy has it: without LiveUpdate all wait for a restart."""
    if case.config.live_update or change.verdict is Verdict.REFUSED:
        return change
    if change.path not in (*_SIZES, MEMORY_REQUEST, *_PLACEMENT):
        return change
    if case.config.strategy == "LiveUpdate":
        message = f"feature gate {LIVE_UPDATE_GATE} is not open, so the rollout strategy is Stage"
        return replace(change, ruling=Ruling(Verdict.RESTART, Reason.GATE_MISSING, message))
    message = "the rollout strategy is Stage: every change waits for a restart"
    return replace(change, ruling=Ruling(Verdict.RESTART, Reason.STAGE, message))


def _held_back(volumes: list[Change], others: list[Change]) -> list[Change]:
    """Return the changes with those that could be live held back by one that cannot."""
    blocking = next((c for c in (*others, *volumes) if c.verdict is Verdict.RESTART), None)
    if blocking is None:
        return others
    message = f"held back by {blocking.path}, which needs a restart; without that it is live"
    ruling = Ruling(Verdict.RESTART, Reason.HELD_BACK, message)
    return [replace(change, ruling=ruling) if change.live else change for change in others]


def _after_migration(change: Change) -> Change:
    if not change.live or change.ruling.reason is Reason.VOLUME_MIGRATION:
        return change  # what is to be copied waits by its own rule
    message = "the guest is being migrated; it is applied after that"
    return replace(change, ruling=Ruling(change.verdict, Reason.MIGRATING, message, waits=True))


def _resized(ground: Ground, vmi: Object, judgement: Judgement) -> Judgement:
    """Return the judgement with what live sizes mean for the pod."""
    live = [c for c in judgement.changes if c.path in _SIZES and c.live and not c.ruling.waits]
    if not live:
        return judgement
    case, running, namespace = ground.case, ground.running, ground.case.around.namespace
    view = instance.read(apply(live_patch(judgement, vmi)["spec"], ground.spec))
    wanted, has = size_of(view), ground.has
    # What shrinks is given back last, so the pod first holds the larger of both.
    now = compute(running, ground.defaults, namespace)
    held = reserved(view, has, ground.defaults, namespace)
    grown = growth(now, held)
    # A growth that is held up has not come to the guest, which may have less than it asks for.
    grows = _adds(grown) or _adds(growth(pod_of(vmi, has, namespace), held))
    fixed = _fixed(running)
    # A pod is resized as a whole, so what must grow by migration holds up the rest.
    first = next((fixed[path] for path in fixed if _larger(path, wanted, has)), None)
    ruled = {}
    for change in live:
        path, larger = change.path, grows and _larger(change.path, wanted, has)
        ruling = room(case, change, held, grown, grows=larger, fixed=fixed.get(path, first))
        ruled[path] = replace(change, ruling=ruling)
    if bounds := case.around.bounds:
        # A pod with too little for its limit ranges is not resized, to grow first or to shrink.
        at_once = kept(growth(held, now), bounds)
        at_last = kept(growth(compute(view, ground.defaults, namespace), now), bounds)
        ruled = {
            path: _stuck(change, at_once or (at_last if _shrinks(change) else ""))
            for path, change in ruled.items()
        }
    changes = tuple(ruled.get(change.path, change) for change in judgement.changes)
    return replace(judgement, changes=changes)


def _stuck(change: Change, why: str) -> Change:
    """Return a change of size, waiting if there is something why its pod may not follow."""
    ruling = change.ruling
    if not why or ruling.waits:
        return change
    message = f"{ruling.message}; {why}, so the pod waits until that changes"
    stuck = replace(ruling, reason=Reason.OVER_LIMIT_RANGE, message=message, waits=True)
    return replace(change, ruling=stuck)


def _shrinks(change: Change) -> bool:
    return parse(change.wanted) < parse(change.running)


def _adds(grown: dict[str, Quantity]) -> bool:
    return any(more > ZERO for more in grown.values())


def _fixed(running: Instance) -> dict[str, Reason]:
    """Return the sizes that a kubelet does not resize."""
    found = {}
    if running.domain.cpu.dedicated_cpu_placement:
        found[SOCKETS] = Reason.DEDICATED_CPUS
    if running.page is not None:
        found[MEMORY] = Reason.HUGE_PAGES
    return found


def _larger(path: str, wanted: Size, has: Size) -> bool:
    if path == SOCKETS:
        return wanted.sockets > has.sockets
    return wanted.memory > has.memory
