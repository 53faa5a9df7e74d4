"""The rules on the fields that give a guest its size: sockets and memory."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.vm.sizing import guest_size, hot_change
from livevirt.vm.spec import sizes
from livevirt.vm.spec.instance import read_amount
from livevirt.vm.verdict import below_boot
from livevirt.vm.verdict.comparison import Comparison, Path, find
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict

SOCKETS: Path = ("domain", "cpu", "sockets")
GUEST: Path = ("domain", "memory", "guest")
_TOO_MANY = "Number of sockets in CPU topology is greater than the maximum sockets allowed"


def sockets(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a change of `domain.cpu.sockets`."""
    wanted, running = int(wanted), int(running or 1)
    asked = comparison.asked.domain.cpu
    if asked.max_sockets and wanted > asked.max_sockets:
        return Ruling(Verdict.REFUSED, Reason.ABOVE_MAXIMUM, _TOO_MANY, asked.max_sockets)
    if not asked.vcpus and _resources_differ(comparison, "cpu"):
        return _follows("sockets", "cpu")
    if comparison.running.architecture not in ("", "amd64"):
        message = "CPUs are plugged into x86_64 guests only"
        return Ruling(Verdict.RESTART, Reason.ARCHITECTURE, message)
    most = comparison.most_sockets
    if wanted > most:
        message = f"the guest was started for at most {most} sockets"
        nearest = most if most != running else None
        return Ruling(Verdict.RESTART, Reason.ABOVE_MAXIMUM, message, nearest)
    has = _plugged(comparison, running)
    vmi, inputs = comparison.inputs.vmi or {}, comparison.inputs
    controlled = inputs.accelerator == "kvm" or (inputs.agent and guest_size.cpu_confirmed(vmi))
    if wanted < has and not controlled:
        message = (
            "an emulated CPU is taken away by the guest agent, and none answers; with"
            " qemu-guest-agent in the guest this is live"
        )
        return Ruling(Verdict.RESTART, Reason.NO_AGENT, message)
    possible = guest_size.possible_sockets(vmi)
    if possible is not None and wanted > max(possible, comparison.has.sockets):
        message = (
            f"the guest's kernel registers no more than {possible} sockets until it boots again; on"
            " KVM recent kernels register all"
        )
        nearest = possible if possible and possible != running else None
        return Ruling(Verdict.RESTART, Reason.KERNEL_LIMIT, message, nearest)
    change = "plugged into" if wanted > comparison.has.sockets else "taken from"
    return Ruling(Verdict.LIVE, Reason.IN_PLACE, f"whole sockets are {change} the running guest")


def _plugged(comparison: Comparison, running: int) -> int:
    """Return how many sockets the guest may have: not those of a change that is blocked."""
    vmi = comparison.inputs.vmi or {}
    has = ((vmi.get("status") or {}).get("currentCPUTopology") or {}).get("sockets")
    held = hot_change.reason_of(vmi, hot_change.CPU) in hot_change.HELD
    return min(int(has), running) if has and held else running


def guest_memory(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a change of `domain.memory.guest`."""
    boot, most = comparison.boot_memory, comparison.running.max_guest
    if not isinstance(wanted, Quantity) or not isinstance(running, Quantity) or boot is None:
        return Ruling(Verdict.RESTART, Reason.NOT_ELIGIBLE, "the guest's memory is not known")
    refusal = _refusal(comparison, wanted)
    if refusal is not None:
        return refusal
    if comparison.asked.guest is None and _resources_differ(comparison, "memory"):
        return _follows("memory", "memory")
    if wanted < boot:
        return below_boot.rule(comparison, boot, running, wanted)
    problem = _problem(comparison, boot, most)
    if problem or most is None:
        return Ruling(Verdict.RESTART, Reason.NOT_ELIGIBLE, problem)
    block = sizes.HUGE_BLOCK if comparison.running.page == sizes.HUGE_BLOCK else sizes.BLOCK

    def restart(reason: Reason, message: str, nearest: Quantity) -> Ruling:
        shown = str(nearest) if nearest != running else None
        return Ruling(Verdict.RESTART, reason, message, shown)

    if wanted > most:
        message = f"the guest was started with room for at most {most}"
        return restart(Reason.ABOVE_MAXIMUM, message, most)
    if wanted.nano % block.nano:
        message = f"memory is plugged in blocks of {block}"
        return restart(Reason.UNALIGNED, message, _aligned(wanted, running, most, block))
    if wanted.bytes > comparison.has.memory:
        return Ruling(Verdict.LIVE, Reason.IN_PLACE, "memory is plugged into the running guest")
    message = "memory is taken from the running guest"
    if not guest_size.shrinkable(comparison.inputs.vmi or {}):
        message += f". {guest_size.MAY_NOT_SHRINK}"
    return Ruling(Verdict.LIVE, Reason.IN_PLACE, message)


def pod_amount(comparison: Comparison, running: Any, wanted: Any, *, name: str) -> Ruling:
    """Rule on a change of a request or limit of the pod.

    Where the guest's own size is left out it follows the pod's, and does not change live.
    """
    asked, trees = comparison.asked, (comparison.before, comparison.after)
    sockets_differ, memory_differs = (
        find(trees[0], path) != find(trees[1], path) for path in (SOCKETS, GUEST)
    )
    if name == "cpu" and not asked.domain.cpu.vcpus and sockets_differ:
        return _follows("sockets", "cpu")
    if name == "memory" and asked.guest is None and memory_differs:
        return _follows("memory", "memory")
    message = "the pod is resized; nothing in the guest changes"
    return Ruling(Verdict.LIVE, Reason.POD_ONLY, message)


def _refusal(comparison: Comparison, wanted: Quantity) -> Ruling | None:
    """Return the refusal of a size that does not go with the maximum the owner wrote."""
    most = comparison.asked.max_guest
    if most is None or not comparison.inputs.config.live_update:
        return None
    problem = sizes.hotplug_problem(comparison.asked, wanted, most)
    if not problem:
        return None
    above = wanted > most
    return Ruling(
        Verdict.REFUSED,
        Reason.ABOVE_MAXIMUM if above else Reason.NOT_ELIGIBLE,
        problem,
        str(most) if above else None,
    )


def _problem(comparison: Comparison, boot: Quantity, most: Quantity | None) -> str:
    """Return why no memory can be plugged into the guest that runs, or nothing."""
    if most is not None:
        return sizes.hotplug_problem(comparison.running, boot, most)
    ratio = comparison.defaults.max_hotplug_ratio
    room = read_amount(comparison.defaults.max_guest) or boot * ratio
    return sizes.hotplug_problem(comparison.running, boot, room) or (
        "the guest was started without room for more memory"
    )


def _aligned(wanted: Quantity, running: Quantity, most: Quantity, block: Quantity) -> Quantity:
    """Return the nearest whole number of blocks that is a change and has room."""
    lower = Quantity(wanted.nano // block.nano * block.nano, Format.BINARY_SI)
    upper = lower + block
    nearer = wanted.nano - lower.nano <= upper.nano - wanted.nano
    order = (lower, upper) if nearer else (upper, lower)
    return next((each for each in order if each != running and each <= most), lower)


def _resources_differ(comparison: Comparison, name: str) -> bool:
    paths = [("domain", "resources", side, name) for side in ("requests", "limits")]
    return any(find(comparison.before, path) != find(comparison.after, path) for path in paths)


def _follows(what: str, resource: str) -> Ruling:
    message = f"the {what} follow domain.resources ({resource}), which a restart applies"
    return Ruling(Verdict.RESTART, Reason.FOLLOWS_RESOURCES, message)
