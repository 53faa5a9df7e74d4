"""Random sequences of live edits: the plan and the outcome agree, and a revert undoes all of it.

Sizes and devices of one guest are edited in any order. QEMU's own answers before and after are
compared, except for CPU devices, which stay plugged under emulation.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.objects.quantity import parse
from livevirt.qemu.session import Session

from .guest_host import IMAGE, GuestHost, Object, image_missing, running_host, until
from .live_guest import LiveGuest, a_live_vm

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

SECONDS = 120.0
PERIPHERALS = "/machine/peripheral"
_QMP = re.compile(rb"id=qmp0,path=([^,\0]+)")

Edit = Callable[[Object], None]  # of the spec of an instance


# ------------------------------------------------------------ QEMU's own view


def configuration(host: GuestHost, name: str) -> Object:
    """Return what QEMU says the guest has; livevirt is down meanwhile, for there is one client."""
    line = Path(f"/proc/{host.qemu(name)}/cmdline").read_bytes()
    found = _QMP.search(line)
    assert found is not None
    host.server.kill()
    try:
        return asyncio.run(_configuration(found.group(1).decode()))
    finally:
        host.server.start()
        host.found(name)


async def _configuration(socket: str) -> Object:
    async with await Session.connect(socket) as qmp:
        listed = await qmp.execute("qom-list", {"path": PERIPHERALS})
        devices = {each["name"]: each["type"] for each in listed if "child<" in each["type"]}
        drives = [each for each in await qmp.execute("query-block") if each.get("qdev")]
        boot = {}
        for id in sorted(devices):
            if id.startswith("ua-"):
                asked = {"path": f"{PERIPHERALS}/{id}", "property": "bootindex"}
                boot[id] = await qmp.execute("qom-get", asked)
        memory = await qmp.execute("query-memory-devices")
        return {
            "devices": {id: type_ for id, type_ in devices.items() if not id.startswith("cpu-")},
            "boot": boot,
            "drives": sorted((each["qdev"], each["locked"]) for each in drives),
            "plugged": [each["data"]["size"] for each in memory],
            "balloon": (await qmp.execute("query-balloon"))["actual"],
            "summary": (await qmp.execute("query-memory-size-summary"))["base-memory"],
            "threads": sorted(each["id"] for each in await qmp.execute("query-iothreads")),
            "chardevs": sorted(each["label"] for each in await qmp.execute("query-chardev")),
        }


# ------------------------------------------------------------ edits


def _memory(size: str) -> Edit:
    return lambda spec: spec["domain"]["memory"].update(guest=size)


def _devices(**devices: Any) -> Edit:
    return lambda spec: spec["domain"]["devices"].update(copy.deepcopy(devices))


def _order(*names: str) -> Edit:
    def edit(spec: Object) -> None:
        for disk in spec["domain"]["devices"]["disks"]:
            disk.pop("bootOrder", None)
            if disk["name"] in names:
                disk["bootOrder"] = names.index(disk["name"]) + 1

    return edit


def _hostname(name: str) -> Edit:
    return lambda spec: spec.update(hostname=name)


TABLET = {"name": "pen", "type": "tablet", "bus": "usb"}
EDITS: dict[str, Edit] = {
    **{f"memory {size}": _memory(size) for size in ("384Mi", "512Mi", "640Mi", "768Mi", "96Mi")},
    "a tablet": _devices(inputs=[TABLET]),
    "no tablet": _devices(inputs=[]),
    "data first": _order("data", "root"),
    "root first": _order("root", "data"),
    "no order": _order(),
    "rng": _devices(rng={}),
    **{
        f"watchdog {action}": _devices(watchdog={"name": "dog", "i6300esb": {"action": action}})
        for action in ("reset", "poweroff", "shutdown")
    },
    "a host name": _hostname("other"),
}


def a_versatile_vm() -> Object:
    vm = a_live_vm("versatile")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "scsi"}})
    spec["domain"]["devices"]["watchdog"] = {"name": "dog", "i6300esb": {"action": "reset"}}
    spec["volumes"].append({"name": "data", "emptyDisk": {"capacity": "8Mi"}})
    return vm


class Edited(LiveGuest):
    """A guest whose plan and outcome are compared."""

    def plan(self, manifest: Object) -> Object:
        done = self.host.attempt("virtctl", "plan", "-f", "-", "-o", "json", input=_yaml(manifest))
        found: Object = json.loads(done.stdout)
        return found

    def becomes_as(self, manifest: Object) -> None:
        """Apply a manifest; expect what its plan says. What waits for a restart is reverted."""
        planned, before = self.plan(manifest), self.manifest
        self.manifest = manifest
        self.host.apply(manifest)
        live = planned["verdict"] in ("Live", "LiveAfterResize")
        assert live or planned["verdict"] == "Restart", planned
        if not live:
            until("a restart is required", self._is_staged, SECONDS)
            self.manifest = before
            self.host.apply(before)
        until("no restart is required", lambda: not self._is_staged(), SECONDS)
        self.settles(SECONDS)
        until("its devices", self._has_devices, SECONDS)

    def _is_staged(self) -> bool:
        return bool(self.host.condition("vm", self.name, "RestartRequired"))

    def _has_devices(self) -> bool:
        devices = self.manifest["spec"]["template"]["spec"]["domain"]["devices"]
        status = self.host.get("vmi", self.name)["status"]
        shown, memory = status["devices"], status["memory"]
        wanted = parse(self.asked[1]).bytes
        chosen = sorted(
            (disk["bootOrder"], disk["name"]) for disk in devices["disks"] if disk.get("bootOrder")
        )
        order = [name for _, name in chosen] or [disk["name"] for disk in devices["disks"]]
        return bool(
            shown["inputs"] == [each["name"] for each in devices.get("inputs") or ()]
            and shown["bootOrder"] == order
            and shown["watchdog"] == devices["watchdog"]["i6300esb"]["action"]
            and parse(memory["guestBallooned"]).bytes == max(parse("512Mi").bytes - wanted, 0)
            and not self.host.condition("vmi", self.name, "HotDeviceChange")
        )


def _yaml(manifest: Object) -> str:
    return json.dumps(manifest)  # which is YAML too


@pytest.mark.parametrize(
    ("seed", "count"),
    [
        pytest.param(18, 6, marks=pytest.mark.long),
        pytest.param(181, 40, marks=pytest.mark.soak),
        pytest.param(182, 40, marks=pytest.mark.soak),
    ],
)
def test_given_any_edits_then_plan_and_outcome_agree_and_a_revert_undoes_them(
    seed: int, count: int
) -> None:
    chosen = random.Random(seed)
    with running_host() as host:
        guest = Edited(host, a_versatile_vm())
        host.apply(guest.manifest)
        guest.begin()
        started = guest.manifest
        until(
            "balloon statistics",
            lambda: host.get("vmi", guest.name)["status"]["memory"].get("balloonStatistics"),
        )
        until("its devices", lambda: host.get("vmi", guest.name)["status"]["devices"]["bootOrder"])
        before = configuration(host, guest.name)
        for _ in range(count):
            names = chosen.sample(sorted(EDITS), chosen.choice([1, 1, 2]))
            print("edit:", names)
            manifest = copy.deepcopy(guest.manifest)
            for name in names:
                EDITS[name](manifest["spec"]["template"]["spec"])
            guest.becomes_as(manifest)
        guest.becomes_as(started)
        assert configuration(host, guest.name) == before
