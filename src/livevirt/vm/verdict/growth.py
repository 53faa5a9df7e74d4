"""What a change of size costs the pod, and how the pod gets there: in place or by migration.

The verdict, the VMI controller and the workload updater all decide with these functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from livevirt.kube.objects.quantity import ZERO, Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import IN_PLACE_GATE, Config, recorded
from livevirt.vm.sizing.baseline import NAMES
from livevirt.vm.sizing.reservation import qos_class, reported_size, reservation
from livevirt.vm.spec import instance
from livevirt.vm.spec.instance import Instance
from livevirt.vm.spec.resources import Compute, compute
from livevirt.vm.verdict.judgement import Judgement, Reason, Ruling, Verdict
from livevirt.vm.verdict.live_patch import in_force
from livevirt.vm.verdict.verdict_inputs import Bound, VerdictInputs

REASONS = {
    "Node": Reason.NODE_FULL,
    "ResourceQuota": Reason.OVER_QUOTA,
    "LimitRange": Reason.OVER_LIMIT_RANGE,
}
HUGE_PAGES = "hugepages-"  # what the names of resources that are huge pages begin with


def pod_changes(inputs: VerdictInputs, judgement: Judgement) -> list[dict[str, str]]:
    """List the requests and limits of the guest's pod that differ once all of an edit is in force.

    Also where only the overhead grows, as with an IO thread or a host device. If anything waits for
    a restart, these are the values of the next pod.
    """
    if inputs.vmi is None or not judgement.running:
        return []
    defaults, namespace = recorded(inputs.vmi), inputs.namespace
    old = compute(instance.read(inputs.vmi["spec"]), defaults, namespace)
    new = compute(instance.read(in_force(judgement, inputs.vmi)), defaults, namespace)
    return [
        {"resource": f"{side}.{name}", "from": before.get(name, "0"), "to": amount}
        for side, before, after in (
            ("requests", old.requests, new.requests),
            ("limits", old.limits, new.limits),
        )
        for name, amount in after.items()
        if parse(amount) != parse(before.get(name, "0"))
    ]


#: Why a size cannot change in place, as messages.
BY_MIGRATION = {
    Reason.IN_PLACE_DISABLED: (
        f"feature gate {IN_PLACE_GATE} is closed, so sizes change by migration"
    ),
    Reason.DEDICATED_CPUS: "dedicated CPUs of a pod are not resized, so this changes by migration",
    Reason.QOS_CLASS: "the QoS class of a pod is fixed, so this changes by migration",
    Reason.LIMIT_REMOVED: "a pod keeps its limits, so this changes by migration",
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
    """Return by how much each request and limit changes, negative where it shrinks."""
    old, new = amounts(before), amounts(after)
    changed = {name: amount - old.get(name, ZERO) for name, amount in new.items()}
    return {name: more for name, more in changed.items() if more}


def needs_migration(running: Instance, resized: Collection[str], settings: Config) -> Reason | None:
    """Return why a pod cannot be resized in place, None if it can.

    `resized` names the resources of which the pod must request another amount. A kubelet resizes
    neither dedicated CPUs nor huge pages.
    """
    pages = [name for name in resized if name.startswith(HUGE_PAGES)]
    if not pages and "cpu" not in resized and "memory" not in resized:
        return None
    if not settings.enabled(IN_PLACE_GATE):
        return Reason.IN_PLACE_DISABLED
    if "cpu" in resized and running.domain.cpu.dedicated_cpu_placement:
        return Reason.DEDICATED_CPUS
    return Reason.HUGE_PAGES if pages else None


def changes_kind(before: Compute, after: Compute) -> Reason | None:
    """Return why a pod cannot go from some requests and limits to others once it is created."""
    if any(name in before.limits and name not in after.limits for name in NAMES):
        return Reason.LIMIT_REMOVED
    classes = [
        qos_class({"requests": each.requests, "limits": each.limits}) for each in (before, after)
    ]
    return None if classes[0] == classes[1] else Reason.QOS_CLASS


def by_migration(
    inputs: VerdictInputs, reason: Reason, held: Compute, grown: dict[str, Quantity]
) -> Ruling:
    """Return the ruling on a size that cannot change in place."""
    obstacle = no_migration(inputs, amounts(held), grown)
    message = "; ".join(filter(None, (BY_MIGRATION[reason], obstacle)))
    return Ruling(Verdict.LIVE_AFTER_MIGRATION, reason, message, waits=bool(obstacle))


def by_resize(
    inputs: VerdictInputs, ruling: Ruling, held: Compute, grown: dict[str, Quantity]
) -> Ruling:
    """Return the ruling on a live growth for which the pod must be resized first.

    `held` is what the pod must hold for the whole edit and `grown` what that is more than today,
    because CPUs and memory go together.
    """
    short = list(shortages(grown, inputs.bounds))
    if not short:
        message = f"the pod grows first, then {ruling.message}"
        return Ruling(Verdict.LIVE_AFTER_RESIZE, Reason.POD_RESIZE, message)
    bound, _ = short[0]
    missing = "; ".join(text for _, text in short)
    obstacle = ""
    if all(each.kind == "Node" for each, _ in short):
        obstacle = no_migration_instead(inputs, amounts(held), grown)
        if not obstacle:
            message = f"{missing}, so the guest migrates to a node with room"
            return Ruling(Verdict.LIVE_AFTER_MIGRATION, Reason.NODE_FULL, message)
    message = f"{missing}; it resumes automatically when there is room"
    message += f" ({obstacle})" if obstacle else ""
    return Ruling(Verdict.LIVE_AFTER_RESIZE, REASONS[bound.kind], message, waits=True)


def no_migration_instead(
    inputs: VerdictInputs, whole: dict[str, Quantity], grown: dict[str, Quantity]
) -> str:
    """Return why a guest that finds no room to grow cannot migrate instead; empty if it can.

    Its pod may have asked for the growth already, which then counts against a quota as well.
    """
    asked = {name: more for name, more in grown.items() if more > ZERO}
    both = {name: amount + asked.get(name, ZERO) for name, amount in whole.items()}
    return _no_second_pod(inputs, both) or no_migration(inputs, whole, grown)


def no_migration(
    inputs: VerdictInputs, whole: dict[str, Quantity], grown: dict[str, Quantity]
) -> str:
    """Return why livevirt cannot migrate a guest to a pod of that size; empty if it can."""
    if inputs.migration_obstacle:
        return inputs.migration_obstacle
    ranges = tuple(bound for bound in inputs.bounds if bound.kind == "LimitRange")
    if missing := "; ".join(text for _, text in shortages(grown, ranges)):
        return missing
    return _no_second_pod(inputs, whole) or _no_node(inputs, whole)


def no_migration_of(inputs: VerdictInputs, vmi: Object) -> str:
    """Return why a guest that waits for room to grow cannot migrate; empty if it can.

    The verdict on the edit said the same, if nothing has changed since.
    """
    whole = amounts(reservation(vmi, reported_size(vmi), inputs.namespace))
    return no_migration(inputs, whole, {})


def _no_second_pod(inputs: VerdictInputs, whole: dict[str, Quantity]) -> str:
    """Return which quota has no room for the pod of a migration's target."""
    if inputs.migration_obstacle:
        return inputs.migration_obstacle
    short = shortages({**whole, "pods": _ONE}, inputs.second_pod)
    missing = "; ".join(text for _, text in short)
    return f"a migration takes a second pod, and {missing}" if missing else ""


