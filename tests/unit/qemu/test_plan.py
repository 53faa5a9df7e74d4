from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.qemu.agent import Vcpu
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.guest_memory import GuestMemory, MemoryBlock
from livevirt.qemu.machine import MIB, Cpu, Machine, Memory, Nic, Thread
from livevirt.qemu.observe import CpuSlot, Drive, MemoryState, Observed
from livevirt.qemu.plan import (
    Blocked,
    ChangeMedium,
    CloseImage,
    EndThread,
    GrowDisk,
    MachineSnapshot,
    OnlineMemory,
    PlugCpu,
    PlugDisk,
    PrepareMemory,
    RequestMemory,
    SetVcpus,
    Step,
    UnplugCpu,
    UnplugDisk,
    disks,
    growth,
)

from ...machine_goal import MachineGoal, plan

TYPE = "max-x86_64-cpu"
CD = Disk(id="ua-cd", image=None, kind="cdrom", bus="sata")
ISO = replace(CD, image=Image("/iso"))
DATA = Disk(id="ua-data", image=Image("/data"), bus="scsi")
FAST = Disk(id="ua-fast", image=Image("/fast"), bus="virtio")
STICK = Disk(id="ua-stick", image=None, kind="cdrom", bus="usb")


def a_machine(accelerator: str = "tcg", disks: tuple[Disk, ...] = ()) -> Machine:
    return Machine(
        name="web",
        uuid="12345678-1234-1234-1234-123456789abc",
        accelerator=accelerator,  # type: ignore[arg-type]
        cpu=Cpu(model="max", sockets=1, cores=2, max_sockets=4),
        memory=Memory(boot=64 * MIB, max=256 * MIB),
        run_dir="/run/vm",
        serial_log="/run/vm/log",
        disks=disks,
    )


def slots(sockets: int) -> tuple[CpuSlot, ...]:
    threads = [Thread(socket, core, 0) for socket in range(4) for core in range(2)]
    return tuple(
        CpuSlot(t, TYPE, t.socket < sockets, t.id if 0 < t.socket < sockets else None)
        for t in threads
    )


def is_now(
    sockets: int = 1, requested: int = 0, run_state: str = "running", **more: object
) -> Observed:
    memory = MemoryState(64 * MIB, requested, requested, 192 * MIB)
    return Observed(run_state, slots(sockets), memory, **more)  # type: ignore[arg-type]


def vcpus(online: int, offline: int = 0) -> tuple[Vcpu, ...]:
    return tuple(Vcpu(n, n < online, n > 0) for n in range(online + offline))


def wants(
    sockets: int = 1, memory: int = 64 * MIB, disks: tuple[Disk, ...] = (), paused: bool = False
) -> MachineGoal:
    return MachineGoal(sockets, memory, disks, paused)


