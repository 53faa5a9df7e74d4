"""Which accelerator really runs a guest here, which QEMU it is, and what it can offer guests."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import signal
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livevirt.qemu.machine import AcceleratorName

ASK_SECONDS = 10.0  # it takes a tenth of one


@dataclass(frozen=True, slots=True)
class Offer:
    """What a guest may ask for, by QEMU's own names, each list sorted."""

    cpu_models: tuple[str, ...] = ()
    cpu_features: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()  # of the one family guests are made for, q35


NOTHING = Offer()


async def ask(accelerator: Accelerator, emulator: str = "qemu-system-x86_64") -> Offer:
    """Return what guests can have; raise OSError if QEMU does not answer."""
    full = accelerator.cpu_model("")  # all that the accelerator can do
    questions: dict[str, Mapping[str, object]] = {
        "qmp_capabilities": {},
        "query-cpu-definitions": {},
        "query-cpu-model-expansion": {"type": "static", "model": {"name": full}},
        "query-machines": {},
        "quit": {},
    }
    process = await asyncio.create_subprocess_exec(
        emulator,
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *("-machine", "none", "-accel", accelerator.name, "-qmp", "stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=end_with_parent,
    )
    text = "".join(
        json.dumps({"execute": name, "arguments": arguments, "id": name}) + "\n"
        for name, arguments in questions.items()
    )
    try:
        async with asyncio.timeout(ASK_SECONDS):
            said, complaint = await process.communicate(text.encode())
    except TimeoutError:
        raise OSError(f"{emulator} reported no capabilities in {ASK_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    try:
        return read(said)
    except (KeyError, ValueError) as error:
        why = complaint.decode(errors="replace").strip() or repr(error)
        raise OSError(f"{emulator} does not report its capabilities: {why}") from error


def read(said: bytes) -> Offer:
    """Return the offer in QEMU's answers. Pure; raises KeyError or ValueError without one."""
    answers: dict[str, Any] = {}
    for line in said.splitlines():
        message = json.loads(line)
        if "id" in message:
            answers[message["id"]] = message["return"]
    # A model with missing features starts all the same, as another CPU than was asked for.
    models = [
        model["name"]
        for model in answers["query-cpu-definitions"]
        if model.get("unavailable-features") == []
    ]
    properties = answers["query-cpu-model-expansion"]["model"]["props"]
    names = [
        name
        for machine in answers["query-machines"]
        for name in (machine["name"], machine.get("alias", ""))
    ]
    return Offer(
        tuple(sorted(models)),
        tuple(sorted(name for name, value in properties.items() if value is True)),
        tuple(sorted(name for name in names if name.removeprefix("pc-").startswith("q35"))),
    )


# ---------------------------------------------------------------- the boot sector

SPEAKS = b"livevirt: long mode\n"
DEBUG_PORT = 0x402

_CODE = """
fa              cli
31c0            xor   ax, ax
8ed8            mov   ds, ax
8ec0            mov   es, ax
8ed0            mov   ss, ax
bc007c          mov   sp, 7c00
0f0116e87c      lgdt  [7ce8]
0f20c0          mov   eax, cr0
0c01            or    al, 1                 protected mode
0f22c0          mov   cr0, eax
ea1e7c0800      jmp   08:7c1e
66b81000        mov   ax, 10
8ed8            mov   ds, ax
8ec0            mov   es, ax
8ed0            mov   ss, ax
bf00100000      mov   edi, 1000             interrupt table at 1000, page tables from 2000
31c0            xor   eax, eax
b900100000      mov   ecx, 1000
f3ab            rep stosd
c705001100009f7c0800  mov [1100], 00087c9f  interrupt 20 is handled at 7c9f
c70504110000008e0000  mov [1104], 00008e00
0f011dee7c0000  lidt  [7cee]
cd20            int   20
c7050020000003300000  mov [2000], 3003
c7050030000003400000  mov [3000], 4003
c7050040000083000000  mov [4000], 83        one page of 2 MiB
b800200000      mov   eax, 2000
0f22d8          mov   cr3, eax
0f20e0          mov   eax, cr4
0c20            or    al, 20                physical address extension
0f22e0          mov   cr4, eax
b9800000c0      mov   ecx, c0000080
0f32            rdmsr
80cc01          or    ah, 1                 long mode
0f30            wrmsr
0f20c0          mov   eax, cr0
0d00000080      or    eax, 80000000         paging
0f22c0          mov   cr0, eax
eaa07c00001800  jmp   18:7ca0
cf              iret                        the handler, 7c9f
beb47c0000      mov   esi, 7cb4             64-bit code, 7ca0
b914000000      mov   ecx, 14
66ba0204        mov   dx, 402
fc              cld
f36e            rep outsb
f4              hlt
ebfd            jmp   -1
"""

_SEGMENTS = (0, 0x00CF9B000000FFFF, 0x00CF93000000FFFF, 0x00AF9B000000FFFF)  # 32-bit, data, 64-bit


def image() -> bytes:
    """Return a disk to boot from; the firmware reads no smaller one."""
    code = b"".join(bytes.fromhex(line.split()[0]) for line in _CODE.split("\n") if line)
    tables = b"".join(segment.to_bytes(8, "little") for segment in _SEGMENTS)
    tables += struct.pack("<HI", len(tables) - 1, 0x7CC8) + struct.pack("<HI", 0x107, 0x1000)
    sector = (code + SPEAKS + tables).ljust(510, b"\0") + b"\x55\xaa"
    return sector.ljust(1024 * 1024, b"\0")


# ---------------------------------------------------------------- the probe

PROBE_SECONDS = 10.0  # even emulated it takes a fifth of a second
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # prctl(2)
_HOST_MODELS = ("", "host-model", "host-passthrough")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What guests run on, and why."""

    name: AcceleratorName
    reason: str

    def cpu_model(self, wanted: str) -> str:
        """Return QEMU's name for a CPU model; emulated guests get all that can be emulated."""
        if wanted in _HOST_MODELS:
            return "host" if self.name == "kvm" else "max"
        return wanted


async def probe(emulator: str = "qemu-system-x86_64", kvm: str = "/dev/kvm") -> Accelerator:
    """Return KVM if a guest runs on it, else TCG with what went wrong."""
    if not os.access(kvm, os.F_OK):
        return Accelerator("tcg", f"{kvm} does not exist")
    if not os.access(kvm, os.R_OK | os.W_OK):
        return Accelerator("tcg", f"no permission to use {kvm}")
    failure = await guest_failure(emulator, accel="kvm", cpu="host")
    if failure is None:
        return Accelerator("kvm", f"a guest ran on {kvm}")
    return Accelerator("tcg", f"{kvm} cannot run a guest: {failure}")


async def guest_failure(emulator: str, *, accel: str, cpu: str) -> str | None:
    """Run the boot sector; return None once it speaks, else what happened instead."""
    with tempfile.TemporaryFile() as disk:  # it has no name, so nothing stays if we are killed
        disk.write(image())
        disk.flush()
        path = f"/dev/fd/{disk.fileno()}"
        drive = {"driver": "file", "node-name": "probe", "filename": path, "read-only": True}
        try:
            process = await asyncio.create_subprocess_exec(
                emulator,
                *("-nodefaults", "-no-user-config", "-display", "none", "-m", "32"),
                *("-machine", "q35", "-accel", accel, "-cpu", cpu),
                *("-blockdev", json.dumps(drive), "-device", "virtio-blk-pci,drive=probe"),
                *("-chardev", "stdio,id=log,signal=off"),
                *("-device", f"isa-debugcon,iobase={DEBUG_PORT:#x},chardev=log"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(disk.fileno(),),
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            return str(error)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await _failure(process)
        except TimeoutError:
            return f"it started and came to nothing in {PROBE_SECONDS:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


def end_with_parent() -> None:
    """Let the kernel end this process with the one that started it, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _failure(process: asyncio.subprocess.Process) -> str | None:
    assert process.stdout is not None
    last = ""
    async for line in process.stdout:
        if line == SPEAKS:
            return None
        last = line.decode(errors="replace").strip() or last
        if "internal error" in last:
            return last  # the machine stays, but its CPU has stopped for good
    return last or f"it ended with status {await process.wait()}"


async def version(emulator: str = "qemu-system-x86_64") -> tuple[int, int, int]:
    """Return QEMU's version; raise OSError if there is no such program."""
    process = await asyncio.create_subprocess_exec(
        emulator, "--version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    found = re.search(rb"version (\d+)\.(\d+)\.(\d+)", said)
    if found is None:
        raise OSError(f"{emulator} does not say its version")
    major, minor, micro = (int(part) for part in found.groups())
    return major, minor, micro
