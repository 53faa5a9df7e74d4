"""What the status says of volumes, those of the start and those that come and go."""

from typing import Any

import pytest

from livevirt.kube.objects import conditions
from livevirt.node.attachments import Attachment
from livevirt.node.volume_status import targets, volume_statuses
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.observe import Drive, MemoryState, Observed

MIB = 2**20
MACHINE = Machine(
    name="web",
    uuid="00000000-0000-0000-0000-000000000001",
    accelerator="tcg",
    cpu=Cpu(model="max"),
    memory=Memory(boot=256 * MIB, max=256 * MIB),
    run_dir="/run/1",
    serial_log="/log",
    disks=(
        Disk(id="ua-root", image=Image("/root")),
        Disk(id="ua-cd", image=None, kind="cdrom", bus="sata"),
        Disk(id="ua-early", image=Image("/early"), bus="scsi"),
    ),
)
CLAIM = {
    "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    "status": {"capacity": {"storage": "2Mi"}},
}
INFO = {
    "claimName": "c",
    "accessModes": ["ReadWriteOnce"],
    "capacity": {"storage": "2Mi"},
    "requests": {"storage": "1Mi"},
    "filesystemOverhead": "0.055",
}
OLD_INFO = {**INFO, "claimName": "before"}


def a_vmi(*hot: str, **old: Any) -> Any:
    disks = [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "cd", "cdrom": {"bus": "sata"}}]
    volumes: list[Any] = [{"name": "root", "containerDisk": {"image": "guest"}}]
    for name in hot:
        if name != "cd":
            disks.append({"name": name, "disk": {"bus": "scsi"}})
        claim = {"claimName": "c", "hotpluggable": True}
        volumes.append({"name": name, "persistentVolumeClaim": claim})
    entries = [{"name": name, "hotplugVolume": {}, **each} for name, each in old.items()]
    return {
        "spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}},
        "status": {"volumeStatus": entries},
    }


def has(**nodes: str) -> Observed:
    drives = tuple(Drive(f"ua-{name}", node=node, size=MIB) for name, node in nodes.items())
    return Observed("running", (), MemoryState(0), drives=drives)


def entries(vmi: Any, now: Observed, attachments: Any) -> dict[str, Any]:
    return {each["name"]: each for each in volume_statuses(vmi, MACHINE, now, {}, attachments)}


def plugged(phase: Any, reason: str, claim: Any = None) -> Attachment:
    return Attachment(phase, reason, "words", claim)


def entry(name: str, phase: str, reason: str, target: str, **more: Any) -> Any:
    found = {
        "name": name,
        "phase": phase,
        "reason": reason,
        "message": conditions.human_readable("words"),
    }
    return found | {"target": target, "hotplugVolume": {}, **more}


ROWS: dict[str, tuple[Any, Observed, dict[str, Attachment], dict[str, Any]]] = {
    "given it is attached, then claim, size and letter are told": (
        a_vmi("data"),
        has(root="r", cd="", data="d"),
        {"data": plugged("Ready", "VolumeReady", CLAIM)},
        {"data": entry("data", "Ready", "VolumeReady", "sdb", size=MIB,
                       persistentVolumeClaimInfo=INFO)},
    ),
    "given it waits, then it has no letter": (
        a_vmi("data"),
        has(root="r"),
        {"data": plugged("Pending", "FailedPvcNotFound")},
        {"data": entry("data", "Pending", "FailedPvcNotFound", "")},
    ),
    "given it is to go, then the claim it has is still told": (
        a_vmi(data={"target": "sdx", "persistentVolumeClaimInfo": INFO}),
        has(root="r", data="d"),
        {"data": plugged("Detaching", "InUseByGuest")},
        {"data": entry("data", "Detaching", "InUseByGuest", "sdx", size=MIB,
                       persistentVolumeClaimInfo=INFO)},
    ),
    "given another claim and the old one has not gone, then the old one is told": (
        a_vmi("data", data={"target": "sdc", "persistentVolumeClaimInfo": OLD_INFO}),
        has(root="r", data="d"),
        {"data": plugged("Detaching", "InUseByGuest")},
        {"data": entry("data", "Detaching", "InUseByGuest", "sdc", size=MIB,
                       persistentVolumeClaimInfo=OLD_INFO)},
    ),
    "given it is gone, then nothing is said of it": (
        a_vmi(data={"target": "sdc"}), has(root="r"), {}, {},
    ),
    "given a disc, then its drive keeps the letter it has without": (
        a_vmi("cd", "data"),
        has(root="r", cd="c", data="d"),
        {"cd": plugged("Ready", "VolumeReady"), "data": plugged("Ready", "VolumeReady")},
        {"cd": entry("cd", "Ready", "VolumeReady", "sda", size=MIB),
         "data": entry("data", "Ready", "VolumeReady", "sdb", size=MIB)},
    ),
    "given a disk of the start is gone, then its letter is free": (
        a_vmi("data", early={"target": "sdb"}),
        has(root="r", cd="", data="d"),
        {"data": plugged("Ready", "VolumeReady")},
        {"data": entry("data", "Ready", "VolumeReady", "sdb", size=MIB)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("vmi", "now", "attachments", "shown"), ROWS.values(), ids=ROWS)
def test_volumes_that_come_and_go(
    vmi: Any, now: Observed, attachments: dict[str, Attachment], shown: dict[str, Any]
) -> None:
    found = entries(vmi, now, attachments)
    assert found.pop("root") == {"name": "root", "target": "vda"}
    assert found == shown


def test_given_nobody_has_looked_yet_then_what_was_said_stays() -> None:
    vmi = a_vmi("data", data={"phase": "Ready", "target": "sdb"})
    assert entries(vmi, has(root="r"), None)["data"]["phase"] == "Ready"


def test_a_disk_keeps_its_letter_and_a_freed_one_is_used_again() -> None:
    buses = {"new": "virtio", "kept": "virtio", "cd": "sata"}
    found = targets(buses, {"kept": "vda", "gone": "vdb"})
    assert found == {"new": "vdb", "kept": "vda", "cd": "sda"}


def test_letters_go_on_after_z() -> None:
    found = list(targets({f"d{number}": "scsi" for number in range(704)}, {}).values())
    assert found[25:28] == ["sdz", "sdaa", "sdab"]
    assert found[701:] == ["sdzz", "sdaaa", "sdaab"]
