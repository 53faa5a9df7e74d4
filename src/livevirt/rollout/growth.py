"""What a live change costs the pod, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.api.quantity import ZERO, Quantity, parse
from livevirt.rollout import instance
from livevirt.rollout.case import Bound, Case
from livevirt.rollout.config import IN_PLACE_GATE, recorded
from livevirt.rollout.judgement import Change, Judgement, Reason, Ruling, Verdict
from livevirt.rollout.resources import Compute, compute

REASONS = {
    "Node": Reason.NODE_FULL,
    "ResourceQuota": Reason.OVER_QUOTA,
    "LimitRange": Reason.OVER_LIMIT_RANGE,
}


def pod_changes(case: Case, judgement: Judgement) -> list[dict[str, str]]:
    """List what the guest's pod asks for otherwise once all of an edit is in force.

    Also where only the overhead grows, as with an IO thread or a host device; what waits for a
    restart is part of the next pod.
    """
    if case.vmi is None or not judgement.running:
        return []
    defaults, around = recorded(case.vmi), case.around.namespace
    old = compute(instance.read(case.vmi["spec"]), defaults, around)
    new = compute(instance.read(judgement.wanted), defaults, around)
    return [
        {"resource": f"{side}.{name}", "from": before.get(name, "0"), "to": amount}
        for side, before, after in (
            ("requests", old.requests, new.requests),
            ("limits", old.limits, new.limits),
        )
        for name, amount in after.items()
        if parse(amount) != parse(before.get(name, "0"))
    ]


_FIXED = {Reason.DEDICATED_CPUS: "dedicated CPUs", Reason.HUGE_PAGES: "huge pages"}


def amounts(compute: Compute) -> dict[str, Quantity]:
    """Return each request and limit, keyed as quotas are."""
    found = {f"limits.{name}": parse(text) for name, text in compute.limits.items()}
    for name, text in compute.requests.items():
        found[name] = found[f"requests.{name}"] = parse(text)
    return found


def growth(before: Compute, after: Compute) -> dict[str, Quantity]:
    """Return by how much each request and limit changes, less than nothing where it shrinks."""
    old, new = amounts(before), amounts(after)
    changed = {name: amount - old.get(name, ZERO) for name, amount in new.items()}
    return {name: more for name, more in changed.items() if more}


def room(case: Case, change: Change, grown: dict[str, Quantity], *, fixed: Reason | None) -> Ruling:
    """Return the ruling on a live change of size: in place, after a resize, or by migration.

    `grown` is what the whole edit costs, for CPUs and memory go together; `fixed` is why a kubelet
    does not resize it, if it does not.
    """
    if not case.config.enabled(IN_PLACE_GATE):
        message = f"feature gate {IN_PLACE_GATE} is closed, so sizes change by migration"
        return _by_migration(case, Reason.IN_PLACE_DISABLED, message)
    if fixed is not None:
        message = f"{_FIXED[fixed]} of a pod are not resized, so this changes by migration"
        return _by_migration(case, fixed, message)
    if not _grows(change) or not any(more > ZERO for more in grown.values()):
        return change.ruling
    short = list(shortages(grown, case.around.bounds))
    if not short:
        message = f"the pod grows first, then {change.ruling.message}"
        return Ruling(Verdict.LIVE_AFTER_RESIZE, Reason.POD_RESIZE, message)
    bound, _ = short[0]
    lacking = "; ".join(words for _, words in short)
    # A migration leaves a full node, but needs a whole second pod's worth of any quota.
    if all(each.kind == "Node" for each, _ in short):
        return _by_migration(case, Reason.NODE_FULL, lacking)
    message = f"{lacking}; it goes on by itself when there is room"
    return Ruling(Verdict.LIVE_AFTER_RESIZE, REASONS[bound.kind], message, waits=True)


def _by_migration(case: Case, reason: Reason, message: str) -> Ruling:
    hindrance = case.around.migration
    if not hindrance:
        return Ruling(Verdict.LIVE_AFTER_MIGRATION, reason, message)
    if reason is Reason.NODE_FULL:
        message = f"{message}; it goes on by itself when there is room ({hindrance})"
        return Ruling(Verdict.LIVE_AFTER_RESIZE, reason, message, waits=True)
    return Ruling(Verdict.LIVE_AFTER_MIGRATION, reason, f"{message}; {hindrance}", waits=True)


def _grows(change: Change) -> bool:
    return parse(change.wanted) > parse(change.running)


def shortages(grown: dict[str, Quantity], bounds: tuple[Bound, ...]) -> Iterator[tuple[Bound, str]]:
    """Yield each bound that has too little left, and what it lacks in words.

    One that has less than nothing left is short of what the pod needs before it grows any more.
    """
    for bound in bounds:
        lacking = [
            f"{more - left} of {name}"
            for name, left in bound.left.items()
            if (more := grown.get(name, ZERO)) > left
        ]
        if lacking:
            yield bound, f"{bound.kind} {bound.name} lacks {', '.join(lacking)}"
