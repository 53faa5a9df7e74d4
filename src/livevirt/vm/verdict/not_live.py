"""Why the fields that are not live wait for a restart, one reason each."""

from __future__ import annotations

from collections.abc import Iterator, Set

from livevirt.kube.objects.schema import Type, definitions
from livevirt.vm.kinds import support
from livevirt.vm.spec.effective import SPEC
from livevirt.vm.verdict.comparison import GROUPS, Path

AT_START = "it is read when the guest starts"
IGNORED = "livevirt stores it and does not act on it"
_TOPOLOGY = "QEMU fixes the topology of the CPUs when it starts"
_CPU_MODEL = "the guest's kernel detects its CPU once, at boot"
_DEVICE_AT_START = "QEMU creates the device when it starts and cannot add or remove it later"
_FIRMWARE = "the firmware is read at boot"
_THREADS = "QEMU binds disks to I/O threads when it starts"

#: The reason of each field, and of all fields below it that have none of their own.
REASONS: dict[Path, str] = {
    ("architecture",): "a running guest cannot change the architecture of its CPU",
    ("hostname",): "the guest reads its host name at boot",
    ("networks",): "QEMU connects interfaces to networks when it starts",
    ("schedulerName",): "it is read when the guest starts",
    ("startStrategy",): "it is read when the guest starts",
    ("subdomain",): "the host name of a pod cannot be changed",
    ("topologySpreadConstraints",): "it is read when the guest starts",
    ("terminationGracePeriodSeconds",): "it is read when the guest starts",
    ("evictionStrategy",): "it is read when the guest starts",
    ("priorityClassName",): "it is read when the guest starts",
    ("domain", "clock"): "the guest reads its clock at boot",
    ("domain", "cpu", "cores"): _TOPOLOGY,
    ("domain", "cpu", "threads"): _TOPOLOGY,
    ("domain", "cpu", "guest"): "it is live where it changes only the number of sockets",
    ("domain", "cpu", "maxSockets"): "QEMU reserves room for hot-plugged CPUs when it starts",
    ("domain", "cpu", "model"): _CPU_MODEL,
    ("domain", "cpu", "features"): _CPU_MODEL,
    ("domain", "cpu", "dedicatedCpuPlacement"): "CPUs are pinned when the guest starts",
    ("domain", "cpu", "isolateEmulatorThread"): "CPUs are pinned when the guest starts",
    ("domain", "cpu", "numa"): "QEMU fixes the NUMA nodes of the guest when it starts",
    ("domain", "features"): "the guest detects the features of its machine at boot",
    ("domain", "firmware"): _FIRMWARE,
    ("domain", "ioThreads"): _THREADS,
    ("domain", "ioThreadsPolicy"): _THREADS,
    ("domain", "machine"): "a running guest cannot change its machine type",
    ("domain", "memory", "hugepages"): "QEMU allocates the guest's memory when it starts",
    ("domain", "memory", "maxGuest"): "QEMU reserves room for hot-plugged memory when it starts",
    ("domain", "rebootPolicy"): AT_START,
    ("domain", "resources"): "the resources of the pod follow the guest's size until a restart",
    ("domain", "devices", "autoattachGraphicsDevice"): _DEVICE_AT_START,
    ("domain", "devices", "autoattachPodInterface"): "it is read when the VM starts",
    ("domain", "devices", "autoattachSerialConsole"): _DEVICE_AT_START,
    ("domain", "devices", "clientPassthrough"): _DEVICE_AT_START,
    ("domain", "devices", "logSerialConsole"): "QEMU opens the log of the console when it starts",
    ("domain", "devices", "interfaces"): "network interfaces are not hot-plugged",
}


def reason(path: Path) -> str:
    """Return why a change of a field waits for a restart."""
    if not support.is_acted_on(".".join(path)):
        return IGNORED
    ways = (REASONS.get(path[:end]) for end in range(len(path), 0, -1))
    return next(filter(None, ways), AT_START)


def rows(live: Set[Path]) -> Iterator[tuple[Path, str]]:
    """Yield every field of an instance's spec that is not among the live ones, and its reason."""
    for path in paths(definitions()[SPEC]):
        if path not in live:
            yield path, reason(path)


def paths(type_: Type, above: Path = ()) -> Iterator[Path]:
    """Yield the fields of a type; what only groups fields is replaced by those."""
    for name, field in type_.fields.items():
        path = (*above, name)
        if path in GROUPS and field.type.form == "object":
            yield from paths(field.type, path)
        else:
            yield path
