"""The preferences: what guests of each operating system like best, as rows of traits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from livevirt import catalog
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

_VIRTIO = {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"}}
_TABLET = {"devices": {"preferredInputBus": "virtio", "preferredInputType": "tablet"}}
_INPUT = {"devices": {"preferredAutoattachInputDevice": True}}
_QUEUES = {"devices": {"preferredNetworkInterfaceMultiQueue": True}}
_HYPERV = (
    "frequencies", "ipi", "reenlightenment", "relaxed", "reset", "runtime", "synic", "tlbflush",
    "vapic", "vpindex",
)  # fmt: skip


def _os(name: str) -> Object:
    return {"annotations": {"vm.kubevirt.io/os": name}}


def _devices(**wanted: Any) -> Object:
    return {"devices": {f"preferred{name}": value for name, value in wanted.items()}}


def _efi(**wanted: bool) -> Object:
    return {"firmware": {"preferredEfi": wanted}}


def _architecture(name: str) -> Object:
    return {"preferredArchitecture": name, "requirements": {"architecture": name}}


def _spread(**options: Any) -> Object:
    across = {"across": "SocketsCoresThreads", **options}
    return {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": across}}


#: Parts of a preference's spec by the keyword that stands for them; a later one of a row wins.
TRAITS: dict[str, tuple[Object, ...]] = {
    "linux": (_os("linux"), _VIRTIO, _devices(Rng={})),
    "legacy": (_os("legacy"), _devices(DiskBus="sata", InterfaceModel="e1000")),
    "io": (_devices(DiskDedicatedIoThread=True),),
    "desktop": (_INPUT, _TABLET),
    "transitional": (_devices(UseVirtioTransitional=True),),
    "efi": (_efi(secureBoot=False),),
    "secureboot": (_efi(secureBoot=True), {"features": {"preferredSmm": {}}}),
    "secex": ({"preferredLaunchSecurity": {}},),
    "amd64": (_architecture("amd64"),),
    "arm64": (_architecture("arm64"),),
    "s390x": (_architecture("s390x"),),
    "dpdk": (_spread(ratio=4), _QUEUES),
    "realtime": (
        _spread(),
        _QUEUES,
        _devices(AutoattachGraphicsDevice=False, AutoattachMemBalloon=False),
        _devices(AutoattachSerialConsole=True),
    ),
    "windows": (
        _os("windows"),
        _INPUT,
        _devices(DiskBus="sata", InterfaceModel="e1000e"),
        {"cpu": {"preferredCPUTopology": "sockets"}},
        {"preferredTerminationGracePeriodSeconds": 3600},
        {
            "clock": {
                "preferredClockOffset": {"utc": {}},
                "preferredTimer": {
                    "hpet": {"present": False},
                    "hyperv": {},
                    "pit": {"tickPolicy": "delay"},
                    "rtc": {"tickPolicy": "catchup"},
                },
            },
            "features": {
                "preferredAcpi": {},
                "preferredApic": {},
                "preferredHyperv": {
                    **{name: {} for name in _HYPERV},
                    "spinlocks": {"spinlocks": 8191},
                    "synictimer": {"direct": {}},
                },
            },
        },
    ),
    "cores": ({"cpu": {"preferredCPUTopology": "cores"}},),
    "tpm": (_devices(TPM={"persistent": True}), _efi(persistent=True)),
    "virtio": (_VIRTIO, _TABLET, _devices(VideoType="virtio")),
    "e1000": (_devices(InterfaceModel="e1000"),),
    "rtl8139": (_devices(InterfaceModel="rtl8139"),),
    "nohole": ({"annotations": {"kubevirt.io/disablePCIHole64": "true"}},),
}


class Family(NamedTuple):
    """Guests that have an icon, tags and traits in common."""

    icon: str
    tags: str
    title: str
    traits: str  # the first is also the type of the operating system
    rows: str  # name | rest of the title | least vCPUs and memory | more traits
    twins: bool = False  # whether each also comes with virtio devices


FAMILIES = (
    Family("alpine", "alpine", "Alpine", "linux", "alpine || 1 512Mi |"),
    Family("centos", "linux,centos-stream", "CentOS Stream", "linux io", """
        centos.stream10         | 10 | 1 1.5Gi |
        centos.stream10.desktop | 10 | 1 1.5Gi | desktop
        centos.stream9          | 9  | 1 1.5Gi |
        centos.stream9.desktop  | 9  | 1 1.5Gi | desktop
        centos.stream9.dpdk     | 9  | 8 1.5Gi | dpdk
    """),
    Family("cirros", "cirros", "Cirros", "linux", "cirros || 1 256Mi |"),
    Family("debian", "debian", "Debian", "linux", "debian || 1 512Mi | efi"),
    Family("fedora", "fedora", "Fedora", "linux", """
        fedora             | (amd64)                | 1 2Gi | amd64 secureboot
        fedora.arm64       | (arm64)                | 1 2Gi | arm64
        fedora.s390x       | (s390x)                | 1 2Gi | s390x
        fedora.s390x.secex | (IBM Secure Execution) | 1 2Gi | s390x secex
    """),
    Family("other", "legacy", "Legacy Guest", "legacy", "legacy |||"),
    Family("linux", "linux", "Linux Guest", "linux", "linux |||"),
    Family("linux", "linux-efi", "Linux EFI Guest", "linux", "linux.efi ||| efi"),
    Family("linux", "linux-virtio-transitional", "Linux Virtio Transitional Guest", "linux",
           "linux.virtiotransitional ||| transitional"),
    Family("opensuse-leap", "opensuse.leap", "OpenSUSE Leap", "linux",
           "opensuse.leap || 1 2Gi |"),
    Family("opensuse-tumbleweed", "opensuse.tumbleweed", "OpenSUSE Tumbleweed", "linux",
           "opensuse.tumbleweed || 1 2Gi |"),
    Family("oracle", "oraclelinux", "Oracle Linux", "linux", "oraclelinux || 2 4Gi | efi"),
    Family("rhel", "linux,rhel", "Red Hat Enterprise Linux", "linux", """
        rhel.7              | 7                         | 1 1Gi   |
        rhel.7.desktop      | 7                         | 1 1Gi   | desktop
        rhel.8              | 8                         | 1 1.5Gi |
        rhel.8.desktop      | 8                         | 1 1.5Gi | desktop
        rhel.8.dpdk         | 8                         | 8 1.5Gi | dpdk
        rhel.9              | 9 (amd64)                 | 1 1.5Gi | io amd64 secureboot
        rhel.9.arm64        | 9 (arm64)                 | 1 1.5Gi | io arm64
        rhel.9.desktop      | 9 Desktop (amd64)         | 1 1.5Gi | io amd64 secureboot desktop
        rhel.9.dpdk         | 9 DPDK (amd64)            | 8 1.5Gi | io amd64 secureboot dpdk
        rhel.9.realtime     | 9 Realtime (amd64)        | 4 4Gi   | io amd64 secureboot realtime
        rhel.9.s390x        | 9 (s390x)                 | 1 1.5Gi | io s390x
        rhel.9.s390x.secex  | 9 (IBM Secure Execution)  | 1 1.5Gi | io s390x secex
        rhel.10             | 10 (amd64)                | 1 1.5Gi | io amd64 secureboot
        rhel.10.arm64       | 10 (arm64)                | 1 1.5Gi | io arm64
        rhel.10.s390x       | 10 (s390x)                | 1 1.5Gi | io s390x
        rhel.10.s390x.secex | 10 (IBM Secure Execution) | 1 1.5Gi | io s390x secex
    """),
    Family("sles", "sles", "SUSE Linux Enterprise Server", "linux", "sles || 1 2Gi |"),
    Family("ubuntu", "ubuntu", "Ubuntu", "linux", "ubuntu || 1 2Gi |"),
    Family("windows", "windows", "Microsoft Windows", "windows", """
        windows.10   | 10                  | 1 2Gi   | cores secureboot
        windows.11   | 11                  | 2 4Gi   | cores secureboot tpm
        windows.7    | 7                   | 1 2Gi   |
        windows.2k8  | Server 2008/2008 R2 | 1 512Mi | e1000
        windows.2k12 | Server 2012/2012 R2 | 1 512Mi |
        windows.2k16 | Server 2016         | 1 2Gi   | secureboot
        windows.2k19 | Server 2019         | 1 2Gi   | secureboot
        windows.2k22 | Server 2022         | 1 2Gi   | secureboot tpm
        windows.2k25 | Server 2025         | 1 2Gi   | secureboot tpm
    """, twins=True),
    Family("windows", "windows", "Microsoft Windows", "windows", """
        windows.xp   | XP                  | 1 128Mi | nohole
        windows.2k3  | Server 2003         | 1 256Mi | nohole rtl8139
    """),
)  # fmt: skip
_TAGGED = ("dpdk", "realtime")  # traits that are tags too


def preferences() -> list[Object]:
    """Return every preference of every family."""
    return [obj for family in FAMILIES for obj in _of(family)]


def _of(family: Family) -> Iterator[Object]:
    for row in family.rows.strip().splitlines():
        name, title, least, more = (cell.strip() for cell in row.split("|"))
        title = f"{family.title} {title}".strip()
        traits = [*family.traits.split(), *more.split()]
        yield _object(family, name, title, least, traits)
        if family.twins:
            virtio = (f"{name}.virtio", f"{title} (virtio)", least, [*traits, "virtio"])
            yield _object(family, *virtio)


def _object(family: Family, name: str, title: str, least: str, traits: list[str]) -> Object:
    spec: Object = {}
    for trait in traits:
        for part in TRAITS[trait]:
            _merge(spec, part)
    if least:
        cpus, memory = least.split()
        _merge(spec, {"requirements": {"cpu": {"guest": int(cpus)}, "memory": {"guest": memory}}})
    tags = ("hidden", "kubevirt", family.tags, *(each for each in _TAGGED if each in traits))
    kind = kinds.CLUSTER_PREFERENCE
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "labels": catalog.labels({"os-type": traits[0], **_requirement_labels(spec)}),
            "annotations": {
                "openshift.io/display-name": title,
                "openshift.io/provider-display-name": "livevirt",
                "iconClass": f"icon-{family.icon}",
                "tags": ",".join(tags),
            },
        },
        "spec": spec,
    }


def _requirement_labels(spec: Object) -> dict[str, str]:
    """Return the labels that repeat what a preference asks for."""
    found: dict[str, str] = {}
    if architecture := spec.get("preferredArchitecture"):
        found |= {"arch": architecture, "preferred-architecture": architecture}
    needs = spec.get("requirements") or {}
    for name in ("cpu", "memory"):
        if name in needs:
            found[f"required-{name}"] = str(needs[name]["guest"])
    if "architecture" in needs:
        found["required-architecture"] = needs["architecture"]
    return found


def _merge(into: Object, part: Object) -> None:
    for name, value in part.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = copy.deepcopy(value)  # what is merged into it later is not another row's