KVM, TCG = a_machine("kvm"), a_machine("tcg")
OFFLINE = GuestMemory(128 * MIB, (MemoryBlock(0, False),))
WITH_CD = a_machine(disks=(CD,))
Rule = tuple[MachineGoal, MachineSnapshot, list[Step]]
RULES: dict[str, Rule] = {
    "given all is as wanted, then do nothing": (wants(), MachineSnapshot(TCG, is_now()), []),
    "given the guest shut down, then leave it alone": (
        wants(4, paused=True),
        MachineSnapshot(TCG, is_now(run_state="shutdown")),
        [],
    ),
    "given an agent, when memory grows for the first time, then the kernel is prepared first": (
        wants(memory=128 * MIB),
        MachineSnapshot(TCG, is_now(), vcpus(1), GuestMemory(), agent=True),
        [PrepareMemory(), RequestMemory(64 * MIB)],
    ),
    "given an agent that lists no blocks, when memory grows, then the kernel is prepared too": (
        wants(memory=128 * MIB),
        MachineSnapshot(TCG, is_now(), agent=True),
        [PrepareMemory(), RequestMemory(64 * MIB)],
    ),
    "given it was prepared before, when memory grows, then it is offered at once": (
        wants(memory=128 * MIB),
        MachineSnapshot(TCG, is_now(), vcpus(1), GuestMemory(), True, "online_movable"),
        [RequestMemory(64 * MIB)],
    ),
    "given memory shrinks, then nothing is prepared": (
        wants(),
        MachineSnapshot(TCG, is_now(requested=64 * MIB), vcpus(1), GuestMemory(), agent=True),
        [RequestMemory(0)],
    ),
    "given memory that was taken and left offline, then it is brought online": (
        wants(memory=128 * MIB),
        MachineSnapshot(TCG, is_now(requested=64 * MIB), vcpus(1), OFFLINE, agent=True),
        [OnlineMemory((0,))],
    ),
    "given it stands still, when memory is offline, then it waits": (
        wants(memory=128 * MIB, paused=True),
        MachineSnapshot(TCG, is_now(requested=64 * MIB), vcpus(1), OFFLINE, agent=True),
        [],
    ),
    "given a disk failed and the guest stands still, when it is to go, then unplug it": (
        wants(),
        MachineSnapshot(
            TCG, is_now(run_state="io-error", drives=(Drive("ua-data", node="n", lun=0),))
        ),
        [UnplugDisk("ua-data", "n")],
    ),
    "given one socket, when three are wanted, then plug all their threads in order": (
        wants(3),
        MachineSnapshot(TCG, is_now()),
        [
            PlugCpu(TYPE, Thread(1, 0, 0)),
            PlugCpu(TYPE, Thread(1, 1, 0)),
            PlugCpu(TYPE, Thread(2, 0, 0)),
            PlugCpu(TYPE, Thread(2, 1, 0)),
        ],
    ),
    "given KVM, when fewer sockets are wanted, then unplug the highest first": (
        wants(1),
        MachineSnapshot(KVM, is_now(2), vcpus(4)),
        [UnplugCpu("cpu-1-1-0"), UnplugCpu("cpu-1-0-0")],
    ),
    "given TCG, when fewer sockets are wanted, then the guest takes them offline": (
        wants(1),
        MachineSnapshot(TCG, is_now(2), vcpus(4)),
        [SetVcpus((2, 3), online=False)],
    ),
    "given TCG, when the guest has them offline already, then do nothing": (
        wants(1),
        MachineSnapshot(TCG, is_now(2), vcpus(2, 2)),
        [],
    ),
    "given TCG and no agent, when fewer sockets are wanted, then say why not": (
        wants(1),
        MachineSnapshot(TCG, is_now(2)),
        [
            Blocked(
                "cpu",
                "1 sockets",
                "emulated CPUs are taken offline by the guest agent, and none answers",
            )
        ],
    ),
    "given CPUs offline in the guest, when they are wanted, then online them": (
        wants(2),
        MachineSnapshot(TCG, is_now(2), vcpus(2, 2)),
        [SetVcpus((2, 3), online=True)],
    ),
    "given pause is wanted, when CPUs are too many, then the guest cannot be asked": (
        wants(1, paused=True),
        MachineSnapshot(KVM, is_now(2, run_state="paused"), vcpus(4)),
        [],
    ),
    "given more sockets than the machine has room for, then say so": (
        wants(5),
        MachineSnapshot(TCG, is_now()),
        [Blocked("cpu", "5 sockets", "the machine was started for 1 to 4 sockets")],
    ),
    "given more memory is wanted, then offer the difference": (
        wants(memory=128 * MIB),
        MachineSnapshot(TCG, is_now()),
        [RequestMemory(64 * MIB)],
    ),
    "given memory was offered and not taken yet, then wait": (
        wants(memory=128 * MIB),
        MachineSnapshot(
            TCG, replace(is_now(), memory=MemoryState(64 * MIB, 0, 64 * MIB, 192 * MIB))
        ),
        [],
    ),
    "given less than at boot is wanted, then say why not": (
        wants(memory=32 * MIB),
        MachineSnapshot(TCG, is_now()),
        [
            Blocked(
                "memory",
                f"{32 * MIB} bytes",
                f"the machine was started for {64 * MIB} to {256 * MIB} bytes",
            )
        ],
    ),
    "given an empty drive, when an image is wanted, then change the medium": (
        wants(disks=(ISO,)),
        MachineSnapshot(WITH_CD, is_now(drives=(Drive("ua-cd", removable=True),))),
        [ChangeMedium(ISO)],
    ),
    "given a medium, when none is wanted, then change the medium": (
        wants(disks=(CD,)),
        MachineSnapshot(WITH_CD, is_now(drives=(Drive("ua-cd", node=ISO.node),))),
        [ChangeMedium(CD)],
    ),
    "given a SATA drive, when it is not wanted, then say why not": (
        wants(),
        MachineSnapshot(WITH_CD, is_now(drives=(Drive("ua-cd"),))),
        [Blocked("disk", "ua-cd", "a drive of type ide-cd cannot be taken away")],
    ),
    "given a SATA drive is wanted and not there, then say why not": (
        wants(disks=(CD,)),
        MachineSnapshot(TCG, is_now()),
        [Blocked("disk", "ua-cd", "sata drives cannot be added")],
    ),
    "given a scsi disk is wanted, then plug it at the lowest free LUN": (
        wants(disks=(DATA, replace(DATA, id="ua-0"))),
        MachineSnapshot(
            TCG, is_now(drives=(Drive("ua-0", node=replace(DATA, id="ua-0").node, lun=0),))
        ),
        [PlugDisk(DATA, (("bus", "scsi0.0"), ("channel", 0), ("scsi-id", 0), ("lun", 1)))],
    ),
    "given a virtio disk is wanted, then plug it at a free port": (
        wants(disks=(FAST,)),
        MachineSnapshot(TCG, is_now(free_ports=("port7",))),
        [PlugDisk(FAST, (("bus", "port7"), ("addr", "0x0")))],
    ),
    "given a disk that is not wanted, then unplug it": (
        wants(),
        MachineSnapshot(TCG, is_now(drives=(Drive("ua-data", node=DATA.node, lun=0),))),
        [UnplugDisk("ua-data", DATA.node)],
    ),
    "given a disk of that id with another image, then it goes first": (
        wants(disks=(replace(DATA, image=Image("/new")),)),
        MachineSnapshot(TCG, is_now(drives=(Drive("ua-data", node=DATA.node, lun=0),))),
        [UnplugDisk("ua-data", DATA.node)],
    ),
    "given a disk of that id on another bus, then it goes first": (
        wants(disks=(replace(FAST, id="ua-data", image=DATA.image),)),
        MachineSnapshot(
            TCG,
            is_now(
                drives=(Drive("ua-data", node=DATA.node, lun=0),), devices={"ua-data": "scsi-hd"}
            ),
        ),
        [UnplugDisk("ua-data", DATA.node)],
    ),
    "given pause, when a virtio disk is not wanted, then the guest cannot be asked": (
        wants(paused=True),
        MachineSnapshot(
            TCG,
            is_now(
                run_state="paused",
                drives=(Drive("ua-fast", node=FAST.node),),
                devices={"ua-fast": "virtio-blk-pci"},
            ),
        ),
        [Blocked("disk", "ua-fast", "a paused guest cannot release a virtio disk")],
    ),
    "given a medium in an open tray, then close it": (
        wants(disks=(ISO,)),
        MachineSnapshot(WITH_CD, is_now(drives=(Drive("ua-cd", node=ISO.node, tray_open=True),))),
        [ChangeMedium(ISO)],
    ),
    "given a USB drive is wanted and there is a controller, then plug it": (
        wants(disks=(STICK,)),
        MachineSnapshot(TCG, is_now(devices={"usb0": "qemu-xhci"})),
        [PlugDisk(STICK, (("bus", "bot-ua-stick.0"), ("scsi-id", 0), ("lun", 0)))],
    ),
    "given a USB drive is wanted and no controller, then say why not": (
        wants(disks=(STICK,)),
        MachineSnapshot(TCG, is_now()),
        [Blocked("disk", "ua-stick", "usb drives cannot be added")],
    ),
    "given no free port, then say why not": (
        wants(disks=(FAST,)),
        MachineSnapshot(TCG, is_now()),
        [Blocked("disk", "ua-fast", "no PCIe port is free")],
    ),
    "given an image no drive uses, then close it": (
        wants(),
        MachineSnapshot(TCG, is_now(idle_nodes=("n-ua-data-0",))),
        [CloseImage("n-ua-data-0")],
    ),
    "given a thread of a disk that is gone, then end it, and no other": (
        wants(disks=(replace(FAST, io_thread="io-ua-fast"),)),
        MachineSnapshot(
            TCG,
            is_now(
                free_ports=("port7",),
                devices={"ua-boot": "virtio-blk-pci"},
                io_threads=("io0", "io-ua-boot", "io-ua-fast", "io-ua-gone"),
            ),
        ),
        [
            PlugDisk(replace(FAST, io_thread="io-ua-fast"), (("bus", "port7"), ("addr", "0x0"))),
            EndThread("io-ua-gone"),
        ],
    ),
    "given a bridge whose drive is gone, then it goes, and no other": (
        wants(disks=(STICK,)),
        MachineSnapshot(
            TCG,
            is_now(
                drives=(Drive("ua-stick"),),
                devices={
                    "bot-ua-stick": "usb-bot",
                    "ua-stick": "scsi-cd",
                    "bot-ua-gone": "usb-bot",
                },
            ),
        ),
        [UnplugDisk("ua-gone", None)],
    ),
}


