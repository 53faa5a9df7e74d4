"""The rules on devices that QEMU can add, remove or change while the guest runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.sizing import guest_size
from livevirt.vm.spec import disks
from livevirt.vm.spec.effective import plain
from livevirt.vm.verdict.comparison import Comparison, Path, find
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict

BALLOON: Path = ("domain", "devices", "autoattachMemBalloon")
INPUTS: Path = ("domain", "devices", "inputs")
RNG: Path = ("domain", "devices", "rng")
WATCHDOG: Path = ("domain", "devices", "watchdog")
_GUEST: Path = ("domain", "memory", "guest")


def rng(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a change of `domain.devices.rng`."""
    if _devices(comparison).get("rng") is False:
        message = "the guest was started without a source of random numbers"
        return Ruling(Verdict.RESTART, Reason.NOT_LIVE, message)
    message = "every guest has a source of random numbers, asked for or not"
    return Ruling(Verdict.LIVE, Reason.DEVICE, message)


def balloon(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a change of `domain.devices.autoattachMemBalloon`."""
    vmi = comparison.inputs.vmi or {}
    if wanted is not False:
        if guest_size.has_balloon(vmi) or status_of(vmi).get("freePCIePorts"):
            return Ruling(Verdict.LIVE, Reason.DEVICE, "the balloon is plugged in")
        message = "no PCIe port is free for a balloon: it waits until a virtio disk goes"
        return Ruling(Verdict.LIVE, Reason.NO_PORT, message, waits=True)
    boot, size = comparison.boot_memory, find(comparison.after, _GUEST)
    below = isinstance(size, Quantity) and boot is not None and size < boot
    held = (status_of(vmi).get("memory") or {}).get("guestBallooned")
    if below or (held is not None and parse(held).bytes):
        message = "the balloon holds memory of the guest, which has less than it booted with"
        return Ruling(Verdict.RESTART, Reason.BELOW_BOOT, message)
    return Ruling(Verdict.LIVE, Reason.DEVICE, "the balloon is taken away")


def inputs(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a change of `domain.devices.inputs`."""
    changed = list(_changed(_by_name(running), _by_name(wanted)))
    if any((each.get("type"), each.get("bus") or "usb") != ("tablet", "usb") for each in changed):
        message = "input devices other than tablets on USB are not plugged while the guest runs"
        return Ruling(Verdict.RESTART, Reason.BUS, message)
    if not disks.has_usb_controller(comparison.inputs.vmi or {}):
        message = "the guest was started without a USB controller"
        return Ruling(Verdict.RESTART, Reason.BUS, message)
    return Ruling(Verdict.LIVE, Reason.DEVICE, "the device is plugged or unplugged")


def watchdog(comparison: Comparison, running: Any, wanted: Any) -> Ruling:
    """Rule on a change of `domain.devices.watchdog`: its action can change, not the device."""
    if not running or not wanted or not _devices(comparison).get("watchdog"):
        message = "the bus of a watchdog cannot be hot-plugged; only its action changes live"
        return Ruling(Verdict.RESTART, Reason.BUS, message)
    return Ruling(Verdict.LIVE, Reason.DEVICE, "the watchdog gets another action")


def _by_name(listed: Any) -> dict[str, Object]:
    return {each["name"]: each for each in plain(listed) or ()}


def _changed(before: dict[str, Object], after: dict[str, Object]) -> Iterator[Object]:
    """Yield every device that is added or removed."""
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield from (side[name] for side in (before, after) if name in side)


def _devices(comparison: Comparison) -> Object:
    found: Object = status_of(comparison.inputs.vmi).get("devices") or {}
    return found
