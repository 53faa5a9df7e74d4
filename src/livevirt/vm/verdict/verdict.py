"""The verdict on an edit of a VM: pure, so that it is known before the edit is made.

What is wanted is always judged against what runs, never against the previous edit, so edits add up
and a revert is no change at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.times import format_time
from livevirt.vm.config.settings import LIVE_UPDATE_GATE
from livevirt.vm.sizing import guest_size
from livevirt.vm.sizing.reservation import Size, reserved, size_of
from livevirt.vm.sizing.reservation import held as pod_of
from livevirt.vm.spec import instance
from livevirt.vm.spec.instance import Instance
from livevirt.vm.spec.resources import compute
from livevirt.vm.verdict import fields, template_metadata, volume_edits
from livevirt.vm.verdict.comparison import (
    AMOUNTS,
    MEMORY,
    SOCKETS,
    Comparison,
    about,
    compare,
    differences,
    find,
    in_vm,
)
from livevirt.vm.verdict.growth import (
    HUGE_PAGES,
    by_migration,
    by_resize,
    changes_kind,
    growth,
    kept,
    needs_migration,
)
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.live_patch import live_patch
from livevirt.vm.verdict.verdict_inputs import VerdictInputs

PARTIAL_GATE = "PartialLiveUpdate"
_SIZES = (SOCKETS, MEMORY)
_AMOUNTS = {in_vm(path): path[-1] for path in AMOUNTS}


def judge(inputs: VerdictInputs) -> Judgement:
    """Return the verdict on every field in which the wanted spec differs from what runs.

    A VM without a guest has none: all that is written takes effect at its next start.
    """
    if inputs.unknown:
        return Judgement(unknown=inputs.unknown)
    if inputs.vmi is None or not inputs.runs:
        return Judgement()
    comparison = compare(inputs, inputs.vmi, fields.FOLLOWING)
    volumes: list[Ruling] = []
    if comparison.has_drives:
        volumes = [_available(inputs, each) for each in volume_edits.rulings(comparison)]
    others = [_staged(inputs, _available(inputs, each)) for each in _others(comparison)]
    if not inputs.config.enabled(PARTIAL_GATE):
        others = _held_back(volumes, others)
    metadata = _metadata(inputs, inputs.vmi) if inputs.config.live_update else []
    if inputs.migrating:
        others, volumes = [*map(_after_migration, others)], [*map(_after_migration, volumes)]
    judgement = Judgement(
        (*others, *volumes, *metadata), comparison.started, comparison.wanted, running=True
    )
    judgement = _resized(comparison, inputs.vmi, judgement)
    changes = (_unconfirmed(inputs, each) for each in judgement.changes)
    return replace(judgement, changes=tuple(_in_window(inputs, each) for each in changes))


def relabelled(inputs: VerdictInputs) -> bool:
    """Return whether labels or annotations of the template wait for the next start."""
    if inputs.vmi is None or not inputs.runs or inputs.config.live_update:
        return False
    return bool(_metadata(inputs, inputs.vmi))


def _metadata(inputs: VerdictInputs, vmi: Object) -> list[Ruling]:
    return template_metadata.rulings(inputs.started_metadata, inputs.wanted_metadata, vmi)


def _unconfirmed(inputs: VerdictInputs, change: Ruling) -> Ruling:
    """Return a change with why nothing in the guest will confirm it, if so."""
    field = fields.BY_VM_PATH.get(change.path)
    if not change.live or field is None or field.confirmed is None:
        return change
    if field.confirmed(inputs.vmi or {}):
        return change
    reason = guest_size.NO_COMMAND if inputs.agent else guest_size.NO_AGENT
    return replace(change, unconfirmed=reason)


def refuse(judgement: Judgement, errors: Iterable[FieldError]) -> Judgement:
    """Return the judgement with what admission refuses, which no rule here knows of."""
    changes = {change.path: change for change in judgement.changes}
    for error in errors:
        ruling = Ruling(Verdict.REFUSED, Reason.INVALID, error.message)
        known = changes.get(error.field)
        if known is None:
            changes[error.field] = replace(ruling, path=error.field)
        elif known.verdict is not Verdict.REFUSED:
            changes[error.field] = known.ruled(ruling)
    return replace(judgement, changes=tuple(changes.values()))


def _others(comparison: Comparison) -> list[Ruling]:
    """List the rulings on fields other than disks and volumes; what already runs has none."""
    ours = (volume_edits.DISKS, volume_edits.VOLUMES)
    return [
        about(fields.rule(comparison, path, running, wanted), path, running, wanted)
        for path, running, wanted in differences(
            comparison.before, comparison.after, whole=fields.WHOLE
        )
        if path[: len(ours[0])] != ours[0]
        and path[: len(ours[1])] != ours[1]
        and find(comparison.vmi, path) != wanted
    ]


def _available(inputs: VerdictInputs, change: Ruling) -> Ruling:
    """Return a change as the node can do it: what it does not support waits for a restart."""
    if not inputs.unsupported:
        return change
    size = change.path in _SIZES and Reason.IN_PLACE in inputs.unsupported
    if not size and change.reason not in inputs.unsupported:
        return change
    if change.verdict is Verdict.REFUSED:
        return replace(change, nearest=None)
    what = "volumes" if change.volume else "CPU and memory"
    message = f"live {what} are not available in this release"
    return change.ruled(Ruling(Verdict.RESTART, Reason.NOT_AVAILABLE, message))


def _staged(inputs: VerdictInputs, change: Ruling) -> Ruling:
    """Return a change under the rollout strategy: without LiveUpdate all wait for a restart."""
    if inputs.config.live_update or change.verdict is Verdict.REFUSED:
        return change
    if change.path not in fields.BY_VM_PATH:
        return change
    if inputs.config.strategy == "LiveUpdate":
        message = f"feature gate {LIVE_UPDATE_GATE} is not open, so the rollout strategy is Stage"
        return change.ruled(Ruling(Verdict.RESTART, Reason.GATE_MISSING, message))
    why = inputs.rollout_reason or "the rollout strategy is Stage"
    message = f"{why}: every change waits for a restart"
    return change.ruled(Ruling(Verdict.RESTART, Reason.STAGE, message))


def _in_window(inputs: VerdictInputs, change: Ruling) -> Ruling:
    """Return a change as it waits for the maintenance window; those of volumes never do."""
    if inputs.opens is None or not change.live or change.volume:
        return change
    message = (
        f"it is applied in the maintenance window that opens at {format_time(inputs.opens)}, or at"
        " a restart before that"
    )
    return replace(
        change, reason=Reason.WINDOW, message=message, waits=True, applies_at=inputs.opens
    )


def _held_back(volumes: list[Ruling], others: list[Ruling]) -> list[Ruling]:
    """Return the changes with those that could be live held back by one that cannot."""
    blocking = next((c for c in (*others, *volumes) if c.verdict is Verdict.RESTART), None)
    if blocking is None:
        return others
    message = f"held back by {blocking.path}, which needs a restart; without that it is live"
    ruling = Ruling(Verdict.RESTART, Reason.HELD_BACK, message)
    return [change.ruled(ruling) if change.live else change for change in others]


def _after_migration(change: Ruling) -> Ruling:
    if not change.live or change.reason is Reason.VOLUME_MIGRATION:
        return change  # what is to be copied waits by its own rule
    message = "the guest is being migrated; it is applied after that"
    return change.ruled(Ruling(change.verdict, Reason.MIGRATING, message, waits=True))


def _resized(comparison: Comparison, vmi: Object, judgement: Judgement) -> Judgement:
    """Return the judgement with what live sizes mean for the pod."""
    ours = (*_SIZES, *_AMOUNTS)
    live = [c for c in judgement.changes if c.path in ours and c.live and not c.waits]
    if not live:
        return judgement
    inputs, running = comparison.inputs, comparison.running
    namespace, defaults = inputs.namespace, comparison.defaults
    view = instance.read(apply(live_patch(judgement, vmi)["spec"], comparison.spec))
    wanted, has = size_of(view), comparison.has
    # What shrinks is given back last, so the pod first holds the larger of both.
    now = compute(running, defaults, namespace)
    held = reserved(view, has, defaults, namespace)
    grown = growth(now, held)
    # A growth that is blocked has not reached the guest, which may have less than it asks for.
    grows = _adds(grown) or _adds(growth(pod_of(vmi, has, namespace), held))
    # A pod is resized as a whole, so what must grow by migration blocks the rest.
    larger = [path for path in _SIZES if _larger(path, wanted, has)]
    moved = [_AMOUNTS[c.path] for c in live if c.path in _AMOUNTS]
    first = needs_migration(
        running, [*moved, *(_resource(path, running) for path in larger)], inputs.config
    ) or changes_kind(now, compute(view, defaults, namespace))
    ruled = {}
    for change in live:
        path = change.path
        own = needs_migration(running, [_resource(path, running)], inputs.config)
        if reason := own or first:
            ruled[path] = change.ruled(by_migration(inputs, reason, held, grown))
        elif grows and (path in larger or path in _AMOUNTS):
            ruled[path] = change.ruled(by_resize(inputs, change, held, grown))
        else:
            ruled[path] = change
    if inputs.bounds:
        # A pod with too little for its limit ranges is not resized, to grow first or to shrink.
        at_once = kept(growth(held, now), inputs.bounds)
        at_last = kept(growth(compute(view, defaults, namespace), now), inputs.bounds)
        ruled = {
            path: _stuck(change, at_once or (at_last if _shrinks(change) else ""))
            for path, change in ruled.items()
        }
    changes = tuple(ruled.get(change.path, change) for change in judgement.changes)
    return replace(judgement, changes=changes)


def _stuck(change: Ruling, why: str) -> Ruling:
    """Return a change of size, waiting if there is something why its pod may not follow."""
    if not why or change.waits:
        return change
    message = f"{change.message}; {why}, so the pod waits until that changes"
    return replace(change, reason=Reason.OVER_LIMIT_RANGE, message=message, waits=True)


def _shrinks(change: Ruling) -> bool:
    return parse(change.wanted or 0) < parse(change.running or 0)


def _adds(grown: dict[str, Quantity]) -> bool:
    return any(more > ZERO for more in grown.values())


def _resource(path: str, running: Instance) -> str:
    """Return the resource of the pod that a size of the guest is made of."""
    if path in _AMOUNTS:
        return _AMOUNTS[path]
    if path == SOCKETS:
        return "cpu"
    return "memory" if running.page is None else f"{HUGE_PAGES}{running.page}"


def _larger(path: str, wanted: Size, has: Size) -> bool:
    if path == SOCKETS:
        return wanted.sockets > has.sockets
    return wanted.memory > has.memory