@pytest.mark.parametrize(("wanted", "seen", "steps"), RULES.values(), ids=RULES)
def test_plan(wanted: MachineGoal, seen: MachineSnapshot, steps: list[Step]) -> None:
    assert plan(wanted, seen) == steps


def test_what_is_kept_stays_whatever_it_is() -> None:
    there = is_now(drives=(Drive("ua-data", node="n-other", lun=0), Drive("ua-x", lun=1)))
    kept = frozenset({"ua-data"})
    assert disks((), MachineSnapshot(TCG, there), kept) == [UnplugDisk("ua-x", None)]


FIRST = replace(DATA, boot_index=1)
ROOT = Disk(id="ua-root", image=Image("/root"), boot_index=1)
NIC = Nic(id="net-default", mac="02:00:00:00:00:01", boot_index=1)
#: The machine as it was started, the drives it has, those that are kept and wanted besides.
ORDERS: dict[str, tuple[Machine, tuple[str, ...], set[str], tuple[Disk, ...], int | None]] = {
    "nobody has it": (TCG, (), set(), (), 1),
    "a disk that stays has it": (a_machine(disks=(ROOT,)), ("ua-root",), {"ua-root"}, (), None),
    "a disk that has gone had it": (a_machine(disks=(ROOT,)), (), {"ua-root"}, (), 1),
    "a disk that goes has it": (a_machine(disks=(ROOT,)), ("ua-root",), set(), (), 1),
    "a NIC has it": (replace(TCG, nics=(NIC,)), (), set(), (), None),
    "one that was plugged has it": (TCG, ("ua-root",), set(), (ROOT,), None),
}


