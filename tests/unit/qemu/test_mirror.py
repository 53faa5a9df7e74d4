"""Which step brings a disk nearer to the image it is copied to."""

from dataclasses import replace

import pytest

from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Cpu, Machine, Memory
from livevirt.qemu.mirror import Copy, EndCopy, FinishCopy, StartCopy, copies_of
from livevirt.qemu.observe import Drive, MemoryState, Observed
from livevirt.qemu.plan import Blocked, CloseImage, MachineSnapshot, Step, UnplugDisk, disks

MIB = 2**20
OLD = Disk(id="ua-data", image=Image("/old"), bus="scsi")
NEW = replace(OLD, image=Image("/new"))
THIRD = replace(OLD, image=Image("/third"))
MACHINE = Machine(
    name="web",
    uuid="12345678-1234-1234-1234-123456789abc",
    accelerator="tcg",
    cpu=Cpu(model="max"),
    memory=Memory(boot=64 * MIB, max=64 * MIB),
    run_dir="/run/vm",
    serial_log="/run/vm/log",
)


def node(disk: Disk) -> str:
    assert disk.node is not None
    return disk.node


def on(disk: Disk, *copies: Copy, idle: tuple[Disk, ...] = ()) -> Observed:
    return Observed(
        "running",
        (),
        MemoryState(64 * MIB),
        drives=(Drive("ua-data", disk.node, size=MIB),),
        idle_nodes=tuple(map(node, idle)),
        copies=copies,
    )


def to(disk: Disk, status: str, error: str = "") -> Copy:
    return Copy(node(disk), status, 1, 4, error)


MAY, MAY_NOT, NOT = {"ua-data": True}, {"ua-data": False}, dict[str, bool]()
RULES: dict[str, tuple[Disk | None, dict[str, bool], Observed, list[Step]]] = {
    "given no copy, then one begins": (NEW, MAY_NOT, on(OLD), [StartCopy(NEW, node(OLD), MIB)]),
    "given one was made ready only, then it begins": (
        NEW, MAY_NOT, on(OLD, idle=(NEW,)), [StartCopy(NEW, node(OLD), MIB)],
    ),
    "while it runs, nothing": (NEW, MAY, on(OLD, to(NEW, "running"), idle=(NEW,)), []),
    "given it is ready and may not switch, nothing": (NEW, MAY_NOT, on(OLD, to(NEW, "ready")), []),
    "given it is ready and may, then it does": (
        NEW, MAY, on(OLD, to(NEW, "ready"), idle=(NEW,)), [FinishCopy(NEW)],
    ),
    "while it ends, nothing": (NEW, MAY, on(OLD, to(NEW, "pending"), idle=(NEW,)), []),
    "given it failed, then it is forgotten first": (
        NEW, MAY_NOT, on(OLD, to(NEW, "concluded", "no"), idle=(NEW,)), [EndCopy(node(NEW))],
    ),
    "given it switched, then the copy goes, and the old image": (
        NEW, MAY, on(NEW, to(NEW, "concluded"), idle=(OLD,)),
        [EndCopy(node(NEW)), CloseImage(node(OLD))],
    ),
    "given it switched and nobody asks any more, the same": (
        NEW, NOT, on(NEW, to(NEW, "concluded"), idle=(OLD,)),
        [EndCopy(node(NEW)), CloseImage(node(OLD))],
    ),
    "given all is done, nothing": (NEW, MAY, on(NEW), []),
    "given it is taken back, then the copy ends": (
        OLD, NOT, on(OLD, to(NEW, "running"), idle=(NEW,)), [EndCopy(node(NEW))],
    ),
    "and then its image goes": (OLD, NOT, on(OLD, idle=(NEW,)), [CloseImage(node(NEW))]),
    "given a third claim, then the copy to the second ends first": (
        THIRD, MAY_NOT, on(OLD, to(NEW, "ready"), idle=(NEW,)),
        [EndCopy(node(NEW)), StartCopy(THIRD, node(OLD), MIB)],
    ),
    "given it is to be replaced, then the copy ends before the disk goes": (
        THIRD, NOT, on(OLD, to(NEW, "running"), idle=(NEW,)), [EndCopy(node(NEW))],
    ),
    "given it is to go, then the copy ends before": (
        None, NOT, on(OLD, to(NEW, "running"), idle=(NEW,)), [EndCopy(node(NEW))],
    ),
    "and then it goes": (
        None, NOT, on(OLD, idle=(NEW,)), [UnplugDisk("ua-data", node(OLD)), CloseImage(node(NEW))],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "copied", "now", "steps"), RULES.values(), ids=RULES)
def test_plan(
    wanted: Disk | None, copied: dict[str, bool], now: Observed, steps: list[Step]
) -> None:
    found = disks((wanted,) if wanted else (), MachineSnapshot(MACHINE, now), frozenset(), copied)
    assert found == steps


def test_a_disk_that_is_not_there_cannot_be_copied_and_does_not_come_empty() -> None:
    now = replace(on(OLD), drives=())
    (step,) = disks((NEW,), MachineSnapshot(MACHINE, now), frozenset(), MAY)
    assert isinstance(step, Blocked)


def test_what_qemu_says_of_jobs_is_read() -> None:
    job = {"id": "copy-n-x", "type": "mirror", "status": "running", "current-progress": 1,
           "total-progress": 3}  # fmt: skip
    (copy,) = copies_of([job, {"id": "x", "type": "backup", "status": "running"}])
    assert copy == Copy("n-x", "running", 1, 3)
    assert copy.percent == 33
    assert Copy("n-x", "created").percent == 0
