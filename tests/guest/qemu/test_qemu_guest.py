"""Plans followed with a real guest, which is asked what it sees."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from livevirt.qemu import lifecycle
from livevirt.qemu.act import act
from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.errors import AgentUnavailable
from livevirt.qemu.machine import Cpu, Machine, Memory, Nic
from livevirt.qemu.observe import Observed, observe
from livevirt.qemu.plan import MachineSnapshot, SetVcpus, UnplugDisk
from livevirt.qemu.session import Session

from ...machine_goal import MachineGoal, plan

pytestmark = [pytest.mark.guest, pytest.mark.long]
MIB = 1024 * 1024
CD = Disk(id="ua-cd", image=None, kind="cdrom", bus="sata")


def an_overlay(base: Path, folder: Path) -> Disk:
    path = folder / "root.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, path], check=True
    )
    image = Image(str(path), "qcow2", backing=Image(str(base), "qcow2"))
    return Disk(id="ua-root", image=image, boot_index=1)


async def until(what: str, condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"not in {seconds} s: {what}")


async def answers(agent: GuestAgent) -> bool:
    try:
        await agent.ping()
    except AgentUnavailable:
        return False
    return True


async def says(agent: GuestAgent, script: str) -> str:
    finished = await agent.exec("/bin/sh", ["-c", script])
    return finished.stdout.decode().strip()


async def follow(
    wanted: MachineGoal, machine: Machine, qmp: Session, agent: GuestAgent
) -> Observed:
    """Plan and act until there is nothing left to do."""

    async def settled() -> bool:
        steps = plan(wanted, MachineSnapshot(machine, await observe(qmp), await agent.vcpus()))
        for step in steps:
            await act(step, qmp, agent)
        return not steps

    await until("the plan settles", settled)
    return await observe(qmp)


async def test_a_guest_follows_every_change_and_its_end_is_told(
    a_machine, start, run_dir: Path, guest_image: Path
) -> None:
    root = an_overlay(guest_image, run_dir)
    data = Disk(id="ua-data", image=Image(str(run_dir / "data.img")), bus="scsi", serial="DATA")
    fast = Disk(id="ua-fast", image=Image(str(run_dir / "fast.img")), bus="virtio", serial="FAST")
    for disk in (data, fast):
        (run_dir / Path(disk.image.path).name).write_bytes(b"\0" * 8 * MIB)
    (run_dir / "medium.iso").write_bytes(b"CD-ROM medium".ljust(2048 * 64, b"\0"))
    machine = a_machine(
        paused=False,
        cpu=Cpu(model="max", sockets=1, max_sockets=3),
        memory=Memory(boot=512 * MIB, max=1024 * MIB),
        disks=(root, CD),
        nics=(Nic(id="nic-default", mac="02:00:00:00:00:01"),),
    )
    async with start(machine, 240) as guest, GuestAgent(machine.agent_socket) as agent:
        qmp = guest.qmp
        await until("the agent answers", lambda: answers(agent), 120)
        assert (await observe(qmp)).agent_open
        base = MachineGoal(sockets=1, memory=512 * MIB, disks=(root, CD))

        grown = replace(base, sockets=3, memory=768 * MIB)
        await follow(grown, machine, qmp, agent)

        async def has(script: str, text: str) -> bool:
            return await says(agent, script) == text

        await until("three CPUs", lambda: has("nproc", "3"))
        await until("256 MiB more", lambda: plugged(qmp, 256 * MIB))
        total = "awk '/MemTotal/ {print ($2 > 600000)}' /proc/meminfo"
        await until("the guest uses it", lambda: has(total, "1"))

        await follow(base, machine, qmp, agent)
        await until("one CPU", lambda: has("nproc", "1"))
        await until("the memory back", lambda: plugged(qmp, 0))
        assert (await observe(qmp)).sockets == 3  # emulated: offline, still plugged
        seen = MachineSnapshot(machine, await observe(qmp), await agent.vcpus())
        assert seen.sockets == 1
        assert plan(replace(base, sockets=2), seen) == [SetVcpus((1,), online=True)]

        medium = replace(CD, image=Image(str(run_dir / "medium.iso")))
        await follow(replace(base, disks=(root, medium, data, fast)), machine, qmp, agent)
        serials = "cat /sys/block/vd*/serial | sort | tr -d '\\n'"
        await until("the virtio disk", lambda: has(serials, "FAST"))
        await until("the scsi disk", lambda: has("ls /sys/block | grep -c ^sd", "1"))
        # The first read after a change of medium fails by design: unit attention.
        await until("the medium", lambda: has("head -c 13 /dev/sr0", "CD-ROM medium"))

        after = await follow(base, machine, qmp, agent)
        assert {drive.id for drive in after.drives} == {"ua-root", "ua-cd"}
        assert after.idle_nodes == ()
        await until("the disks gone", lambda: has("ls /sys/block | grep -c '^sd\\|vdb'", "0"))
        await act(UnplugDisk("ua-fast", fast.node), qmp)  # already gone

        with qmp.listen("SHUTDOWN") as events:
            await lifecycle.powerdown(qmp)
            shutdown = await anext(events)
        await until("it stops", lambda: in_state(qmp, "shutdown"))
        assert lifecycle.standing("shutdown", shutdown).by_guest


async def plugged(qmp: Session, size: int) -> bool:
    return (await observe(qmp)).memory.plugged == size


async def in_state(qmp: Session, state: str) -> bool:
    return (await observe(qmp)).run_state == state
