"""When the number of sockets and the memory of a running guest can change."""

from __future__ import annotations

from livevirt.kube.objects import conditions
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.vm.sizing import hot_change
from livevirt.vm.spec import memory
from livevirt.vm.spec.instance import read_amount
from livevirt.vm.verdict.changes import Difference, Path, find
from livevirt.vm.verdict.ground import Ground
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict

GUEST: Path = ("domain", "memory", "guest")
_MEMORY_LIMIT: Path = ("domain", "resources", "limits", "memory")
_TOO_MANY = "Number of sockets in CPU topology is greater than the maximum sockets allowed"


def sockets(ground: Ground, difference: Difference) -> Ruling:
    """Rule on a change of `domain.cpu.sockets`."""
    wanted, running = int(difference.wanted), int(difference.running or 1)
    asked = ground.asked.domain.cpu
    if asked.max_sockets and wanted > asked.max_sockets:
        return Ruling(Verdict.REFUSED, Reason.ABOVE_MAXIMUM, _TOO_MANY, asked.max_sockets)
    if not asked.vcpus and _resources_differ(ground, "cpu"):
        return _follows("sockets", "cpu")
    if ground.running.architecture not in ("", "amd64"):
        message = "CPUs are plugged into x86_64 guests only"
        return Ruling(Verdict.RESTART, Reason.ARCHITECTURE, message)
    most = ground.most_sockets
    if wanted > most:
        message = f"the guest was started for at most {most} sockets"
        nearest = most if most != running else None
        return Ruling(Verdict.RESTART, Reason.ABOVE_MAXIMUM, message, nearest)
    has = _plugged(ground, running)
    if wanted < has and ground.case.around.accelerator != "kvm" and not ground.case.agent:
        message = (
            "an emulated CPU is taken away by the guest agent, and none answers; with"
            " qemu-guest-agent in the guest this is live"
        )
        return Ruling(Verdict.RESTART, Reason.NO_AGENT, message)
    change = "plugged into" if wanted > ground.has.sockets else "taken from"
    return Ruling(Verdict.LIVE, Reason.IN_PLACE, f"whole sockets are {change} the running guest")


def _plugged(ground: Ground, running: int) -> int:
    """Return how many sockets the guest may have: not those of a change that is held up."""
    status = (ground.case.vmi or {}).get("status") or {}
    change = conditions.find(status.get("conditions"), hot_change.CPU) or {}
    has = (status.get("currentCPUTopology") or {}).get("sockets")
    return min(int(has), running) if has and change.get("reason") in hot_change.HELD else running


def guest_memory(ground: Ground, difference: Difference) -> Ruling:
    """Rule on a change of `domain.memory.guest`."""
    wanted, running = difference.wanted, difference.running
    boot, most = ground.boot_memory, ground.running.max_guest
    if not isinstance(wanted, Quantity) or not isinstance(running, Quantity) or boot is None:
        return Ruling(Verdict.RESTART, Reason.NOT_ELIGIBLE, "the guest's memory is not told")
    refusal = _refusal(ground, wanted)
    if refusal is not None:
        return refusal
    if ground.asked.guest is None and _resources_differ(ground, "memory"):
        return _follows("memory", "memory")
    problem = _problem(ground, boot, most)
    if problem or most is None:
        return Ruling(Verdict.RESTART, Reason.NOT_ELIGIBLE, problem)
    block = memory.HUGE_BLOCK if ground.running.page == memory.HUGE_BLOCK else memory.BLOCK

    def restart(reason: Reason, message: str, nearest: Quantity) -> Ruling:
        shown = str(nearest) if nearest != running else None
        return Ruling(Verdict.RESTART, reason, message, shown)

    if wanted > most:
        message = f"the guest was started with room for at most {most}"
        return restart(Reason.ABOVE_MAXIMUM, message, most)
    if wanted < boot:
        message = f"the guest cannot have less than the {boot} it was started with"
        return restart(Reason.BELOW_BOOT, message, boot)
    if wanted.nano % block.nano:
        message = f"memory is plugged in blocks of {block}"
        return restart(Reason.UNALIGNED, message, _aligned(wanted, running, most, block))
    change = "plugged into" if wanted.bytes > ground.has.memory else "taken from"
    return Ruling(Verdict.LIVE, Reason.IN_PLACE, f"memory is {change} the running guest")


def memory_request(ground: Ground, difference: Difference) -> Ruling:
    """Rule on a change of `domain.resources.requests.memory`: it is live if it goes with the size.

    That is what an instance type that overcommits memory makes of another size.
    """
    size = Difference(GUEST, find(ground.before, GUEST), find(ground.after, GUEST))
    limited = any(find(tree, _MEMORY_LIMIT) is not None for tree in (ground.before, ground.after))
    told = difference.running is not None and difference.wanted is not None
    if not told or limited or ground.asked.guest is None or size.running == size.wanted:
        return Ruling(Verdict.RESTART, Reason.NOT_LIVE, "it is read when the guest starts")
    ruling = guest_memory(ground, size)
    if ruling.verdict is not Verdict.LIVE:
        message = "it goes with the guest's memory, which does not change live"
        return Ruling(Verdict.RESTART, Reason.NOT_LIVE, message)
    message = "the pod asks for it together with the guest's memory"
    return Ruling(Verdict.LIVE, Reason.IN_PLACE, message)


def _refusal(ground: Ground, wanted: Quantity) -> Ruling | None:
    """Return the refusal of a size that does not go with the maximum the owner wrote."""
    most = ground.asked.max_guest
    if most is None or not ground.case.config.live_update:
        return None
    problem = memory.hotplug_problem(ground.asked, wanted, most)
    if not problem:
        return None
    above = wanted > most
    return Ruling(
        Verdict.REFUSED,
        Reason.ABOVE_MAXIMUM if above else Reason.NOT_ELIGIBLE,
        problem,
        str(most) if above else None,
    )


def _problem(ground: Ground, boot: Quantity, most: Quantity | None) -> str:
    """Return why no memory can be plugged into the guest that runs, or nothing."""
    if most is not None:
        return memory.hotplug_problem(ground.running, boot, most)
    ratio = ground.defaults.max_hotplug_ratio
    room = read_amount(ground.defaults.max_guest) or boot * ratio
    return memory.hotplug_problem(ground.running, boot, room) or (
        "the guest was started without room for more memory"
    )


def _aligned(wanted: Quantity, running: Quantity, most: Quantity, block: Quantity) -> Quantity:
    """Return the nearest whole number of blocks that is a change and has room."""
    lower = Quantity(wanted.nano // block.nano * block.nano, Format.BINARY_SI)
    upper = lower + block
    nearer = wanted.nano - lower.nano <= upper.nano - wanted.nano
    order = (lower, upper) if nearer else (upper, lower)
    return next((each for each in order if each != running and each <= most), lower)


def _resources_differ(ground: Ground, name: str) -> bool:
    paths = [("domain", "resources", side, name) for side in ("requests", "limits")]
    return any(find(ground.before, path) != find(ground.after, path) for path in paths)


def _follows(what: str, resource: str) -> Ruling:
    message = f"the {what} follow domain.resources ({resource}), which a restart applies"
    return Ruling(Verdict.RESTART, Reason.FOLLOWS_RESOURCES, message)
