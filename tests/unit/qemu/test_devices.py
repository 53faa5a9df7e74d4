"""Which devices come, go and change while the guest runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.qemu.balloon import DEVICE, DRIVER, Balloon
from livevirt.qemu.devices import (
    DeviceGoal,
    DeviceState,
    Impossible,
    PlugDevice,
    SetAction,
    SetBootIndex,
    Step,
    UnplugDevice,
    plan,
)
from livevirt.qemu.observe import MemoryState, Observed

USB = {"usb0": "qemu-xhci"}
WITH_BALLOON = {DEVICE: DRIVER}
PEN = {"input-pen": "usb-tablet"}


def is_now(devices: Mapping[str, str], held: int = 0, **changes: object) -> Observed:
    memory = MemoryState(512, balloon=Balloon(held) if DEVICE in devices else None)
    return Observed("running", (), memory, devices=devices, **changes)  # type: ignore[arg-type]


def state(devices: Mapping[str, str], **changes: object) -> DeviceState:
    return DeviceState(is_now(devices, **changes))  # type: ignore[arg-type]


NO_BALLOON, WITH = DeviceGoal(balloon=False), DeviceGoal(balloon=True)
ROWS: dict[str, tuple[DeviceGoal, DeviceState, list[Step]]] = {
    "nothing to do": (WITH, state(WITH_BALLOON), []),
    "a guest of an earlier release stays without a balloon": (
        DeviceGoal(), state({}, free_ports=("port4",)), []),
    "a balloon comes": (
        WITH, state({}, free_ports=("port4", "port5")),
        [PlugDevice((("driver", DRIVER), ("id", DEVICE), ("bus", "port5"), ("addr", "0x0")))]),
    "no port for a balloon": (
        WITH, state({}), [Impossible("no PCIe port is free for the balloon")]),
    "a balloon goes": (NO_BALLOON, state(WITH_BALLOON), [UnplugDevice(DEVICE)]),
    "a balloon that holds memory stays": (
        NO_BALLOON, state(WITH_BALLOON, held=1),
        [Impossible("the balloon holds memory of the guest")]),
    "a tablet comes": (
        DeviceGoal(balloon=False, tablets=frozenset({"pen"})), state(USB),
        [PlugDevice((("driver", "usb-tablet"), ("id", "input-pen"), ("bus", "usb0.0")))]),
    "a tablet goes": (NO_BALLOON, state(USB | PEN), [UnplugDevice("input-pen")]),
    "a tablet without a controller": (
        DeviceGoal(balloon=False, tablets=frozenset({"pen"})), state({}), []),
    "another action": (
        DeviceGoal(balloon=False, watchdog="reset"), state({"watchdog0": "i6300esb"}),
        [SetAction("reset")]),
    "an action that is set": (
        DeviceGoal(balloon=False, watchdog="reset"),
        DeviceState(is_now({"watchdog0": "i6300esb"}), action="reset"), []),
    "no watchdog to set": (DeviceGoal(balloon=False, watchdog="reset"), state({}), []),
    "two drives change places": (
        DeviceGoal(balloon=False, boot={"a": 2, "b": 1}),
        DeviceState(is_now({}), {"a": 1, "b": 2}),
        [SetBootIndex("a", -1), SetBootIndex("b", -1), SetBootIndex("a", 2),
         SetBootIndex("b", 1)]),
    "a drive leaves the order": (
        DeviceGoal(balloon=False, boot={"a": -1}), DeviceState(is_now({}), {"a": 1}),
        [SetBootIndex("a", -1)]),
    "a drive that nobody asked for stays": (
        NO_BALLOON, DeviceState(is_now({}), {"a": 1}), []),
}  # fmt: skip


@pytest.mark.parametrize(("goal", "before", "expected"), ROWS.values(), ids=ROWS)
def test_plan(goal: DeviceGoal, before: DeviceState, expected: list[Step]) -> None:
    assert plan(goal, before) == expected


def test_given_a_guest_that_migrates_then_nothing_is_done() -> None:
    moving = Observed("postmigrate", (), MemoryState(512))
    assert plan(DeviceGoal(), DeviceState(moving)) == []


ORDERS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([-1, 1, 2, 3, 4]))


def _is_unique(order: Mapping[str, int]) -> bool:
    placed = [index for index in order.values() if index > 0]
    return len(set(placed)) == len(placed)


@given(ORDERS.filter(_is_unique), ORDERS.filter(_is_unique))
def test_no_two_drives_ever_have_the_same_place(
    has: dict[str, int], wanted: dict[str, int]
) -> None:
    wanted = {id: wanted.get(id, -1) for id in has}
    now = dict(has)
    for step in plan(DeviceGoal(balloon=False, boot=wanted), DeviceState(is_now({}), has)):
        assert isinstance(step, SetBootIndex)
        now[step.id] = step.index
        assert _is_unique(now)
    assert now == wanted
