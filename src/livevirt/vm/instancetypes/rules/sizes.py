"""What an instance type puts into a template: vCPUs as a topology, memory and the rest."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.conflicts import CPU, MEMORY, TOPOLOGY, cpu_settings
from livevirt.vm.spec.sizes import Topology

SOCKETS, CORES, THREADS, SPREAD, ANY = "sockets", "cores", "threads", "spread", "any"
SOCKETS_CORES, CORES_THREADS = "SocketsCores", "CoresThreads"
SOCKETS_CORES_THREADS = "SocketsCoresThreads"
TOPOLOGIES = (SOCKETS, CORES, THREADS, SPREAD, ANY)
#: Older names of the same.
ALIASES: Mapping[str, str] = {
    "preferSockets": SOCKETS, "preferCores": CORES, "preferThreads": THREADS,
    "preferSpread": SPREAD, "preferAny": ANY,
}  # fmt: skip
ACROSS = (SOCKETS_CORES, CORES_THREADS, SOCKETS_CORES_THREADS)
DEFAULT_RATIO = 2
THREADS_PER_CORE = 2

_RATIO = "spec.cpu.spreadOptions.ratio"
_ONLY_TWO = (
    "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"
)


class Undivided(ValueError):
    """The vCPUs cannot be spread so; the message has room for who provides them."""


class TopologyPreference(msgspec.Struct, frozen=True):
    """The topology that a preference asks for, defaults filled in."""

    topology: str = SOCKETS
    across: str = SOCKETS_CORES
    ratio: int = DEFAULT_RATIO

    @property
    def fields(self) -> tuple[str, ...]:
        """Which of cores, sockets and threads the vCPUs may be in, in the order of messages."""
        if self.topology == ANY:
            return (CORES, SOCKETS, THREADS)
        if self.topology != SPREAD:
            return (self.topology,)
        return {
            SOCKETS_CORES: (CORES, SOCKETS),
            CORES_THREADS: (CORES, THREADS),
            SOCKETS_CORES_THREADS: (CORES, SOCKETS, THREADS),
        }[self.across]


_NO_PREFERENCE = TopologyPreference()


def topology_preference(preference: Object | None) -> TopologyPreference:
    """Return what the spec of a preference wants; what `problem` finds in it counts as unsaid."""
    cpu = (preference or {}).get("cpu")
    if preference is None or not cpu:
        return _NO_PREFERENCE
    named = cpu.get("preferredCPUTopology") or SOCKETS
    topology = ALIASES.get(named, named)
    if topology != SPREAD:
        return TopologyPreference(topology)
    across = (cpu.get("spreadOptions") or {}).get("across") or SOCKETS_CORES
    return TopologyPreference(topology, across, _ratio(preference))


def problem(preference: Object) -> tuple[str, str] | None:
    """Return the field of a preference that no topology follows from, and why; None if all do."""
    found = topology_preference(preference)
    if found is _NO_PREFERENCE and not preference.get("preferSpreadSocketToCoreRatio"):
        return None
    options = (preference.get("cpu") or {}).get("spreadOptions") or {}
    if found.topology not in TOPOLOGIES:
        return "spec.cpu.preferredCPUTopology", f"unknown preferredCPUTopology {found.topology}"
    given, older = options.get("ratio"), preference.get("preferSpreadSocketToCoreRatio") or 0
    if given is not None and given < 1:
        return _RATIO, f"a ratio of {given} divides nothing, it must be at least 1"
    if older < 0:
        field = "spec.preferSpreadSocketToCoreRatio"
        return field, f"a ratio of {older} divides nothing, it must be at least 1"
    if found.topology != SPREAD:
        return None
    if found.across not in ACROSS:
        return "spec.cpu.spreadOptions.across", f"across {found.across} is not supported"
    if found.across == CORES_THREADS and found.ratio != THREADS_PER_CORE:
        return _RATIO, _ONLY_TWO
    return None


def spread(vcpus: int, wanted: TopologyPreference) -> Topology:
    """Return the topology of so many vCPUs; raises Undivided if they do not come out even.

    A single one needs no spreading, whatever is wanted.
    """
    if vcpus == 1:
        return Topology(1)
    ratio = wanted.ratio
    match wanted.topology, wanted.across:
        case "cores", _:
            return Topology(1, cores=vcpus)
        case "threads", _:
            return Topology(1, threads=vcpus)
        case "spread", "SocketsCores":
            if vcpus % ratio:
                raise Undivided(
                    "are not divisible by the Spec.PreferSpreadSocketToCoreRatio or"
                    f" Spec.CPU.PreferSpreadOptions.Ratio of {ratio} provided by the preference"
                )
            return Topology(vcpus // ratio, cores=ratio)
        case "spread", "CoresThreads":
            if vcpus % ratio:
                raise Undivided(f"are not divisible by the number of threads per core {ratio}")
            return Topology(1, cores=vcpus // ratio, threads=ratio)
        case "spread", _:
            if vcpus % (THREADS_PER_CORE * ratio):
                raise Undivided(
                    f"are not divisible by the number of threads per core {THREADS_PER_CORE} and"
                    " Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio"
                    f" of {ratio}"
                )
            sockets = vcpus // THREADS_PER_CORE // ratio
            return Topology(sockets, cores=ratio, threads=THREADS_PER_CORE)
        case _:
            return Topology(vcpus)


def _ratio(preference: Object) -> int:
    options = (preference.get("cpu") or {}).get("spreadOptions") or {}
    given = options.get("ratio")
    if given is None:
        given = preference.get("preferSpreadSocketToCoreRatio") or DEFAULT_RATIO
    return int(given)


_TYPE_VCPUS = "instancetype.spec.cpu.guest"  # the field KubeVirt names for those of the type


def apply(spec: Object, instancetype: Object) -> None:
    """Put an instance type's fields into a spec, in place; vCPUs are left to `set_topology`."""
    domain = spec["domain"]
    for name in ("nodeSelector", "schedulerName"):
        if instancetype.get(name):
            spec[name] = instancetype[name]
    _apply_cpu(domain, instancetype.get("cpu") or {})
    _apply_memory(domain, instancetype.get("memory") or {})
    for name in ("ioThreadsPolicy", "launchSecurity"):
        if instancetype.get(name) is not None:
            domain[name] = instancetype[name]
    if instancetype.get("ioThreads") is not None:
        domain["ioThreads"] = {**(domain.get("ioThreads") or {}), **instancetype["ioThreads"]}
    for name in ("gpus", "hostDevices"):
        if instancetype.get(name):
            # Copied, because preferences fill in what they leave open.
            domain["devices"][name] = [dict(device) for device in instancetype[name]]


