"""Input devices and watchdogs that QEMU could not have are refused."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.vm.spec.device_validation import device_errors

AT = "spec.domain.devices"
TABLET = {"name": "pen", "type": "tablet"}
ROWS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, []),
    "a tablet": ({"inputs": [TABLET]}, []),
    "a tablet on usb": ({"inputs": [TABLET | {"bus": "usb"}]}, []),
    "a tablet on another bus": ({"inputs": [TABLET | {"bus": "ps2"}]}, [f"{AT}.inputs[0].bus"]),
    "a keyboard": (
        {"inputs": [TABLET, TABLET | {"type": "keyboard"}]}, [f"{AT}.inputs[1].type"]),
    "a name that is no id": ({"inputs": [TABLET | {"name": "a pen"}]}, [f"{AT}.inputs[0].name"]),
    "a watchdog": ({"watchdog": {"name": "dog", "i6300esb": {}}}, []),
    "a watchdog with another action": (
        {"watchdog": {"name": "dog", "i6300esb": {"action": "bark"}}},
        [f"{AT}.watchdog.i6300esb.action"]),
}  # fmt: skip


@pytest.mark.parametrize(("devices", "fields"), ROWS.values(), ids=ROWS)
def test_device_errors(devices: dict[str, Any], fields: list[str]) -> None:
    assert [error.field for error in device_errors(AT, {"devices": devices})] == fields
