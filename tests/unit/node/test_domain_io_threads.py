from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from livevirt.node import domain
from livevirt.node.domain import Place, plugged, supplemental
from livevirt.node.volumes import Prepared
from livevirt.qemu.accelerator import Accelerator
from livevirt.qemu.disk import Disk, Image
from livevirt.qemu.machine import MIB, Cpu, Machine, Memory


def a_disk(name: str, bus: str = "virtio", **rest: Any) -> Any:
    return {"name": name, "disk": {"bus": bus}, **rest}


def own(name: str) -> Any:
    return a_disk(name, dedicatedIOThread=True)


THREE = [a_disk("a"), a_disk("b"), a_disk("c")]
ISOLATED = {"cores": 4, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
POOL = {"supplementalPoolThreadCount": 2}

RULES: dict[str, tuple[dict[str, Any], list[Any], tuple[str, ...], list[str | None]]] = {
    "no policy: QEMU's main thread": ({}, THREE, (), [None, None, None]),
    "a disk may have one without a policy": ({}, [a_disk("a"), own("b")], ("io-ua-b",),
                                              [None, "io-ua-b"]),
    "shared: one for all": ({"ioThreadsPolicy": "shared"}, THREE, ("io0",), ["io0"] * 3),
    "shared: but for those that want their own": (
        {"ioThreadsPolicy": "shared"}, [a_disk("a"), own("b")], ("io0", "io-ua-b"),
        ["io0", "io-ua-b"]),
    "auto: one each while there are few": ({"ioThreadsPolicy": "auto", "cpu": {"cores": 2}}, THREE,
                                           ("io0", "io1", "io2"), ["io0", "io1", "io2"]),
    "auto: two for each vCPU": ({"ioThreadsPolicy": "auto"}, THREE, ("io0", "io1"),
                                ["io0", "io1", "io0"]),
    "auto: those of their own count, one is always shared": (
        {"ioThreadsPolicy": "auto"}, [own("a"), own("b"), a_disk("c")],
        ("io0", "io-ua-a", "io-ua-b"), ["io-ua-a", "io-ua-b", "io0"]),
    "auto: one beside an isolated emulator": ({"ioThreadsPolicy": "auto", "cpu": ISOLATED}, THREE,
                                              ("io0",), ["io0"] * 3),
    "supplementalPool: as many as asked for": (
        {"ioThreadsPolicy": "supplementalPool", "ioThreads": POOL}, THREE, ("io0", "io1"),
        ["io0", "io1", "io0"]),
    "only virtio disks": ({"ioThreadsPolicy": "shared"}, [a_disk("a", "scsi"), a_disk("b")],
                          ("io0",), [None, "io0"]),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "disks", "threads", "served"), RULES.values(), ids=RULES)
def test_threads(
    parts: dict[str, Any], disks: list[Any], threads: tuple[str, ...], served: list[str | None]
) -> None:
    vmi = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": disks}, **parts}},
    }
    volumes = {disk["name"]: Prepared(Image(f"/{disk['name']}")) for disk in disks}
    made = domain.machine(vmi, volumes, Accelerator("tcg", ""), Place("/run/1", "/serial"))
    assert made.io_threads == threads
    assert [disk.io_thread for disk in made.disks] == served


def test_disks_that_come_later_share_the_pool_and_keep_a_thread_of_their_own() -> None:
    cpu, memory = Cpu(model="max"), Memory(boot=MIB, max=MIB)
    machine = Machine(
        name="web", uuid="12345678-1234-1234-1234-123456789abc", accelerator="tcg", cpu=cpu,
        memory=memory, run_dir="/run/1", serial_log="/serial",
        disks=(Disk(id="ua-a", image=Image("/a"), io_thread="io-ua-a"),),
        io_threads=("io0", "io-ua-a"),
    )  # fmt: skip
    later = (
        Disk(id="ua-b", image=Image("/b")),
        Disk(id="ua-c", image=Image("/c"), io_thread="io-ua-c"),
        Disk(id="ua-d", image=Image("/d"), bus="scsi"),
    )
    threads = [disk.io_thread for disk in plugged(later, machine)]
    assert threads == ["io0", "io-ua-c", None]
    assert plugged(later, replace(machine, io_threads=("io-ua-a",))) == later


def test_only_a_supplemental_pool_counts_as_cpus() -> None:
    assert supplemental({"ioThreadsPolicy": "auto", "ioThreads": POOL}) == []
    assert supplemental({"ioThreadsPolicy": "supplementalPool", "ioThreads": POOL}) == [
        "io0", "io1",
    ]  # fmt: skip
