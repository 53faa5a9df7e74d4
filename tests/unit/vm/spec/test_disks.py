"""The bus of a disk that names none, and which disk a guest boots from."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.vm.spec.disks import boot_disk, bus, set_buses

from ..cases import a_claim

BUSES: dict[str, tuple[Any, bool, str]] = {
    "a disk": ({"disk": {}}, False, "sata"),
    "a disk that may come and go": ({"disk": {}}, True, "scsi"),
    "a lun that may come and go": ({"lun": {}}, True, "scsi"),
    "a CD-ROM": ({"cdrom": {}}, True, "sata"),
    "neither": ({}, True, "scsi"),
    "one whose bus is empty": ({"disk": {"bus": ""}}, False, "sata"),
    "one whose bus is empty that may come and go": ({"disk": {"bus": ""}}, True, "scsi"),
    "one that names a bus": ({"disk": {"bus": "virtio"}}, True, "virtio"),
}


@pytest.mark.parametrize(("disk", "hot", "wanted"), BUSES.values(), ids=BUSES)
def test_the_bus_of(disk: Any, hot: bool, wanted: str) -> None:
    made = {"name": "x", **disk}
    set_buses({"domain": {"devices": {"disks": [made]}}, "volumes": [a_claim("x", hot=hot)]})
    assert bus(made) == wanted


ORDERS: dict[str, tuple[list[Any], str]] = {
    "none": ([], ""),
    "the first, where nobody chose": ([{"name": "a"}, {"name": "b"}], "a"),
    "the lowest order": ([{"name": "a"}, {"name": "b", "bootOrder": 2},
                          {"name": "c", "bootOrder": 1}], "c"),
}  # fmt: skip


@pytest.mark.parametrize(("disks", "first"), ORDERS.values(), ids=ORDERS)
def test_the_guest_boots_from(disks: list[Any], first: str) -> None:
    assert boot_disk({"domain": {"devices": {"disks": disks}}}) == first
