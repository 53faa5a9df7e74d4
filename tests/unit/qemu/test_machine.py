import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.qemu.disk import Disk, Image, blockdev, device, sata_controllers, sata_place
from livevirt.qemu.machine import (
    MEMORY_BLOCK,
    MIB,
    Cpu,
    Feature,
    Machine,
    Memory,
    Nic,
    NumaNode,
    Smbios,
)

SIZES = st.integers(1, 2**42)


def a_machine(**changes: object) -> Machine:
    settings: dict[str, object] = {
        "name": "web",
        "uuid": "12345678-1234-1234-1234-123456789abc",
        "accelerator": "tcg",
        "cpu": Cpu(model="max"),
        "memory": Memory(boot=64 * MIB, max=64 * MIB),
        "run_dir": "/run/vm",
        "serial_log": "/run/vm/serial.log",
    }
    return Machine(**{**settings, **changes})  # type: ignore[arg-type]


def test_a_machine_survives_the_disk() -> None:
    overlay = Image("/o.qcow2", "qcow2", backing=Image("/base.qcow2", "qcow2"))
    machine = a_machine(
        cpu=Cpu(model="max", sockets=2, max_sockets=4, features=(Feature("aes", on=False),)),
        disks=(Disk(id="ua-root", image=overlay, boot_index=1),),
        nics=(Nic(id="nic0", mac="02:00:00:00:00:01"),),
        smbios=Smbios(serial="1"),
    )
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine


def test_a_machine_changed_on_disk_is_checked_again() -> None:
    spoilt = msgspec.json.encode(a_machine()).replace(b'"max"', b'"max,vendor=x"')
    with pytest.raises(msgspec.ValidationError, match="not a plain name"):
        msgspec.json.decode(spoilt, type=Machine)


REFUSED = {
    "a CPU model with an option in it": lambda: Cpu(model="max,+vmx"),
    "a CPU feature with an option in it": lambda: Feature("aes,vendor=x"),
    "more sockets than there may be": lambda: Cpu(model="max", sockets=2, max_sockets=1),
    "huge pages of an odd size": lambda: Memory(boot=1, max=1, page=3 * MIB),
    "NUMA nodes with less memory than the machine": lambda: a_machine(
        numa=(NumaNode(host=0, memory=MIB, cpus=()),)
    ),
    "an IO thread for a SCSI disk": lambda: Disk(
        id="ua-a", image=Image("/a"), bus="scsi", io_thread="io0"
    ),
    "less memory at most than at boot": lambda: Memory(boot=2, max=1),
    "an id QEMU would not take": lambda: Disk(id="1st", image=Image("/a")),
    "an image named by protocol": lambda: Image("nbd:host:10809"),
    "a raw image with a backing file": lambda: Image("/a", "raw", backing=Image("/b")),
    "a NUL in a path": lambda: Image("/a\0b"),
    "an empty disk": lambda: Disk(id="ua-a", image=None),
    "a CD-ROM on virtio": lambda: Disk(id="ua-a", image=None, kind="cdrom", bus="virtio"),
    "a lun on a file": lambda: Disk(id="ua-a", image=Image("/a"), kind="lun", bus="scsi"),
    "native I/O through the cache": lambda: Disk(id="ua-a", image=Image("/a"), io="native"),
    "a MAC that is none": lambda: Nic(id="nic0", mac="02:00:00:00:00"),
    "a UUID that is none": lambda: a_machine(uuid="x"),
    "a clock that is none": lambda: a_machine(rtc="utc,clock=vm"),
    "a machine type with an option in it": lambda: a_machine(machine_type="q35,accel=kvm"),
    "a directory too deep for sockets": lambda: a_machine(run_dir="/" + "d" * 100),
    "one id twice": lambda: a_machine(
        disks=(Disk(id="x", image=Image("/a")),), nics=(Nic(id="x", mac="02:00:00:00:00:01"),)
    ),
}


@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED)
def test_a_machine_that_means_something_else_is_refused(build) -> None:
    with pytest.raises(ValueError, match=r".+"):
        build()


@given(SIZES, SIZES, SIZES)
def test_the_guest_gets_at_least_the_memory_asked_for_and_under_one_block_more(
    one: int, other: int, wanted: int
) -> None:
    memory = Memory(boot=min(one, other), max=max(one, other))
    wanted = max(memory.boot, min(wanted, memory.max))
    total = memory.boot_size + memory.requested(wanted)
    assert wanted <= total < wanted + MEMORY_BLOCK + MIB
    assert memory.requested(wanted) <= memory.headroom
    assert memory.requested(wanted) % MEMORY_BLOCK == 0


def test_the_threads_of_a_socket_come_in_the_order_the_guest_counts_them() -> None:
    cpu = Cpu(model="max", cores=2, threads=2, max_sockets=2)
    found = list(cpu.threads_of(range(1, 2)))
    assert [t.id for t in found] == ["cpu-1-0-0", "cpu-1-0-1", "cpu-1-1-0", "cpu-1-1-1"]
    assert found == sorted(found)


@given(st.from_regex(r"[a-z][a-z0-9-]{0,80}", fullmatch=True), st.text(max_size=20))
def test_a_node_name_fits_and_tells_the_disk_and_its_image(id: str, path: str) -> None:
    path = "/" + "".join(c for c in path if c.isprintable())
    node = Disk(id=id, image=Image(path)).node
    assert node is not None
    assert len(node) <= 31
    assert node != Disk(id=id, image=Image(path + "x")).node
    assert node != Disk(id=id + "x", image=Image(path)).node


def test_a_users_image_cannot_name_a_backing_file() -> None:
    assert blockdev(Disk(id="ua-a", image=Image("/a", "qcow2")))["backing"] is None


def test_a_backing_image_is_read_only_and_its_format_told() -> None:
    image = Image("/o", "qcow2", backing=Image("/b", "raw"))
    node = blockdev(Disk(id="ua-a", image=image))
    assert not node["read-only"]
    assert node["backing"]["driver"] == "raw"
    assert node["backing"]["read-only"]
    assert node["backing"]["file"]["read-only"]


CACHES = {
    "none": (True, "on"),
    "writeback": (False, "on"),
    "writethrough": (False, "off"),
}


@pytest.mark.parametrize(("cache", "expected"), CACHES.items(), ids=CACHES)
def test_a_cache_mode_is_two_settings(cache, expected) -> None:
    disk = Disk(id="ua-a", image=Image("/a"), cache=cache)
    direct = blockdev(disk)["file"]["cache"]["direct"]
    assert (direct, device(disk, {})["write-cache"]) == expected


def test_a_scsi_disk_without_a_serial_can_still_be_found_by_its_volume() -> None:
    disk = Disk(id="ua-data", image=Image("/a"), bus="scsi")
    assert device(disk, {})["device_id"] == "drive-ua-data"
    assert "serial" not in device(disk, {})


def test_the_seventh_sata_drive_gets_a_second_controller() -> None:
    assert sata_controllers([0, 5]) == []
    assert sata_controllers([6]) == ["ahci1"]
    assert sata_place(5) == {"bus": "ide.5"}
    assert sata_place(6) == {"bus": "ahci1.0"}
