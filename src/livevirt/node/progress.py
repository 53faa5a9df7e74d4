"""How far a guest has come on its way to another size, in words for its owner. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.qemu.plan import Seen
from livevirt.vm.sizing.hot_change import NOT_ACCEPTING, PLUG_FAILED, PLUGGING, UNPLUGGING
from livevirt.vm.sizing.reservation import Size


@dataclass(frozen=True, slots=True)
class Stage:
    """Where one resource stands."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Where CPUs and memory stand; None is done, or not begun."""

    cpu: Stage | None = None
    memory: Stage | None = None


IDLE = Progress()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong in the last round: QEMU refused, or the guest did."""

    refused: str = ""
    kept: str = ""


NO_TROUBLE = Trouble()


def size(seen: Seen) -> Size:
    """Return the size a guest has; of memory also what it was offered and may take any time."""
    return Size(seen.sockets, max(seen.memory, seen.offered))


def reached(wanted: Size, seen: Seen) -> bool:
    """Tell whether the guest has just what is wanted."""
    return (seen.sockets, seen.memory) == (wanted.sockets, wanted.memory)


def progress(
    wanted: Size,
    seen: Seen,
    *,
    late: bool = False,
    cpu: Trouble = NO_TROUBLE,
    memory: Trouble = NO_TROUBLE,
) -> Progress:
    """Say where a change stands; `late`: the guest has done nothing for too long."""
    return Progress(
        _stage(seen.sockets, wanted.sockets, late, cpu, _cpu_words(wanted, seen)),
        _stage(seen.memory, wanted.memory, late, memory, _memory_words(wanted, seen)),
    )


def _stage(
    has: int, wanted: int, late: bool, trouble: Trouble, words: tuple[str, str]
) -> Stage | None:
    what, cure = words
    if has == wanted:
        return None
    if trouble.refused:
        return Stage(PLUG_FAILED, f"QEMU refused: {trouble.refused}; it is tried again")
    if late:
        why = f" ({trouble.kept})" if trouble.kept else ""
        return Stage(NOT_ACCEPTING, f"{what}{why}. {cure}. It is asked again and again")
    return Stage(PLUGGING if has < wanted else UNPLUGGING, what)


def _cpu_words(wanted: Size, seen: Seen) -> tuple[str, str]:
    what = f"the guest uses {seen.sockets} of {wanted.sockets} sockets"
    if seen.sockets > wanted.sockets:
        cure = "Something in it holds on to its CPUs: look at its kernel log"
        if seen.vcpus is None and seen.machine.accelerator != "kvm":
            cure = "Start qemu-guest-agent in it"
        return f"the guest still uses {seen.sockets} sockets, {wanted.sockets} are wanted", cure
    if seen.vcpus is None:
        cure = "It must support ACPI CPU hotplug; with qemu-guest-agent inside it is told to"
        return what, cure
    return what, (
        "Let it bring new CPUs online: a udev rule for SUBSYSTEM==cpu, or"
        " echo 1 > /sys/devices/system/cpu/cpuN/online"
    )


def _memory_words(wanted: Size, seen: Seen) -> tuple[str, str]:
    has, should = _shown(seen.memory), _shown(wanted.memory)
    if seen.memory > wanted.memory:
        return f"the guest still has {has}, {should} is wanted", (
            "It gives back what it can free: end something in it, or restart the VM"
        )
    what = f"the guest has taken {has} of {should}"
    if seen.observed.memory.plugged == 0:
        return what, "It needs the virtio-mem driver (Linux 5.8 or later, virtio_mem)"
    return what, (
        "Let it bring memory online: echo online > /sys/devices/system/memory/auto_online_blocks"
    )


def _shown(amount: int) -> str:
    return str(Quantity.from_int(amount, Format.BINARY_SI))
