"""Which fields of a spec are acted on, which users are components of livevirt, and its version."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import Any

from livevirt import __version__
from livevirt.kube.objects.request import Object, User

PATH = "/apis/subresources.kubevirt.io/v1/version"


def info() -> dict[str, str]:
    """Return the fields of KubeVirt's version answer, as far as they mean something here."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "gitVersion": f"v{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{machine}",
    }


def text(version: dict[str, str]) -> str:
    """Return a version answer in the one line that `virtctl version` prints."""
    fields = (
        "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
    )  # fmt: skip
    shown = ", ".join(f'{name[0].upper()}{name[1:]}:"{version.get(name, "")}"' for name in fields)
    return f"version.Info{{{shown}}}"


def differ(one: str, other: str) -> bool:
    """Return whether two versions differ in more than a patch level."""
    return one.lstrip("v").split(".")[:2] != other.lstrip("v").split(".")[:2]


COMPONENTS = "system:serviceaccount:kubevirt:"


def is_component(user: User) -> bool:
    """Return whether a user is one of our own service accounts."""
    return user.name.startswith(COMPONENTS)


MOST_WARNINGS = 10  # what is beyond is counted: answers have room for so many headers only

#: Naming a path supports everything below it. Items of lists have the path of the list.
_TABLE = """
    affinity architecture evictionStrategy hostname nodeSelector priorityClassName schedulerName
    startStrategy subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints
    networks.name networks.pod

    domain.clock.utc domain.clock.timezone
    domain.cpu.cores domain.cpu.sockets domain.cpu.threads domain.cpu.maxSockets domain.cpu.guest
    domain.cpu.model domain.cpu.features domain.cpu.dedicatedCpuPlacement
    domain.cpu.isolateEmulatorThread domain.cpu.numa.guestMappingPassthrough
    domain.features.acpi
    domain.firmware.bootloader.bios domain.firmware.serial domain.firmware.uuid
    domain.machine.type
    domain.ioThreadsPolicy domain.ioThreads.supplementalPoolThreadCount
    domain.memory.guest domain.memory.maxGuest domain.memory.hugepages.pageSize
    domain.rebootPolicy
    domain.resources.requests domain.resources.limits domain.resources.overcommitGuestOverhead

    domain.devices.autoattachGraphicsDevice domain.devices.autoattachMemBalloon
    domain.devices.autoattachPodInterface
    domain.devices.autoattachSerialConsole domain.devices.logSerialConsole domain.devices.rng
    domain.devices.inputs domain.devices.watchdog.name domain.devices.watchdog.i6300esb
    domain.devices.clientPassthrough
    domain.devices.disks.name domain.devices.disks.bootOrder domain.devices.disks.cache
    domain.devices.disks.io domain.devices.disks.serial domain.devices.disks.errorPolicy
    domain.devices.disks.shareable domain.devices.disks.dedicatedIOThread
    domain.devices.disks.disk.bus domain.devices.disks.disk.readonly
    domain.devices.disks.cdrom.bus domain.devices.disks.cdrom.readonly
    domain.devices.interfaces.name domain.devices.interfaces.masquerade
    domain.devices.interfaces.bridge domain.devices.interfaces.ports
    domain.devices.interfaces.macAddress domain.devices.interfaces.model
    domain.devices.interfaces.bootOrder

    volumes.name
    volumes.cloudInitNoCloud volumes.containerDisk volumes.dataVolume volumes.emptyDisk
    volumes.ephemeral volumes.persistentVolumeClaim
"""
SUPPORTED = frozenset(_TABLE.split())
_ABOVE = frozenset(
    path.rsplit(".", depth)[0] for path in SUPPORTED for depth in range(1, path.count(".") + 1)
)
_NOTHING: tuple[Any, ...] = (None, False, "", [])
#: What happens by itself, so that asking for it is no use but no harm either.
_ANYWAY = {"domain.devices.disks.cdrom.tray": "closed"}


def is_acted_on(path: str) -> bool:
    """Return whether a field, or at least one below it, is acted on."""
    above = (path.rsplit(".", depth)[0] for depth in range(path.count(".") + 1))
    return path in _ABOVE or any(each in SUPPORTED for each in above)


def warnings(path: str, spec: Object) -> list[str]:
    """Return a warning for each field that is set in a spec and not acted on."""
    found = list(dict.fromkeys(unsupported(spec)))
    shown = [f"{path}.{each}: stored but ignored by livevirt" for each in found]
    if len(shown) > MOST_WARNINGS:
        more = len(shown) - MOST_WARNINGS + 1
        return [*shown[: MOST_WARNINGS - 1], f"{path}: {more} more fields are not acted on"]
    return shown


def summed_up(whose: str, fields: Sequence[str]) -> str:
    """Return one warning of the fields that another object sets and that livevirt ignores."""
    shown = list(fields[:MOST_WARNINGS])
    if len(fields) > MOST_WARNINGS:
        shown.append(f"{len(fields) - MOST_WARNINGS} more")
    return f"{whose}: livevirt does not act on {', '.join(shown)}"


def unsupported(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that are set and not acted on."""
    if path in SUPPORTED or value in _NOTHING or _ANYWAY.get(path) == value:
        return
    if path and path not in _ABOVE:
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from unsupported(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from unsupported(item, path)