def exclusive_errors(spec: Object) -> list[FieldError]:
    """List topology that a template gives beside a number of vCPUs."""
    cpu = (spec.get("domain") or {}).get("cpu") or {}
    guest = cpu.get("guest")
    if guest is None:
        return []
    found = [
        FieldError(
            f"{CPU}.guest",
            "FieldValueInvalid",
            f"{CPU}.guest and {CPU}.{name} are mutually exclusive",
        )
        for name in TOPOLOGY
        if cpu.get(name)
    ]
    if guest < 1:
        message = f"{CPU}.guest '{guest}': must be greater than 0"
        found.append(FieldError(f"{CPU}.guest", "FieldValueInvalid", message))
    return found


def missing_errors(spec: Object, instancetype: Object, name: str) -> list[FieldError]:
    """List the sizes that neither the instance type nor the template gives.

    Asked before anything is defaulted: a guest would start with one CPU and a huge page of memory.
    """
    found = []
    domain = spec.get("domain") or {}
    for part, what, path in (("cpu", "vCPUs", CPU), ("memory", "memory", MEMORY)):
        owned, given = instancetype.get(part) or {}, domain.get(part) or {}
        if owned.get("guest") is None and given.get("guest") is None:
            message = f"instance type {name} does not provide {what}, {path}.guest is required"
            found.append(FieldError(f"{path}.guest", "FieldValueRequired", message))
    return found


def set_topology(
    spec: Object, instancetype: Object | None, wanted: TopologyPreference
) -> list[FieldError]:
    """Turn a number of vCPUs into a topology, in place; list why it cannot be."""
    cpu = spec["domain"].get("cpu") or {}
    owned = ((instancetype or {}).get("cpu") or {}).get("guest")
    vcpus = owned if owned is not None else cpu.get("guest")
    if vcpus is None:
        return []
    try:
        chosen = spread(vcpus, wanted)
    except Undivided as error:
        field, whose = (
            (_TYPE_VCPUS, "the instance type")
            if owned is not None
            else (f"{CPU}.guest", "the VirtualMachine")
        )
        message = f"{vcpus} vCPUs provided by {whose} {error}"
        return [FieldError(field, "FieldValueInvalid", message)]
    cpu.pop("guest", None)
    cpu.update(sockets=chosen.sockets, cores=chosen.cores, threads=chosen.threads)
    spec["domain"]["cpu"] = cpu
    return []


def _apply_cpu(domain: Object, owned: Object) -> None:
    if settings := cpu_settings(owned):
        domain["cpu"] = {**(domain.get("cpu") or {}), **settings}


def _apply_memory(domain: Object, owned: Object) -> None:
    memory = domain.get("memory") or {}
    for name in ("guest", "hugepages", "maxGuest"):
        if owned.get(name) is not None:
            memory[name] = owned[name]
    if memory:
        domain["memory"] = memory
    percent = owned.get("overcommitPercent") or 0
    if percent > 0 and memory.get("guest") is not None:
        resources = domain["resources"] = {**(domain.get("resources") or {})}
        amount = str(overcommitted(parse(memory["guest"]), percent))
        resources["requests"] = {**(resources.get("requests") or {}), "memory": amount}


def overcommitted(guest: Quantity, percent: int) -> Quantity:
    """Return what is asked of the node for so much memory less a percentage.

    KubeVirt computes it in single precision; so do we, to the byte, or a pod would differ.
    """
    share = _single(1 - _single(_single(float(percent)) / 100))
    return Quantity.from_int(int(_single(_single(float(guest.value())) * share)), guest.format)


def _single(number: float) -> float:
    """Return the nearest number of single precision."""
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found
