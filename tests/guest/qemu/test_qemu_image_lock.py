"""Whether an image is taken, as QEMU itself sees it."""

from dataclasses import replace
from pathlib import Path

import pytest

from livevirt.qemu import block_nodes
from livevirt.qemu.act import act
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.observe import observe
from livevirt.qemu.plan import MachineSnapshot, disks

pytestmark = pytest.mark.guest
MIB = 1024 * 1024

WRITES = Disk(id="ua-a", image=Image("/"), bus="scsi")
USES = {
    "writes": WRITES,
    "shares": replace(WRITES, shareable=True, cache="none"),
    "reads": replace(WRITES, readonly=True),
    "plays": replace(WRITES, kind="cdrom", readonly=True),
}
TOGETHER = {("shares", "shares"), *((a, b) for a in ("reads", "plays") for b in ("reads", "plays"))}


@pytest.mark.parametrize("has", USES)
async def test_it_is_taken_just_where_qemu_does_not_open_it(
    a_machine, start, run_dir: Path, has: str
) -> None:
    path = run_dir / "disk.img"
    path.write_bytes(b"\0" * MIB)
    found = {name: replace(disk, image=Image(str(path))) for name, disk in USES.items()}
    assert not any(block_nodes.image_taken(disk) for disk in found.values())
    machine = a_machine()
    async with start(a_machine(disks=(found[has],))), start(machine) as other:
        for name, disk in found.items():
            wanted = replace(disk, id=f"ua-{name}")
            (step,) = disks((wanted,), MachineSnapshot(machine, await observe(other.qmp)))
            assert block_nodes.image_taken(wanted) is ((has, name) not in TOGETHER), name
            if (has, name) in TOGETHER:
                await act(step, other.qmp)
                await act(
                    disks((), MachineSnapshot(machine, await observe(other.qmp)))[0], other.qmp
                )
            else:
                with pytest.raises(CommandFailed, match="lock"):
                    await act(step, other.qmp)


def test_an_image_that_is_not_there_or_an_empty_drive_is_not_taken() -> None:
    assert not block_nodes.image_taken(replace(WRITES, image=Image("/no/such/image")))
    assert not block_nodes.image_taken(replace(WRITES, image=None, kind="cdrom"))
