"""Threads of a real QEMU: named, put on CPUs, and made for disks that come later."""

import os
from pathlib import Path

import pytest

from livevirt.node import cgroups, exclusive
from livevirt.node import process as processes
from livevirt.node.intent import Exclusive
from livevirt.qemu.act import act
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import Cpu, Thread
from livevirt.qemu.observe import observe, threads
from livevirt.qemu.plan import MachineSnapshot, PlugCpu, PlugDisk, disks

pytestmark = pytest.mark.guest


def cpus_of(pid: int, tid: int) -> list[int]:
    for line in Path(f"/proc/{pid}/task/{tid}/status").read_text().splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return cgroups.cpu_list(line.partition(":")[2])
    raise AssertionError("the kernel does not tell")


async def test_each_thread_is_put_on_the_cpu_it_is_meant_for(a_machine, start) -> None:
    machine_cpus = sorted(os.sched_getaffinity(0))
    if len(machine_cpus) < 2:
        pytest.skip("this machine has one CPU")
    first, second = machine_cpus[:2]
    cpu = Cpu(model="max", sockets=2, max_sockets=2)
    machine = a_machine(cpu=cpu, io_threads=("io0", "io1"))
    own = Exclusive(
        cpus=(second, first), vcpus=(second, first), io_threads={"io1": first}, emulator=(second,)
    )
    async with start(machine) as guest:
        pid = guest.process.pid
        process = processes.seen(pid)
        assert process is not None
        await exclusive.pin(guest.qmp, process, own, cpu)
        named = await threads(guest.qmp)
        by_vcpu = {vcpu: cpus_of(pid, tid) for tid, vcpu in named.vcpus.items()}
        by_thread = {id: cpus_of(pid, tid) for tid, id in named.io_threads.items()}
        assert by_vcpu == {Thread(0, 0, 0): [second], Thread(1, 0, 0): [first]}
        assert (by_thread["io0"], by_thread["io1"]) == ([second], [first])
        assert cpus_of(pid, pid) == [second]


async def test_a_cpu_that_is_plugged_is_put_on_the_one_that_was_kept_for_it(
    a_machine, start
) -> None:
    machine_cpus = sorted(os.sched_getaffinity(0))
    if len(machine_cpus) < 2:
        pytest.skip("this machine has one CPU")
    first, second = machine_cpus[:2]
    machine = a_machine(cpu=Cpu(model="max", sockets=1, max_sockets=2))
    own = Exclusive(cpus=(first, second), vcpus=(first, second), emulator=(first,))
    async with start(machine) as guest:
        pid, later = guest.process.pid, Thread(1, 0, 0)
        process = processes.seen(pid)
        assert process is not None
        await exclusive.pin(guest.qmp, process, own, machine.cpu)
        (slot,) = (each for each in (await observe(guest.qmp)).cpus if each.thread == later)
        await act(PlugCpu(slot.type, later), guest.qmp)
        await exclusive.pin(guest.qmp, process, own, machine.cpu)
        tids = {vcpu: tid for tid, vcpu in (await threads(guest.qmp)).vcpus.items()}
        assert cpus_of(pid, tids[Thread(0, 0, 0)]) == [first]
        assert cpus_of(pid, tids[later]) == [second]


async def test_a_disk_with_a_thread_of_its_own_brings_it(a_machine, start, run_dir: Path) -> None:
    path = run_dir / "disk.img"
    path.write_bytes(bytes(1 << 20))
    disk = Disk(id="ua-later", image=Image(str(path)), io_thread="io-ua-later")
    machine = a_machine()
    async with start(machine) as guest:
        (step,) = disks([disk], MachineSnapshot(machine, await observe(guest.qmp)))
        assert isinstance(step, PlugDisk)
        await act(step, guest.qmp)
        await act(step, guest.qmp)  # a step done again changes nothing
        assert "io-ua-later" in (await threads(guest.qmp)).io_threads.values()
