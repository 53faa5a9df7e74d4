"""Fact sheet 4.4: how a number of vCPUs becomes sockets, cores and threads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.sizes import (
    ACROSS,
    ALIASES,
    TOPOLOGIES,
    TopologyPreference,
    Undivided,
    problem,
    spread,
    topology_preference,
)
from livevirt.vm.spec.sizes import Topology


def a_preference(topology: str | None = None, older: int = 0, **options: Any) -> Object:
    cpu: Object = {}
    if topology is not None:
        cpu["preferredCPUTopology"] = topology
    if options:
        cpu["spreadOptions"] = options
    return {"cpu": cpu, **({"preferSpreadSocketToCoreRatio": older} if older else {})}


SHAPES = {
    "4.4 no preference, then sockets": (None, 4, (4, 1, 1)),
    "4.4 a preference without a topology, then sockets": (a_preference(), 4, (4, 1, 1)),
    "4.4 sockets": (a_preference("sockets"), 4, (4, 1, 1)),
    "4.4 any": (a_preference("any"), 4, (4, 1, 1)),
    "4.4 cores": (a_preference("cores"), 4, (1, 4, 1)),
    "4.4 threads": (a_preference("threads"), 4, (1, 1, 4)),
    "1.4 preferCores is cores": (a_preference("preferCores"), 4, (1, 4, 1)),
    "1.4 preferThreads is threads": (a_preference("preferThreads"), 4, (1, 1, 4)),
    "1.4 preferSockets is sockets": (a_preference("preferSockets"), 4, (4, 1, 1)),
    "1.4 preferAny is any": (a_preference("preferAny"), 4, (4, 1, 1)),
    "1.4 preferSpread is spread": (a_preference("preferSpread"), 8, (4, 2, 1)),
    "4.4 spread over sockets and cores by two": (a_preference("spread"), 8, (4, 2, 1)),
    "4.4 spread by the ratio of its options": (a_preference("spread", ratio=4), 8, (2, 4, 1)),
    "4.4 spread by the older ratio": (a_preference("spread", older=4), 8, (2, 4, 1)),
    "4.4 the newer ratio wins": (a_preference("spread", older=4, ratio=8), 8, (1, 8, 1)),
    "4.4 spread over cores and threads":
        (a_preference("spread", across="CoresThreads"), 8, (1, 4, 2)),
    "4.4 spread over all":
        (a_preference("spread", across="SocketsCoresThreads"), 8, (2, 2, 2)),
    "4.4 spread over all by four":
        (a_preference("spread", across="SocketsCoresThreads", ratio=4), 8, (1, 4, 2)),
    "10.4 a single vCPU is spread by nothing": (a_preference("spread"), 1, (1, 1, 1)),
    "4.4 a single vCPU is one socket of cores, too": (a_preference("cores"), 1, (1, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("preference", "vcpus", "shape"), SHAPES.values(), ids=SHAPES)
def test_spread(preference: Object | None, vcpus: int, shape: tuple[int, int, int]) -> None:
    assert spread(vcpus, topology_preference(preference)) == Topology(*shape)


UNEVEN = {
    "4.4 sockets and cores": (
        a_preference("spread"), 3,
        "are not divisible by the Spec.PreferSpreadSocketToCoreRatio or"
        " Spec.CPU.PreferSpreadOptions.Ratio of 2 provided by the preference",
    ),
    "4.4 cores and threads": (
        a_preference("spread", across="CoresThreads"), 5,
        "are not divisible by the number of threads per core 2",
    ),
    "4.4 all, odd": (
        a_preference("spread", across="SocketsCoresThreads"), 5,
        "are not divisible by the number of threads per core 2 and"
        " Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of 2",
    ),
    "4.4 all, even but not by the ratio": (
        a_preference("spread", across="SocketsCoresThreads", ratio=3), 8,
        "are not divisible by the number of threads per core 2 and"
        " Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("preference", "vcpus", "text"), UNEVEN.values(), ids=UNEVEN)
def test_vcpus_that_do_not_come_out_even_are_refused(
    preference: Object, vcpus: int, text: str
) -> None:
    with pytest.raises(Undivided) as refusal:
        spread(vcpus, topology_preference(preference))
    assert str(refusal.value) == text


RATIO = "spec.cpu.spreadOptions.ratio"
PROBLEMS = {
    "1.4 an unknown topology": (
        a_preference("rings"),
        ("spec.cpu.preferredCPUTopology", "unknown preferredCPUTopology rings"),
    ),
    "1.4 an unknown across": (
        a_preference("spread", across="Rings"),
        ("spec.cpu.spreadOptions.across", "across Rings is not supported"),
    ),
    "1.4 across matters to spread only": (a_preference("cores", across="Rings"), None),
    "1.4 cores and threads by three": (
        a_preference("spread", across="CoresThreads", ratio=3),
        (RATIO, "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores"
         " and threads"),
    ),
    "1.4 cores and threads by the older ratio of three": (
        a_preference("spread", older=3, across="CoresThreads"),
        (RATIO, "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores"
         " and threads"),
    ),
    "10.5 a ratio of zero": (
        a_preference("spread", ratio=0),
        (RATIO, "a ratio of 0 divides nothing, it must be at least 1"),
    ),
    "10.5 a ratio of zero that nothing uses yet": (
        a_preference("cores", ratio=0),
        (RATIO, "a ratio of 0 divides nothing, it must be at least 1"),
    ),
    "an older ratio below zero": (
        a_preference("spread", older=-1),
        ("spec.preferSpreadSocketToCoreRatio",
         "a ratio of -1 divides nothing, it must be at least 1"),
    ),
    "an older ratio below zero, and nothing else": (
        {"preferSpreadSocketToCoreRatio": -1},
        ("spec.preferSpreadSocketToCoreRatio",
         "a ratio of -1 divides nothing, it must be at least 1"),
    ),
    "an older ratio that nothing uses": ({"preferSpreadSocketToCoreRatio": 4}, None),
    "nothing": (a_preference(), None),
    "1.4 an older name": (a_preference("preferSpread", ratio=4), None),
}  # fmt: skip


@pytest.mark.parametrize(("preference", "found"), PROBLEMS.values(), ids=PROBLEMS)
def test_problem(preference: Object, found: tuple[str, str] | None) -> None:
    assert problem(preference) == found


@given(
    st.integers(1, 512),
    st.sampled_from((*TOPOLOGIES, *ALIASES)),
    st.sampled_from(ACROSS),
    st.integers(1, 8),
)
def test_given_any_preference_without_problems_when_spread_then_no_vcpu_is_lost(
    vcpus: int, topology: str, across: str, ratio: int
) -> None:
    preference = a_preference(topology, across=across, ratio=ratio)
    if problem(preference) is not None:
        return
    wanted = topology_preference(preference)
    try:
        shape = spread(vcpus, wanted)
    except Undivided:
        per_core = 2 if wanted.across == "SocketsCoresThreads" else 1
        assert wanted.topology == "spread"
        assert vcpus % (ratio * per_core)
    else:
        assert shape.vcpus == vcpus
        idle = {"sockets", "cores", "threads"} - set(wanted.fields)
        assert all(getattr(shape, field) == 1 for field in idle)


def test_the_order_of_fields_is_that_of_messages() -> None:
    assert TopologyPreference("any").fields == ("cores", "sockets", "threads")
    assert TopologyPreference("spread", "CoresThreads").fields == ("cores", "threads")
