"""Devices of running guests changed by an edit of their VM: seen in the guest, or in QEMU."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from .guest_host import IMAGE, GuestHost, Object, a_vm, image_missing, until
from .moving_guest import two_nodes

pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed"),
    pytest.mark.skipif(image_missing(), reason=f"image {IMAGE} is not imported"),
]

NAME = "changes"
SECONDS = 60.0
TABLET = {"name": "pen", "type": "tablet", "bus": "usb"}


def a_changing_vm() -> Object:
    vm = a_vm(NAME)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "scsi"}})
    spec["domain"]["devices"]["watchdog"] = {"name": "dog", "i6300esb": {"action": "reset"}}
    spec["volumes"].append({"name": "data", "emptyDisk": {"capacity": "8Mi"}})
    return vm


class Changing:
    """One VM whose devices are edited."""

    def __init__(self, host: GuestHost) -> None:
        self.host, self.vm = host, a_changing_vm()
        self.began: Object = {}
        self.boot = ""

    def start(self) -> None:
        self.host.apply(self.vm)
        self.host.answers(NAME)
        until("its devices", lambda: self.devices().get("bootOrder"), SECONDS)
        self.began, self.boot = self.devices(), self.host.boot_id(NAME)

    def devices(self) -> Object:
        """Return what the status says that QEMU has."""
        found: Object = self.host.get("vmi", NAME)["status"].get("devices") or {}
        return found

    def edit(self, **devices: Any) -> None:
        """Edit the VM's devices with kubectl; it must be live."""
        self.vm = copy.deepcopy(self.vm)
        self.vm["spec"]["template"]["spec"]["domain"]["devices"] |= devices
        self.host.apply(self.vm)

    def order(self, *names: str) -> None:
        """Give disks their places in the boot order."""
        disks = self.vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
        places = {name: {"bootOrder": number} for number, name in enumerate(names, 1)}
        self.edit(disks=[_unordered(disk) | places.get(disk["name"], {}) for disk in disks])

    def becomes(self, **devices: Any) -> None:
        """Expect the status to show what QEMU has, and nothing to wait for a restart."""

        def there() -> bool:
            return self.devices().items() >= devices.items()

        try:
            until(f"{devices}", there, SECONDS)
        except AssertionError as error:
            log = self.host.server.log.read_text()[-3000:]
            raise AssertionError(f"{error}: {self.devices()}\n{log}") from None
        until("no change waits", lambda: not self.host.condition("vmi", NAME, "HotDeviceChange"))
        assert not self.host.condition("vm", NAME, "RestartRequired")

    def sees(self, what: str, file: str) -> bool:
        return what in self.host.shell(NAME, f"cat {file} 2>/dev/null || true")

    def plan(self, **devices: Any) -> Object:
        patch = json.dumps({"spec": {"template": {"spec": {"domain": {"devices": devices}}}}})
        done = self.host.attempt("virtctl", "plan", NAME, "--patch", patch, "-o", "json")
        (change,) = json.loads(done.stdout)["changes"]
        found: Object = change
        return found


def _unordered(disk: Object) -> Object:
    return {key: value for key, value in disk.items() if key != "bootOrder"}


PRODUCTS = "/sys/bus/usb/devices/*/product"
BALLOONS = "/sys/bus/virtio/drivers/virtio_balloon/*/modalias"


@pytest.fixture(scope="module")
def guest() -> Iterator[Changing]:
    with two_nodes() as host:
        guest = Changing(host)
        guest.start()
        yield guest


def test_a_tablet_comes_and_goes(guest: Changing) -> None:
    guest.edit(inputs=[TABLET])
    guest.becomes(inputs=["pen"])
    until("the guest has it", lambda: guest.sees("QEMU USB Tablet", PRODUCTS), SECONDS)
    guest.edit(inputs=[])
    guest.becomes(inputs=[])
    until("it is gone", lambda: not guest.sees("QEMU USB Tablet", PRODUCTS), SECONDS)


def test_the_balloon_goes_and_comes(guest: Changing) -> None:
    assert guest.sees("virtio", BALLOONS)
    guest.edit(autoattachMemBalloon=False)
    guest.becomes(balloon=False)
    assert not guest.sees("virtio", BALLOONS)
    guest.edit(autoattachMemBalloon=True)
    guest.becomes(balloon=True)
    until("the guest has it", lambda: guest.sees("virtio", BALLOONS), SECONDS)


def test_the_boot_order_changes_and_changes_back(guest: Changing) -> None:
    assert guest.devices()["bootOrder"] == ["root", "data"]
    guest.order("data", "root")
    guest.becomes(bootOrder=["data", "root"])
    guest.order("root", "data")
    guest.becomes(bootOrder=["root", "data"])
    guest.order("root")
    guest.becomes(bootOrder=["root"])
    guest.order()
    guest.becomes(bootOrder=["root", "data"])


def test_the_watchdog_gets_another_action(guest: Changing) -> None:
    for action in ("poweroff", "shutdown", "reset"):
        guest.edit(watchdog={"name": "dog", "i6300esb": {"action": action}})
        guest.becomes(watchdog=action)


def test_a_random_number_generator_is_there_anyway(guest: Changing) -> None:
    guest.edit(rng={})
    guest.becomes(rng=True)
    guest.edit(rng=None)
    guest.becomes(rng=True)


def test_the_plan_names_what_cannot_change(guest: Changing) -> None:
    gone = guest.plan(watchdog=None)
    assert (gone["verdict"], gone["reason"]) == ("Restart", "BusNotHotpluggable")
    other = guest.plan(inputs=[TABLET | {"bus": "virtio"}])
    assert (other["verdict"], other["reason"]) == ("Restart", "BusNotHotpluggable")


def test_given_the_server_is_killed_then_the_change_is_done_by_the_next(guest: Changing) -> None:
    guest.edit(inputs=[TABLET])
    guest.host.server.kill()
    guest.host.server.start()
    guest.host.found(NAME)
    guest.becomes(inputs=["pen"])
    guest.edit(inputs=[])
    guest.becomes(inputs=[])


@pytest.mark.long
def test_given_a_migration_then_devices_move_along_and_go_back_there(guest: Changing) -> None:
    guest.edit(inputs=[TABLET], watchdog={"name": "dog", "i6300esb": {"action": "shutdown"}})
    guest.order("data", "root")
    guest.becomes(inputs=["pen"], watchdog="shutdown", bootOrder=["data", "root"])
    guest.host.run("virtctl", "migrate", NAME, "--wait")
    guest.becomes(inputs=["pen"], watchdog="shutdown", bootOrder=["data", "root"])
    assert guest.sees("QEMU USB Tablet", PRODUCTS)
    assert guest.host.boot_id(NAME) == guest.boot
    guest.edit(inputs=[], watchdog={"name": "dog", "i6300esb": {"action": "reset"}})
    guest.order()
    guest.becomes(**guest.began)
