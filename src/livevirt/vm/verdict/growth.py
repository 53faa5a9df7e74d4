"""What a live change costs the pod, and whether there is room for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.vm.config.settings import IN_PLACE_GATE, recorded
from livevirt.vm.spec import instance
from livevirt.vm.spec.resources import Compute, compute
from livevirt.vm.verdict.case import Around, Bound, Case
from livevirt.vm.verdict.judgement import Change, Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.live_patch import in_force

REASONS = {
    "Node": Reason.NODE_FULL,
    "ResourceQuota": Reason.OVER_QUOTA,
    "LimitRange": Reason.OVER_LIMIT_RANGE,
}


def pod_changes(case: Case, judgement: Judgement) -> list[dict[str, str]]:
    """List what the guest's pod asks for otherwise once all of an edit is in force.

    Also where only the overhead grows, as with an IO thread or a host device. If anything waits for
    a restart, that is what the next pod asks for.
    """
    if case.vmi is None or not judgement.running:
        return []
    defaults, around = recorded(case.vmi), case.around.namespace
    old = compute(instance.read(case.vmi["spec"]), defaults, around)
    new = compute(instance.read(in_force(judgement, case.vmi)), defaults, around)
    return [
        {"resource": f"{side}.{name}", "from": before.get(name, "0"), "to": amount}
        for side, before, after in (
            ("requests", old.requests, new.requests),
            ("limits", old.limits, new.limits),
        )
        for name, amount in after.items()
        if parse(amount) != parse(before.get(name, "0"))
    ]


#: Why a size cannot change in place, in words.
BY_MIGRATION = {
    Reason.IN_PLACE_DISABLED: (
        f"feature gate {IN_PLACE_GATE} is closed, so sizes change by migration"
    ),
    Reason.DEDICATED_CPUS: "dedicated CPUs of a pod are not resized, so this changes by migration",
    Reason.HUGE_PAGES: "huge pages of a pod are not resized, so this changes by migration",
}
_ONE = Quantity.from_int(1)


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


def room(
    case: Case,
    change: Change,
    held: Compute,
    grown: dict[str, Quantity],
    *,
    grows: bool,
    fixed: Reason | None,
) -> Ruling:
    """Return the ruling on a live change of size: in place, after a resize, or by migration.

    `held` is what the pod must hold for the whole edit and `grown` what that is more than today,
    for CPUs and memory go together; `grows` tells whether this adds to what the guest has, and
    `fixed` is why a kubelet does not resize it, if it does not.
    """
    if not case.config.enabled(IN_PLACE_GATE):
        fixed = Reason.IN_PLACE_DISABLED
    if fixed is not None:
        hindrance = no_migration(case.around, amounts(held), grown)
        message = "; ".join(filter(None, (BY_MIGRATION[fixed], hindrance)))
        return Ruling(Verdict.LIVE_AFTER_MIGRATION, fixed, message, waits=bool(hindrance))
    if not grows:
        return change.ruling
    short = list(shortages(grown, case.around.bounds))
    if not short:
        message = f"the pod grows first, then {change.ruling.message}"
        return Ruling(Verdict.LIVE_AFTER_RESIZE, Reason.POD_RESIZE, message)
    bound, _ = short[0]
    lacking = "; ".join(words for _, words in short)
    hindrance = ""
    if all(each.kind == "Node" for each, _ in short):
        hindrance = fallback(case.around, amounts(held), grown)
        if not hindrance:
            message = f"{lacking}, so the guest migrates to a node with room"
            return Ruling(Verdict.LIVE_AFTER_MIGRATION, Reason.NODE_FULL, message)
    message = f"{lacking}; it goes on by itself when there is room"
    message += f" ({hindrance})" if hindrance else ""
    return Ruling(Verdict.LIVE_AFTER_RESIZE, REASONS[bound.kind], message, waits=True)


def fallback(around: Around, whole: dict[str, Quantity], grown: dict[str, Quantity]) -> str:
    """Return why a guest that finds no room to grow may not migrate instead; empty if it may.

    Its pod may have asked for the growth already and then keeps that much from a quota as well.
    """
    asked = {name: more for name, more in grown.items() if more > ZERO}
    both = {name: amount + asked.get(name, ZERO) for name, amount in whole.items()}
    return _no_second(around, both) or no_migration(around, whole, grown)


def no_migration(around: Around, whole: dict[str, Quantity], grown: dict[str, Quantity]) -> str:
    """Return why a guest may not migrate by itself to a pod of that size; empty if it may."""
    if around.migration:
        return around.migration
    ranges = tuple(bound for bound in around.bounds if bound.kind == "LimitRange")
    if lacking := "; ".join(words for _, words in shortages(grown, ranges)):
        return lacking
    return _no_second(around, whole) or _no_node(around, whole)


def _no_second(around: Around, whole: dict[str, Quantity]) -> str:
    """Return which quota has no room for a second pod of a guest that may migrate."""
    if around.migration:
        return around.migration
    lacking = "; ".join(words for _, words in shortages({**whole, "pods": _ONE}, around.second))
    return f"a migration takes a second pod, and {lacking}" if lacking else ""


def _no_node(around: Around, whole: dict[str, Quantity]) -> str:
    if around.elsewhere is None:
        return ""
    if not around.elsewhere:
        return "there is no other node that takes it"
    short = list(shortages(whole, around.elsewhere))
    if len(short) < len(around.elsewhere):
        return ""
    return f"no other node has room: {'; '.join(words for _, words in short)}"


def shortages(grown: dict[str, Quantity], bounds: tuple[Bound, ...]) -> Iterator[tuple[Bound, str]]:
    """Yield each bound that has too little left, and what it lacks in words.

    One that has less than nothing left is short of what the pod needs before it grows any more.
    """
    for bound in bounds:
        if lacking := _beyond(grown, bound.left):
            yield bound, f"{bound.kind} {bound.name} lacks {', '.join(lacking)}"


def kept(given: dict[str, Quantity], bounds: tuple[Bound, ...]) -> str:
    """Return which limit ranges do not let a pod give so much back; empty if all do."""
    found = []
    for bound in bounds:
        if below := _beyond(given, bound.spare):
            found.append(f"{bound.kind} {bound.name} wants {', '.join(below)} more")
    return "; ".join(found)


def _beyond(amounts: Mapping[str, Quantity], most: Mapping[str, Quantity]) -> list[str]:
    """Say by how much amounts exceed the most of each, for those that do."""
    return [
        f"{amount - limit} of {name}"
        for name, limit in most.items()
        if (amount := amounts.get(name, ZERO)) > limit
    ]
