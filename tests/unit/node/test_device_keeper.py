"""The devices that an instance asks for, and what its status says of those there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from livevirt.node import device_keeper
from livevirt.node.device_keeper import DeviceReport, status
from livevirt.qemu.devices import DeviceGoal
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.observe import MemoryState, Observed

DEVICES = {"balloon0": "virtio-balloon-pci", "input-pen": "usb-tablet", "usb0": "qemu-xhci"}
OBSERVED = Observed("running", (), MemoryState(512), devices=DEVICES)


def an_instance(**devices: object) -> dict[str, object]:
    return {"spec": {"domain": {"devices": devices}}}


NEW = Machine(
    name="web", uuid="4c4c4544-0000-4000-8000-000000000001", accelerator="tcg",
    cpu=Cpu(model="max"), memory=Memory(boot=64 << 20, max=64 << 20), run_dir="/run/web",
    serial_log="/run/web/serial.log", balloon=True,
)  # fmt: skip
OLD = replace(NEW, balloon=None)


def goal(vmi: dict[str, object], machine: Machine = NEW) -> DeviceGoal:
    return device_keeper.goal(vmi, machine)


@pytest.mark.parametrize(
    ("asked", "machine", "there"),
    [(None, NEW, True), (True, NEW, True), (False, NEW, False), (None, OLD, None),
     (True, OLD, True), (None, replace(NEW, balloon=False), True)],
)  # fmt: skip
def test_a_guest_of_an_earlier_release_gets_a_balloon_only_if_it_is_named(
    asked: bool | None, machine: Machine, there: bool | None
) -> None:
    named = {} if asked is None else {"autoattachMemBalloon": asked}
    assert goal(an_instance(**named), machine).balloon is there


def test_tablets_on_usb_are_served_and_others_are_not() -> None:
    inputs = [
        {"name": "pen", "type": "tablet", "bus": "usb"},
        {"name": "silent", "type": "tablet"},
        {"name": "fast", "type": "tablet", "bus": "virtio"},
    ]
    assert goal(an_instance(inputs=inputs)).tablets == {"pen", "silent"}


def test_a_watchdog_without_an_action_powers_off() -> None:
    assert goal(an_instance(watchdog={"name": "dog", "i6300esb": {}})).watchdog == "poweroff"
    asked = {"name": "dog", "i6300esb": {"action": "reset"}}
    assert goal(an_instance(watchdog=asked)).watchdog == "reset"


def test_the_boot_order_is_the_list_unless_one_is_given() -> None:
    disks = [{"name": "a"}, {"name": "b"}]
    assert goal(an_instance(disks=disks)).boot == {"ua-a": 101, "ua-b": 102}
    chosen = [{"name": "a"}, {"name": "b", "bootOrder": 1}]
    assert goal(an_instance(disks=chosen)).boot == {"ua-a": -1, "ua-b": 1}


def test_the_status_shows_what_qemu_has() -> None:
    shown = status(OBSERVED, DeviceReport(("root",), "reset"), {})
    assert shown == {
        "balloon": True, "bootOrder": ["root"], "inputs": ["pen"], "rng": False, "usb": True,
        "watchdog": "reset",
    }  # fmt: skip


def test_what_was_not_looked_at_yet_stays_as_it_was() -> None:
    old = {"bootOrder": ["root"], "watchdog": "reset", "balloon": False}
    shown = status(OBSERVED, None, old)
    assert (shown["bootOrder"], shown["watchdog"]) == (["root"], "reset")
    assert shown["balloon"] is True