@pytest.mark.parametrize(("machine", "there", "kept", "more", "index"), ORDERS.values(), ids=ORDERS)
def test_a_disk_comes_without_its_place_in_the_boot_order_if_it_is_taken(
    machine: Machine,
    there: tuple[str, ...],
    kept: set[str],
    more: tuple[Disk, ...],
    index: int | None,
) -> None:
    now = is_now(drives=tuple(Drive(id, node=ROOT.node) for id in there))
    steps = disks((*more, FIRST), MachineSnapshot(machine, now), frozenset(kept))
    (plugged,) = (step.disk for step in steps if isinstance(step, PlugDisk))
    assert plugged == replace(FIRST, boot_index=index)


def test_the_guest_has_the_sockets_that_are_plugged_and_online() -> None:
    accepted = frozenset({"cpu-1-0-0", "cpu-1-1-0"})
    assert MachineSnapshot(TCG, is_now(3)).sockets == 1
    assert MachineSnapshot(TCG, is_now(3, accepted=accepted)).sockets == 2
    assert MachineSnapshot(TCG, is_now(3), vcpus(6)).sockets == 3
    assert MachineSnapshot(TCG, is_now(3), vcpus(4, 2)).sockets == 2
    assert MachineSnapshot(TCG, is_now(1), vcpus(1, 1)).sockets == 1  # a half is one


def test_a_socket_with_a_thread_missing_does_not_count() -> None:
    observed = is_now(3)
    cut = tuple(
        replace(slot, present=slot.present and slot.thread != (1, 1, 0)) for slot in observed.cpus
    )
    assert replace(observed, cpus=cut).sockets == 1


