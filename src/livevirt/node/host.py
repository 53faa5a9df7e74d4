"""What the machine under all nodes is: its accelerator, its QEMU, who QEMU runs as.

Trying an accelerator takes seconds where KVM is broken, and the answer stays the same until the
machine is booted, QEMU is replaced or /dev/kvm is made anew. So it is kept with what it depends on.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from livevirt.node import durable, process
from livevirt.node.intent import boot_id
from livevirt.node.process import Account
from livevirt.qemu import accelerator
from livevirt.qemu.accelerator import Accelerator

log = logging.getLogger(__name__)

KVM = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class Host:
    """What all nodes of one machine have in common."""

    accelerator: Accelerator
    qemu: tuple[int, int, int]
    account: Account | None  # who QEMU runs as; None is who we are


class _Kept(msgspec.Struct, frozen=True):
    """A probe's answer, and what it was about."""

    about: list[str]
    accelerator: Accelerator


async def look(kept: Path) -> Host:
    """Return what this machine is; the accelerator is tried only if `kept` does not know it."""
    version = await accelerator.version()
    about = _about(version)
    found = _read(kept, about)
    if found is None:
        found = await accelerator.probe(kvm=str(KVM))
        durable.write(kept, msgspec.json.encode(_Kept(about, found)))
    log.info("accelerator found", extra={"accelerator": found.name, "reason": found.reason})
    return Host(found, version, process.account(kvm=found.name == "kvm"))


def _about(version: tuple[int, int, int]) -> list[str]:
    """Return everything that a probe's answer depends on."""
    try:
        made = KVM.stat().st_ctime_ns
    except OSError:
        made = 0
    usable = os.access(KVM, os.R_OK | os.W_OK)
    return [boot_id(), ".".join(map(str, version)), str(made), str(usable)]


def _read(kept: Path, about: list[str]) -> Accelerator | None:
    try:
        found = msgspec.json.decode(kept.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None
    return found.accelerator if found.about == about else None
