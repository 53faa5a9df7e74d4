"""What is wrong with the input devices and the watchdog of a spec, with KubeVirt's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.admission import wrong

ACTIONS = ("poweroff", "reset", "shutdown")
_BUSES = ("usb", "virtio")
_NAME = re.compile(r"[A-Za-z0-9._-]+")  # it becomes part of the id of a device in QEMU


def device_errors(at: str, domain: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the devices of a domain."""
    devices = domain.get("devices") or {}
    for number, each in enumerate(devices.get("inputs") or ()):
        here = f"{at}.inputs[{number}]"
        if each.get("bus") and each["bus"] not in _BUSES:
            yield wrong(f"{here}.bus", "Input device can have only virtio or usb bus.")
        if each.get("type") != "tablet":
            yield wrong(f"{here}.type", "Input device can have only tablet type.")
        if not _NAME.fullmatch(each.get("name") or ""):
            yield wrong(f"{here}.name", f"{here}.name may have letters, digits, '.', '_' and '-'")
    action = (((devices.get("watchdog") or {}).get("i6300esb")) or {}).get("action")
    if action and action not in ACTIONS:
        here = f"{at}.watchdog.i6300esb.action"
        yield wrong(here, f"{here} must be one of {', '.join(ACTIONS)}")