def done(step: Step, seen: MachineSnapshot) -> MachineSnapshot:
    """Tell what a willing guest looks like after a step."""
    now = seen.observed
    match step:
        case PlugCpu(_, thread):
            cpus = tuple(
                replace(s, present=True, id=s.thread.id) if s.thread == thread else s
                for s in now.cpus
            )
            # A plugged CPU comes up offline, with the next number.
            fresh = (Vcpu(len(seen.vcpus), False, True),) if seen.vcpus is not None else ()
            vcpus = None if seen.vcpus is None else seen.vcpus + fresh
            return replace(
                seen,
                observed=replace(now, cpus=cpus, accepted=now.accepted | {thread.id}),
                vcpus=vcpus,
            )
        case UnplugCpu(id):
            cpus = tuple(replace(s, present=False, id=None) if s.id == id else s for s in now.cpus)
            return replace(
                seen, observed=replace(now, cpus=cpus), vcpus=seen.vcpus and seen.vcpus[:-1]
            )
        case SetVcpus(ids, online):
            changed = tuple(
                Vcpu(v.logical_id, online if v.logical_id in ids else v.online)
                for v in seen.vcpus or ()
            )
            return replace(seen, vcpus=changed)
        case RequestMemory(size):
            now = replace(now, memory=replace(now.memory, requested=size, plugged=size))
        case PlugDisk(disk, place):
            found = dict(place)
            lun = found.get("lun")
            drive = Drive(disk.id, disk.node, lun=lun)  # type: ignore[arg-type]
            ports = tuple(port for port in now.free_ports if port != found["bus"])
            now = replace(now, drives=(*now.drives, drive), free_ports=ports)
        case UnplugDisk(id, _):
            drives = tuple(drive for drive in now.drives if drive.id != id)
            now = replace(now, drives=drives)
        case ChangeMedium(disk):
            drives = tuple(replace(d, node=disk.node) if d.id == disk.id else d for d in now.drives)
            now = replace(now, drives=drives)
        case CloseImage(node):
            idle = tuple(name for name in now.idle_nodes if name != node)
            now = replace(now, idle_nodes=idle)
    return replace(seen, observed=now)


wanted_states = st.builds(
    wants,
    st.integers(1, 4),
    st.integers(64 * MIB, 256 * MIB),
    st.sets(st.sampled_from([DATA, FAST])).map(lambda more: (CD, *sorted(more, key=id))),
    st.booleans(),
)


@given(
    wanted_states,
    st.integers(1, 4),
    st.sampled_from(["kvm", "tcg"]),
    st.sampled_from(["running", "paused", "prelaunch"]),
    st.booleans(),
)
def test_given_any_state_when_plans_are_followed_then_it_settles(
    wanted: MachineGoal, sockets: int, accelerator: str, run_state: str, agent: bool
) -> None:
    seen = MachineSnapshot(
        a_machine(accelerator, (CD,)),
        is_now(sockets, run_state=run_state, drives=(Drive("ua-cd"),), free_ports=("port5",)),
        vcpus(sockets * 2) if agent else None,
    )
    there = frozenset(slot.id for slot in seen.observed.cpus if slot.id is not None)
    seen = replace(seen, observed=replace(seen.observed, accepted=there))
    for _ in range(3):
        for step in plan(wanted, seen):
            seen = done(step, seen)
    left = plan(wanted, seen)
    assert all(isinstance(step, Blocked) for step in left)
    if not wanted.paused and (agent or accelerator == "kvm"):
        assert left == []
        assert seen.sockets == wanted.sockets


# ---------------------------------------------------------------- growth

GROWTH: dict[str, tuple[dict[str, int], Drive, list[Step]]] = {
    "given it is smaller, then it grows": (
        {"n": 2}, Drive("ua-a", node="n", size=1), [GrowDisk("ua-a", "n", 2)]),
    "given it is as large, then nothing": ({"n": 2}, Drive("ua-a", node="n", size=2), []),
    "given it is larger, then it stays": ({"n": 2}, Drive("ua-a", node="n", size=3), []),
    "given it has another image, then nothing": ({"n": 2}, Drive("ua-a", node="o", size=1), []),
    "given an empty drive, then nothing": ({"n": 2}, Drive("ua-a"), []),
    "given nobody knows its size, then nothing": ({"n": 2}, Drive("ua-a", node="n"), []),
}  # fmt: skip


@pytest.mark.parametrize(("sizes", "drive", "expected"), GROWTH.values(), ids=GROWTH)
def test_drives_grow_with_their_images(
    sizes: dict[str, int], drive: Drive, expected: list[Step]
) -> None:
    assert growth(sizes, MachineSnapshot(TCG, is_now(drives=(drive,)))) == expected


GROWING = {"running": True, "paused": True, "io-error": True, "shutdown": False, "inmigrate": False}


@pytest.mark.parametrize(("state", "grows"), GROWING.items(), ids=GROWING)
def test_disks_grow_while_the_guest_is_there(state: str, grows: bool) -> None:
    drive = Drive("ua-a", node="n", size=1)
    steps = growth({"n": 2}, MachineSnapshot(TCG, is_now(run_state=state, drives=(drive,))))
    assert steps == ([GrowDisk("ua-a", "n", 2)] if grows else [])
