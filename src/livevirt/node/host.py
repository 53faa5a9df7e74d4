"""What the machine under all nodes is: its accelerator, its QEMU, its huge pages."""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from livevirt.files import durable
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.node import process
from livevirt.node.exclusive import Cpus
from livevirt.node.intent import boot_id
from livevirt.node.migration.handover import Handovers
from livevirt.node.network.network import NodeNetwork
from livevirt.node.process import Account
from livevirt.qemu import accelerator
from livevirt.qemu.accelerator import NOTHING, Accelerator, Offer

log = logging.getLogger(__name__)

KVM = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class Host:
    """What all nodes of one machine have in common."""

    accelerator: Accelerator
    qemu: tuple[int, int, int]
    account: Account | None  # who QEMU runs as; None is who we are
    offer: Offer = NOTHING
    cpus: Cpus = field(default_factory=Cpus.of_this_machine, compare=False)
    handovers: Handovers = field(default_factory=Handovers, compare=False)
    network: NodeNetwork | None = field(default=None, compare=False)


class _Kept(msgspec.Struct, frozen=True):
    """What a look found, and what it was about."""

    about: list[str]
    accelerator: Accelerator
    offer: Offer


async def look(kept: Path) -> Host:
    """Return what this machine is; it is tried and asked only if `kept` does not know it."""
    version = await accelerator.version()
    about = _about(version)
    known = _read(kept, about)
    if known is None:
        known = await _find(about)
        if known.offer != NOTHING:
            _keep(kept, known)
    found = known.accelerator
    log.info("accelerator found", extra={"accelerator": found.name, "reason": found.reason})
    return Host(found, version, process.account(kvm=found.name == "kvm"), known.offer)


def _keep(kept: Path, found: _Kept) -> None:
    """Save the next start a probe; on a full disk it has to probe again."""
    try:
        durable.write(kept, msgspec.json.encode(found))
    except OSError as error:
        log.warning("probe of the accelerator not saved", extra={"error": str(error)})


async def _find(about: list[str]) -> _Kept:
    found = await accelerator.probe(kvm=str(KVM))
    try:
        return _Kept(about, found, await accelerator.ask(found))
    except OSError as error:  # guests that ask for nothing in particular run all the same
        log.warning("QEMU does not report its capabilities", extra={"error": str(error)})
        return _Kept(about, found, NOTHING)


def _about(version: tuple[int, int, int]) -> list[str]:
    """Return everything that a probe's answer depends on."""
    try:
        made = KVM.stat().st_ctime_ns
    except OSError:
        made = 0
    usable = os.access(KVM, os.R_OK | os.W_OK)
    return [boot_id(), ".".join(map(str, version)), str(made), str(usable)]


def _read(kept: Path, about: list[str]) -> _Kept | None:
    try:
        found = msgspec.json.decode(kept.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.about == about else None


RESOURCE = "hugepages-"  # followed by the size of one page
_FOLDERS = Path("/sys/kernel/mm/hugepages")


def resources(folders: Path = _FOLDERS) -> dict[str, tuple[int, int]]:
    """Return the bytes of one page and the number of pages, by resource; sizes without pages too.

    Kubernetes names a size as a quantity: 2048kB is `hugepages-2Mi`.
    """
    found = {}
    for folder in sorted(folders.glob("hugepages-*kB")):
        size = int(folder.name.removeprefix(RESOURCE).removesuffix("kB")) * 1024
        with contextlib.suppress(OSError):
            pages = int((folder / "nr_hugepages").read_text())
            found[f"{RESOURCE}{Quantity.from_int(size, Format.BINARY_SI)}"] = (size, pages)
    return found
