"""How a number of vCPUs becomes sockets, cores and threads: what a preference wants of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from livevirt.kube.objects.request import Object
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


class Wish(msgspec.Struct, frozen=True):
    """What a preference says about the topology, defaults filled in."""

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


_NO_WISH = Wish()


def wish(preference: Object | None) -> Wish:
    """Return what the spec of a preference wants; what `problem` finds in it counts as unsaid."""
    cpu = (preference or {}).get("cpu")
    if preference is None or not cpu:
        return _NO_WISH
    named = cpu.get("preferredCPUTopology") or SOCKETS
    topology = ALIASES.get(named, named)
    if topology != SPREAD:
        return Wish(topology)
    across = (cpu.get("spreadOptions") or {}).get("across") or SOCKETS_CORES
    return Wish(topology, across, _ratio(preference))


def problem(preference: Object) -> tuple[str, str] | None:
    """Return the field of a preference that no topology follows from, and why; None if all do."""
    found = wish(preference)
    if found is _NO_WISH and not preference.get("preferSpreadSocketToCoreRatio"):
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


def spread(vcpus: int, wanted: Wish) -> Topology:
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
