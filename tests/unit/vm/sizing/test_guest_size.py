"""Why a guest does not have what is wanted, and what an instance's status says of that."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.vm.sizing import guest_size
from livevirt.vm.sizing.guest_size import ADVICE, Cause, CpuState, MemoryState

CPUS = {
    "all there": (CpuState(sockets=2, wanted=2), None),
    "offline": (CpuState(sockets=1, wanted=2, present=2), Cause.CPUS_OFFLINE),
    "not registered": (CpuState(sockets=1, wanted=2, present=1), Cause.CPUS_NOT_REGISTERED),
    "threads count": (
        CpuState(sockets=1, wanted=2, per_socket=2, present=3),
        Cause.CPUS_NOT_REGISTERED,
    ),
    "no agent": (CpuState(sockets=1, wanted=2, agent=False), Cause.CPUS_NOT_ACCEPTED),
    "kept": (CpuState(sockets=2, wanted=1, present=2), Cause.CPUS_IN_USE),
    "kept, emulated, no agent": (
        CpuState(sockets=2, wanted=1, agent=False, emulated=True),
        Cause.CPUS_NEED_AGENT,
    ),
    "kept, KVM, no agent": (CpuState(sockets=2, wanted=1, agent=False), Cause.CPUS_IN_USE),
}
MEMORY = {
    "all there": (MemoryState(used=6, plugged=6, wanted=6, boot=4), None),
    "offline": (MemoryState(used=4, plugged=6, wanted=6, boot=4), Cause.MEMORY_OFFLINE),
    "some of it offline, more to come": (
        MemoryState(used=4, plugged=5, wanted=6, boot=4),
        Cause.MEMORY_OFFLINE,
    ),
    "no driver": (MemoryState(used=4, plugged=4, wanted=6, boot=4), Cause.MEMORY_NO_DRIVER),
    "not all taken": (MemoryState(used=5, plugged=5, wanted=6, boot=4), Cause.MEMORY_NOT_TAKEN),
    "not all taken, no agent": (
        MemoryState(used=5, plugged=5, wanted=6, boot=4, agent=False),
        Cause.MEMORY_OFFLINE,
    ),
    "no balloon driver": (
        MemoryState(used=4, plugged=4, wanted=3, boot=4, statistics=False),
        Cause.MEMORY_NO_BALLOON_DRIVER,
    ),
    "a balloon that is not given back": (
        MemoryState(used=3, plugged=3, wanted=4, boot=4, ballooned=1),
        Cause.MEMORY_NO_BALLOON_DRIVER,
    ),
    "not given to the balloon": (
        MemoryState(used=4, plugged=4, wanted=3, boot=4),
        Cause.MEMORY_IN_USE,
    ),
    "kept": (MemoryState(used=6, plugged=6, wanted=4, boot=4), Cause.MEMORY_IN_USE),
    "kept for good": (
        MemoryState(used=6, plugged=6, wanted=4, boot=4, unmovable=True),
        Cause.MEMORY_UNMOVABLE,
    ),
    "kept offline": (MemoryState(used=4, plugged=6, wanted=4, boot=4), Cause.MEMORY_IN_USE),
}


@pytest.mark.parametrize(("state", "cause"), CPUS.values(), ids=CPUS)
def test_the_cause_for_cpus(state: CpuState, cause: Cause | None) -> None:
    assert state.cause is cause


@pytest.mark.parametrize(("state", "cause"), MEMORY.values(), ids=MEMORY)
def test_the_cause_for_memory(state: MemoryState, cause: Cause | None) -> None:
    assert state.cause is cause


def test_every_cause_has_advice() -> None:
    assert set(ADVICE) == set(Cause)
    assert set(guest_size.UNCONFIRMED) == {guest_size.NO_AGENT, guest_size.NO_COMMAND}


def a_vmi(**status: Any) -> Any:
    return {"status": status}


def test_a_status_without_a_statement_counts_as_confirmed() -> None:
    vmi = a_vmi(currentCPUTopology={"sockets": 1}, memory={"guestCurrent": "1Gi"})
    assert guest_size.cpu_confirmed(vmi)
    assert guest_size.memory_confirmed(vmi)
    assert guest_size.possible_sockets(vmi) is None


def test_a_status_gives_the_same_cause_as_the_guest() -> None:
    vmi = a_vmi(
        currentCPUTopology={"sockets": 1, "cores": 2, "threads": 1, "present": 4, "possible": 8},
        memory={
            "guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestPlugged": "1536Mi",
        },
    )  # fmt: skip
    assert guest_size.reported_cpus(vmi, 2).cause is Cause.CPUS_OFFLINE
    assert guest_size.reported_memory(vmi, 1536 << 20).cause is Cause.MEMORY_OFFLINE
    assert guest_size.possible_sockets(vmi) == 4
