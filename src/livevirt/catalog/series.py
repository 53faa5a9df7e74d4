"""The instance types: seven series, each in sizes of its own and, but for one, custom ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from livevirt import catalog
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

CUSTOM = "custom"  # the size whose vCPUs and memory the VM gives

# Size, vCPUs and memory.
_USUAL = """
    nano 1 512Mi    micro 1 1Gi     small 1 2Gi      medium 1 4Gi     2xmedium 2 4Gi
    large 2 8Gi     xlarge 4 16Gi   2xlarge 8 32Gi   4xlarge 16 64Gi  8xlarge 32 128Gi
"""
_COMPUTE = """
    medium 1 2Gi    large 2 4Gi     xlarge 4 8Gi
    2xlarge 8 16Gi  4xlarge 16 32Gi 8xlarge 32 64Gi
"""
_MEMORY = "large 2 16Gi  xlarge 4 32Gi  2xlarge 8 64Gi  4xlarge 16 128Gi  8xlarge 32 256Gi"
_NETWORK = """
    medium 4 4Gi    large 4 8Gi     xlarge 8 16Gi
    2xlarge 16 32Gi 4xlarge 32 64Gi 8xlarge 64 128Gi
"""

#: What the container runtime CRI-O must leave alone on the CPUs of such a guest.
_UNDISTURBED = {
    f"{setting}.crio.io": "disable"
    for setting in ("cpu-load-balancing", "cpu-quota", "irq-load-balancing")
}


@dataclass(frozen=True, slots=True)
class Series:
    """One class of instance types: what all its sizes have in common."""

    name: str
    class_: str
    title: str
    icon: str
    about: str
    sizes: str
    without: tuple[str, ...] = ()  # sizes of the table that it has not
    pages: tuple[str, ...] = ()  # page sizes; each beyond the first doubles the sizes
    dedicated: bool = False  # dedicated CPUs, one more for the emulator
    numa: bool = False
    realtime: bool = False
    fixed: bool = False  # never more sockets than it starts with
    overcommit: int = 0  # percent
    io_threads: str = ""
    undisturbed: bool = False
    custom: bool = True


SERIES = (
    Series(
        "u1", "general.purpose", "General Purpose", "pficon-server-group",
        "Universal: a share of the node's CPUs and all the memory it names, nothing else. Good for"
        " most guests, and each size can become another while the guest runs.",
        _USUAL, custom=False,
    ),
    Series(
        "o1", "overcommitted", "Overcommitted", "pficon-virtual-machine",
        "Overcommitted: the node reserves only half of the memory the guest sees, so more guests"
        " fit. For guests that rarely use all of theirs at the same time.",
        _USUAL, without=("2xmedium",), overcommit=50,
    ),
    Series(
        "cx1", "compute.exclusive", "Compute Exclusive", "pficon-registry",
        "Compute exclusive: dedicated CPUs, memory in huge pages and the node's own NUMA"
        " layout. One CPU more keeps the emulator off the guest's, and disks have threads of their"
        " own.",
        _COMPUTE, pages=("2Mi", "1Gi"), dedicated=True, numa=True, fixed=True, io_threads="auto",
    ),
    Series(
        "m1", "memory.intensive", "Memory Intensive", "fa-memory",
        "Memory: eight gigabytes for each vCPU, in huge pages, for databases and caches.",
        _MEMORY, pages=("2Mi", "1Gi"),
    ),
    Series(
        "n1", "network", "Network", "pficon-network",
        "Network: dedicated CPUs, which the scheduler and interrupts leave alone, and"
        " memory in huge pages. For guests that forward packets, as with DPDK.",
        _NETWORK, pages=("1Gi",), dedicated=True, undisturbed=True,
    ),
    Series(
        "rt1", "realtime", "Realtime", "pficon-server-group",
        "Realtime: exclusive, undisturbed CPUs with real-time priority, huge pages and the node's"
        " NUMA layout, for guests that must answer in time.",
        _USUAL, without=("nano", "2xmedium"), pages=("1Gi",), dedicated=True, numa=True,
        realtime=True, undisturbed=True,
    ),
    Series(
        "d1", "dedicated.vcpu", "Dedicated vCPU", "pficon-server-group",
        "Dedicated: the sizes of the universal series, each vCPU on a dedicated CPU, and threads"
        " of their own for disks.",
        _USUAL, dedicated=True, io_threads="auto",
    ),
)  # fmt: skip


def instancetypes() -> list[Object]:
    """Return every instance type of every series."""
    return [obj for series in SERIES for obj in _of(series)]


def _of(series: Series) -> Iterator[Object]:
    fields = series.sizes.split()
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    for size, cpus, memory in rows:
        if size in series.without:
            continue
        for named, page in _paged(series, size):
            yield _sized(series, named, int(cpus), memory, page)
    if series.custom:
        for named, page in _paged(series, CUSTOM):
            yield _custom(series, named, page)


def _paged(series: Series, size: str) -> Iterator[tuple[str, str]]:
    """Yield a size under the name it has with each page size of a series."""
    for number, page in enumerate(series.pages or ("",)):
        yield size if number == 0 else f"{size}{page.lower()}", page


def _sized(series: Series, size: str, cpus: int, memory: str, page: str) -> Object:
    spec = _spec(series, page)
    spec["cpu"]["guest"] = cpus
    spec["memory"]["guest"] = memory
    if series.fixed:
        spec["cpu"]["maxSockets"] = cpus
    return _object(series, size, spec, {"cpu": str(cpus), "memory": memory, "hugepages": page})


def _custom(series: Series, size: str, page: str) -> Object:
    paged = "true" if page else ""
    labels = {"cpu": CUSTOM, "memory": CUSTOM, "hugepages": paged}
    return _object(series, size, _spec(series, page), labels)


def _spec(series: Series, page: str) -> Object:
    """Return the spec all sizes share; vCPUs and memory are still to come."""
    cpu: Object = {}
    memory: Object = {}
    spec: Object = {"cpu": cpu, "memory": memory}
    if series.dedicated:
        cpu |= {"dedicatedCPUPlacement": True, "isolateEmulatorThread": True}
    if series.numa:
        cpu["numa"] = {"guestMappingPassthrough": {}}
    if series.realtime:
        cpu["realtime"] = {}
    if page:
        memory["hugepages"] = {"pageSize": page}
    if series.overcommit:
        memory["overcommitPercent"] = series.overcommit
    if series.io_threads:
        spec["ioThreadsPolicy"] = series.io_threads
    if series.undisturbed:
        spec["annotations"] = dict(_UNDISTURBED)
    return spec


def _object(series: Series, size: str, spec: Object, sized: dict[str, str]) -> Object:
    marks = {
        "class": series.class_, "icon-pf": series.icon, "size": size, "version": "1", **sized,
        "dedicatedCPUPlacement": "true" if series.dedicated else "",
        "isolateEmulatorThread": "true" if series.dedicated else "",
        "numa": "true" if series.numa else "",
        "realtime": "true" if series.realtime else "",
    }  # fmt: skip
    kind = kinds.CLUSTER_INSTANCETYPE
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": f"{series.name}.{size}",
            "labels": catalog.labels({key: value for key, value in marks.items() if value}),
            "annotations": {
                f"{catalog.PREFIX}displayName": series.title,
                f"{catalog.PREFIX}description": series.about,
            },
        },
        "spec": spec,
    }
