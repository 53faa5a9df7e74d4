"""Which accelerator really runs a guest here, and which QEMU it is.

A host may have a /dev/kvm that opens, makes a VM and still cannot run a guest. So the probe starts
a machine with the host's CPU and believes in KVM only when the guest has come as far as 64-bit
code. Seen: QEMU aborting at once; firmware running, and a kernel silent for ever; firmware running,
and "KVM internal error" at the first interrupt in protected mode (KVM without hardware support).
"""

import asyncio
import ctypes
import json
import os
import re
import signal
import tempfile
from dataclasses import dataclass

from livevirt.qemu import boot_sector
from livevirt.qemu.machine import AcceleratorName

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
        disk.write(boot_sector.image())
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
                *("-device", f"isa-debugcon,iobase={boot_sector.DEBUG_PORT:#x},chardev=log"),
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
        if line == boot_sector.SPEAKS:
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