def _no_node(inputs: VerdictInputs, whole: dict[str, Quantity]) -> str:
    if inputs.other_nodes is None:
        return ""
    if not inputs.other_nodes:
        return "there is no other node that takes it"
    short = list(shortages(whole, inputs.other_nodes))
    if len(short) < len(inputs.other_nodes):
        return ""
    return f"no other node has room: {'; '.join(text for _, text in short)}"


def shortages(
    grown: Mapping[str, Quantity], bounds: tuple[Bound, ...]
) -> Iterator[tuple[Bound, str]]:
    """Yield each bound that has too little left, and the message on what is missing.

    One whose rest is negative is short of what the pod needs before it grows any more.
    """
    for bound in bounds:
        if missing := _beyond(grown, bound.left):
            yield bound, f"{bound.kind} {bound.name} is missing {', '.join(missing)}"


def kept(given: Mapping[str, Quantity], bounds: tuple[Bound, ...]) -> str:
    """Return which limit ranges do not let a pod give so much back; empty if all do."""
    found = []
    for bound in bounds:
        if below := _beyond(given, bound.spare):
            found.append(f"{bound.kind} {bound.name} wants {', '.join(below)} more")
    return "; ".join(found)


def _beyond(amounts: Mapping[str, Quantity], most: Mapping[str, Quantity]) -> list[str]:
    """Return by how much amounts exceed the most of each, for those that do."""
    return [
        f"{amount - limit} of {name}"
        for name, limit in most.items()
        if (amount := amounts.get(name, ZERO)) > limit
    ]
