"""The patch of an instance's spec that brings live changes to the guest."""

from __future__ import annotations

from livevirt.kube.objects.merge_patch import apply, combined, difference
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Object
from livevirt.vm.config import settings
from livevirt.vm.sizing import baseline
from livevirt.vm.spec import instance, sizes
from livevirt.vm.spec.instance import Instance
from livevirt.vm.verdict import fields, template_metadata
from livevirt.vm.verdict.comparison import AMOUNTS, MEMORY, SOCKETS, find, in_vm
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling


def live_patch(judgement: Judgement, vmi: Object) -> Object:
    """Return the JSON merge patch of the instance, `{}` if nothing is to change.

    Requests and limits that the owner wrote follow the size, by KubeVirt's formulas but counted
    from the size they were written for, so that growing and shrinking ends where it began. Where
    the owner changes them they are taken as they are. Volumes are not part of it.
    """
    live = [change for change in judgement.changes if _patched(change)]
    paths = {change.path for change in live}
    spec = _patch(paths, judgement, vmi)
    return combined(spec, template_metadata.patch(live, vmi), _record(paths, judgement, vmi))


def _record(live: set[str], judgement: Judgement, vmi: Object) -> Object:
    """Return the merge patch that records other requests and limits as the owner's."""
    if not (changed := _amounts(live)):
        return {}
    base = baseline.replaced(vmi, judgement.started, judgement.wanted, changed)
    return {"metadata": {"annotations": {baseline.RECORD: base.text()}}}


def _amounts(live: set[str]) -> set[tuple[str, str]]:
    """Return the requests and limits among the fields that change, as side and resource."""
    return {(path[-2], path[-1]) for path in AMOUNTS if in_vm(path) in live}


def in_force(judgement: Judgement, vmi: Object) -> Object:
    """Return the spec of the instance that has all of an edit, volumes aside.

    It is the same instance where all is live, also what comes after a migration, and else the one
    of the next start.
    """
    if not all(change.live for change in judgement.changes):
        return judgement.wanted
    live = {change.path for change in judgement.changes if not change.volume}
    found: Object = apply(_patch(live, judgement, vmi).get("spec", {}), vmi["spec"])
    return found


def _patch(live: set[str], judgement: Judgement, vmi: Object) -> Object:
    """Return the merge patch of an instance that gets what is live of a judgement."""
    if not live:
        return {}
    wanted = judgement.wanted
    patch = _copied(live, vmi["spec"], wanted)
    domain: Object = patch.pop("domain", {})
    sides: dict[str, dict[str, str | None]] = {"requests": {}, "limits": {}}
    if SOCKETS in live:
        domain.setdefault("cpu", {})["sockets"] = wanted["domain"]["cpu"]["sockets"]
    if MEMORY in live:
        domain.setdefault("memory", {})["guest"] = wanted["domain"]["memory"]["guest"]
    changed = _amounts(live)
    if changed or (domain and judgement.started["domain"].get("resources")):
        base = baseline.recorded(vmi)
        if changed:
            base = baseline.replaced(vmi, judgement.started, wanted, changed)
        view, goal = baseline.view(judgement.started, base), instance.read(wanted)
        for side, name in changed:
            sides[side][name] = None  # unless there is one
        if SOCKETS in live or _has(changed, "cpu"):
            _follow_sockets(sides, view, goal, settings.recorded(vmi).cpu_allocation_ratio)
        if MEMORY in live or _has(changed, "memory"):
            _follow_memory(sides, view, goal)
    if any(sides.values()):
        domain["resources"] = {side: amounts for side, amounts in sides.items() if amounts}
    if domain:
        patch["domain"] = domain
    return {"spec": patch} if patch else {}


def _has(changed: set[tuple[str, str]], name: str) -> bool:
    return any(name == each for _, each in changed)


def _copied(live: set[str], spec: Object, wanted: Object) -> Object:
    """Return the merge patch of the fields that an instance gets as the VM has them."""
    patch: Object = {}
    for path, field in fields.BY_VM_PATH.items():
        if path in live and field.copied:
            part = patch
            for name in field.path[:-1]:
                part = part.setdefault(name, {})
            changed = difference(find(spec, field.path), find(wanted, field.path))
            part[field.path[-1]] = changed
    return patch


def settles(judgement: Judgement) -> bool:
    """Return whether the instance has all of the VM once it is patched."""
    return all(map(followed, judgement.changes))


def followed(change: Ruling) -> bool:
    """Return whether the instance gets a change now; volumes through `volume_patch`."""
    copied_later = change.reason is Reason.VOLUME_MIGRATION and change.waits
    return change.live and not change.deferred and not copied_later


def _patched(change: Ruling) -> bool:
    return followed(change) and not change.volume


def _follow_sockets(
    sides: dict[str, dict[str, str | None]], started: Instance, goal: Instance, ratio: int
) -> None:
    was, resources = started.domain.cpu, started.domain.resources
    per_socket = sizes.topology(was, resources)
    booted = per_socket.vcpus
    sockets = sizes.topology(goal.domain.cpu, goal.domain.resources).sockets
    vcpus = sockets * per_socket.cores * per_socket.threads
    share = 1000 // ratio
    for side, given in (("requests", resources.request("cpu")), ("limits", resources.limit("cpu"))):
        if given is not None:
            # An owner who asked for less than the shares keeps at least what is left of them.
            least = min(given.milli(), vcpus * share)
            amount = max(given.milli() + (vcpus - booted) * share, least)
            sides[side]["cpu"] = str(Quantity.from_milli(amount))


def _follow_memory(
    sides: dict[str, dict[str, str | None]], started: Instance, goal: Instance
) -> None:
    booted, wanted, resources = sizes.guest(started), goal.guest, started.domain.resources
    if booted is None or wanted is None:
        return
    for side, given in (
        ("requests", resources.request("memory")),
        ("limits", resources.limit("memory")),
    ):
        if given is not None:
            moved = given + (wanted - booted)
            if wanted < booted:
                # An overcommitted request is a part of the size, and of a smaller one no less.
                part = given.bytes * wanted.bytes // booted.bytes
                moved = max(moved, Quantity.from_int(part, Format.BINARY_SI))
            sides[side]["memory"] = str(moved)
