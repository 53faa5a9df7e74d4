"""What a guest may have now, and what its owner reads meanwhile."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from livevirt.kube.objects import conditions
from livevirt.node.sizing import (
    IDLE,
    Begun,
    Progress,
    Trouble,
    goal,
    progress,
    reached,
    size,
    size_status,
)
from livevirt.qemu.agent import Vcpu
from livevirt.qemu.guest_memory import GuestMemory, MemoryBlock
from livevirt.qemu.machine import Cpu, Machine, Memory, Thread
from livevirt.qemu.observe import CpuSlot, MemoryState, Observed
from livevirt.qemu.plan import MachineSnapshot
from livevirt.vm.sizing.reservation import Size, held

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MIB = 2**20
CPU, MEMORY = "HotVCPUChange", "HotMemoryChange"
MACHINE = Machine(
    name="web",
    uuid="00000000-0000-0000-0000-000000000001",
    accelerator="tcg",
    cpu=Cpu(model="max", max_sockets=4),
    memory=Memory(boot=256 * MIB, max=1024 * MIB),
    run_dir="/run/1",
    serial_log="/log",
)


def seen(
    sockets: int = 1, memory: int = 256, offered: int = 0, *, agent: bool = True
) -> MachineSnapshot:
    slots = tuple(CpuSlot(Thread(n, 0, 0), "max-x86_64-cpu", n < sockets) for n in range(4))
    state = MemoryState(256 * MIB, (memory - 256) * MIB, max(memory, offered) * MIB - 256 * MIB)
    vcpus = tuple(Vcpu(n, True, n > 0) for n in range(sockets))
    return MachineSnapshot(MACHINE, Observed("running", slots, state), vcpus if agent else None)


OFFLINE = (Vcpu(0, True, False), Vcpu(1, False, True), Vcpu(2, False, True))


def a_vmi(sockets: int = 1, guest: str = "256Mi", *changing: str, reason: str = "") -> Any:
    listed = [
        {"type": type_, "status": "True", "reason": reason or "WaitingForResize", "message": "m"}
        for type_ in changing
    ]
    domain = {"cpu": {"sockets": sockets, "maxSockets": 4}, "memory": {"guest": guest}}
    return {
        "metadata": {"name": "web"},
        "spec": {"domain": domain},
        "status": {"conditions": listed},
    }


def a_pod(sockets: int = 1, memory: int = 256, asks: int = 0, **status: Any) -> Any:
    """Return the pod of a guest of that size; `asks`: it is to have so many sockets."""
    in_force, wanted = (
        {
            "name": "compute",
            "resources": {"requests": held(a_vmi(), Size(n, memory * MIB)).requests},
        }
        for n in (sockets, asks or sockets)
    )
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [wanted]},
        "status": {"containerStatuses": [in_force], **status},
    }


@pytest.mark.parametrize(
    ("vmi", "pod", "now", "allowed"),
    [
        (a_vmi(3), a_pod(1), seen(), Size(1, 256 * MIB)),
        (a_vmi(3), a_pod(3), seen(), Size(3, 256 * MIB)),
        (a_vmi(1), a_pod(3), seen(3), Size(1, 256 * MIB)),
        (a_vmi(1, "512Mi"), a_pod(3, 256), seen(3), Size(1, 256 * MIB)),
        (a_vmi(1, "512Mi"), a_pod(3, 512), seen(3), Size(1, 512 * MIB)),
        (a_vmi(1, "512Mi"), a_pod(1, 256), seen(1, 256, 384), Size(1, 384 * MIB)),
    ],
    ids=[
        "growing waits for the pod",
        "growing, once the pod holds it",
        "shrinking waits for nobody",
        "shrinking one does not wait for growing the other",
        "both, once the pod holds both",
        "what was offered is not taken back",
    ],
)
def test_the_size_a_guest_may_have_now(
    vmi: Any, pod: Any, now: MachineSnapshot, allowed: Size
) -> None:
    assert goal(vmi, pod, now) == allowed


def told(vmi: Any, pod: Any, now: MachineSnapshot, stands: Progress, at: datetime) -> Any:
    """Return the conditions of an instance whose change is worth reporting."""
    return size_status(vmi, pod, now, stands, at)[0]


def reason(found: Any, type_: str) -> str | None:
    condition = conditions.find(found, type_)
    return condition["reason"] if condition else None


def test_a_change_is_over_when_the_guest_has_it_and_the_pod_holds_no_more() -> None:
    vmi = a_vmi(2, "256Mi", CPU)
    assert reason(told(vmi, a_pod(2), seen(2), IDLE, NOON), CPU) is None
    assert reason(told(vmi, a_pod(3), seen(2), IDLE, NOON), CPU) == "WaitingForResize"
    assert reason(told(vmi, a_pod(2), seen(1), IDLE, NOON), CPU) == "WaitingForResize"


def test_cpus_and_memory_end_each_in_their_own_time() -> None:
    vmi = a_vmi(2, "512Mi", CPU, MEMORY)
    now = seen(2, 384, 512)
    found = told(vmi, a_pod(2, 512), now, progress(Size(2, 512 * MIB), now), NOON)
    assert reason(found, CPU) is None
    assert reason(found, MEMORY) == "Plugging"


def test_memory_that_is_back_is_not_over_while_more_is_still_offered() -> None:
    vmi = a_vmi(1, "256Mi", MEMORY)
    found = told(vmi, a_pod(1, 512), seen(1, 256, 512), IDLE, NOON)
    assert reason(found, MEMORY) == "WaitingForResize"


# An agent took two of four sockets offline, and is gone: their devices are all there is to see.
FORGOTTEN = replace(MACHINE, cpu=Cpu(model="max", sockets=4, max_sockets=4))


def forgotten(memory: int) -> MachineSnapshot:
    return replace(seen(4, memory, 512, agent=False), machine=FORGOTTEN)


def test_memory_ends_also_where_the_cpus_are_others_and_these_are_told() -> None:
    vmi, now, kept = a_vmi(2, "512Mi", MEMORY), forgotten(512), Trouble(kept="none answers")
    stands = progress(Size(2, 512 * MIB), now, late=True, cpu=kept)
    found = told(vmi, a_pod(4, 512), now, stands, NOON)
    assert [each["type"] for each in found or ()] == [CPU]
    assert reason(found, CPU) == "GuestNotAccepting"


def test_cpus_that_are_others_are_told_when_nothing_else_is_left_to_tell() -> None:
    vmi = a_vmi(2, "512Mi", MEMORY)
    assert reason(told(vmi, a_pod(4, 512), forgotten(384), IDLE, NOON), CPU) is None
    found = told(vmi, a_pod(4, 512), forgotten(512), IDLE, NOON)
    assert [(each["type"], each["reason"]) for each in found or ()] == [(CPU, "Unplugging")]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"type": "PodResizePending", "reason": "Deferred", "message": "full"}, "Deferred"),
        ({"type": "PodResizePending", "reason": "Infeasible", "message": "big"}, "Infeasible"),
        ({"type": "PodResizeInProgress", "reason": "Error", "message": "e"}, "ResizeFailed"),
        ({"type": "PodResizeInProgress"}, "WaitingForResize"),
    ],
)
def test_a_resize_that_the_node_cannot_do_is_told(condition: Any, expected: str) -> None:
    pod = a_pod(1, asks=2, conditions=[{"status": "True", **condition}])
    assert reason(told(a_vmi(2, "256Mi", CPU), pod, seen(), IDLE, NOON), CPU) == expected


@pytest.mark.parametrize("asks", [2, 4], ids=["less", "more"])
def test_a_resize_that_asks_for_something_else_than_is_needed_now_is_not_told(asks: int) -> None:
    waiting = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    vmi = a_vmi(3, "256Mi", CPU)
    found = told(vmi, a_pod(1, asks=asks, conditions=[waiting]), seen(), IDLE, NOON)
    assert reason(found, CPU) == "WaitingForResize"


OVER_QUOTA = {"reason": "OverQuota", "message": "short"}


def test_what_keeps_the_controller_from_resizing_the_pod_is_reported_once() -> None:
    vmi = a_vmi(2, "256Mi", CPU)
    vmi["status"]["podResize"] = OVER_QUOTA
    found = told(vmi, a_pod(1), seen(), IDLE, NOON)
    assert reason(found, CPU) == "OverQuota"
    vmi["status"]["conditions"] = found
    assert told(vmi, a_pod(1), seen(), IDLE, NOON) is found
    del vmi["status"]["podResize"]
    assert reason(told(vmi, a_pod(1), seen(), IDLE, NOON), CPU) == "WaitingForResize"


def test_what_kept_the_pod_is_over_once_it_holds_the_size() -> None:
    vmi = a_vmi(2, "256Mi", CPU, reason="OverQuota")
    vmi["status"]["podResize"] = OVER_QUOTA
    stands = progress(Size(2, 256 * MIB), seen())
    assert reason(told(vmi, a_pod(2), seen(), stands, NOON), CPU) == "Plugging"


def test_what_kept_the_pod_from_an_earlier_change_is_not_reported() -> None:
    vmi = a_vmi(2)
    vmi["status"] |= {"podResize": {**OVER_QUOTA, "sizeRevision": {"cpu": 1}}}
    vmi["status"] |= {"sizeRevision": {"cpu": 2}, "observedSizeRevision": {"cpu": 1}}
    assert reason(told(vmi, a_pod(1), seen(), IDLE, NOON), CPU) == "WaitingForResize"


def test_a_change_that_failed_stays_so_while_its_pod_waits_for_the_next_attempt() -> None:
    vmi = a_vmi(2, "256Mi", CPU, reason="PlugFailed")
    assert told(vmi, a_pod(1), seen(), IDLE, NOON) is vmi["status"]["conditions"]


def asked(sockets: int, revision: int, observed: int | None = None) -> Any:
    """Return an instance that asks for so many sockets, and has not reported a change."""
    vmi = a_vmi(sockets)
    vmi["status"]["sizeRevision"] = {"cpu": revision}
    if observed is not None:
        vmi["status"]["observedSizeRevision"] = {"cpu": observed}
    return vmi


@pytest.mark.parametrize(
    ("sockets", "begun", "reported"),
    [
        (3, Begun.UNREPORTED, None),
        (3, Begun.IF_WAITING, "WaitingForResize"),
        (3, Begun.REPORTED, "WaitingForResize"),
        (1, Begun.IF_WAITING, None),  # its pod has the room, so there is progress to report soon
        (1, Begun.REPORTED, "Unplugging"),
    ],
)
def test_a_change_is_reported_when_it_waits_or_with_something_else(
    sockets: int, begun: Begun, reported: str | None
) -> None:
    vmi, now = asked(sockets, 2, 1), seen(2)
    vmi["status"]["currentCPUTopology"] = {"sockets": 2}
    listed, observed = size_status(vmi, a_pod(2), now, IDLE, NOON, begun)
    assert (reason(listed, CPU), observed) == (reported, {"cpu": 1})


def test_given_an_obstacle_then_also_a_change_that_has_just_begun_is_reported() -> None:
    vmi = asked(2, 1)
    vmi["status"]["podResize"] = {**OVER_QUOTA, "sizeRevision": {"cpu": 1}}
    listed, _ = size_status(vmi, a_pod(1), seen(), IDLE, NOON, Begun.UNREPORTED)
    assert reason(listed, CPU) == "OverQuota"


def test_a_change_that_guest_and_pod_have_is_observed() -> None:
    assert size_status(asked(2, 1), a_pod(2), seen(2), IDLE, NOON) == ([], {"cpu": 1})
    assert size_status(asked(2, 1), a_pod(3), seen(2), IDLE, NOON)[1] is None
    assert size_status(asked(2, 1), a_pod(2), seen(1), IDLE, NOON)[1] is None


def test_an_edit_that_was_taken_back_is_a_change_too() -> None:
    vmi = asked(1, 3, 1)  # two sockets were asked for meanwhile, and the pod has room for them
    assert size_status(vmi, a_pod(2), seen(1), IDLE, NOON)[1] == {"cpu": 1}
    assert size_status(vmi, a_pod(1), seen(1), IDLE, NOON)[1] == {"cpu": 3}


def test_a_guest_that_changes_by_itself_is_no_change_of_size() -> None:
    vmi = asked(2, 1, 1)
    assert size_status(vmi, a_pod(2), seen(1), IDLE, NOON) == ([], {"cpu": 1})


def test_without_a_change_under_way_nothing_is_said() -> None:
    vmi = a_vmi(2)
    assert told(vmi, a_pod(1), seen(), Progress(), NOON) == []


# ------------------------------------------------------------------ progress


@pytest.mark.parametrize(
    ("now", "late", "expected", "words"),
    [
        (seen(1), False, "Plugging", "uses 1 of 3 sockets"),
        (seen(4), False, "Unplugging", "still uses 4 sockets"),
        (replace(seen(3), vcpus=OFFLINE), True, "GuestNotAccepting", "udev"),
        (seen(1), True, "GuestNotAccepting", "KVM"),
        (seen(1, agent=False), True, "GuestNotAccepting", "qemu-guest-agent"),
        (seen(4), True, "GuestNotAccepting", "kernel log"),
        (forgotten(512), True, "GuestNotAccepting", "Start qemu-guest-agent"),
    ],
)
def test_where_cpus_stand(now: MachineSnapshot, late: bool, expected: str, words: str) -> None:
    stage = progress(Size(3, 256 * MIB), now, late=late).cpu
    assert stage is not None
    assert stage.reason == expected
    assert words in stage.message


@pytest.mark.parametrize(
    ("now", "late", "expected", "words"),
    [
        (seen(1, 256, 512), False, "Plugging", "256Mi of 512Mi"),
        (seen(1, 768), False, "Unplugging", "still has 768Mi"),
        (seen(1, 256, 512), True, "GuestNotAccepting", "virtio-mem"),
        (seen(1, 384, 512), True, "GuestNotAccepting", "auto_online_blocks"),
        (
            replace(seen(1, 512), blocks=GuestMemory()),
            True,
            "GuestNotAccepting",
            "memhp_default_state",
        ),
        (seen(1, 768), True, "GuestNotAccepting", "restart"),
    ],
)
def test_where_memory_stands(now: MachineSnapshot, late: bool, expected: str, words: str) -> None:
    stage = progress(Size(1, 512 * MIB), now, late=late).memory
    assert stage is not None
    assert stage.reason == expected
    assert words in stage.message


def test_what_qemu_refused_is_told_in_its_words() -> None:
    stage = progress(Size(2, 256 * MIB), seen(), cpu=Trouble(refused="no slot")).cpu
    assert stage is not None
    assert stage.reason == "PlugFailed"
    assert "no slot" in stage.message


def test_a_guest_that_has_it_all_has_no_stage() -> None:
    assert progress(Size(1, 256 * MIB), seen(), late=True) == IDLE
    assert reached(Size(1, 256 * MIB), seen())
    assert not reached(Size(1, 512 * MIB), seen(1, 256, 512))


# ---------------------------------------------------------------- plugged, and not used


def offline(memory: int) -> MachineSnapshot:
    """Return a guest that has taken memory and left its first block offline."""
    state = MemoryState(256 * MIB, (memory - 256) * MIB, (memory - 256) * MIB, 768 * MIB, 0)
    blocks = tuple(MemoryBlock(n, n > 0) for n in range((memory - 256) // 128))
    now = seen()
    return replace(
        now,
        observed=replace(now.observed, memory=state),
        blocks=GuestMemory(128 * MIB, blocks),
    )


def test_a_pod_holds_what_is_plugged_and_a_change_ends_when_it_is_used() -> None:
    now, wanted = offline(512), Size(1, 512 * MIB)
    assert size(now) == wanted
    assert not reached(wanted, now)
    vmi = a_vmi(1, "512Mi", MEMORY)
    found = told(vmi, a_pod(1, 512), now, progress(wanted, now), NOON)
    assert reason(found, MEMORY) == "Plugging"
    done = replace(now, blocks=GuestMemory(128 * MIB, (MemoryBlock(0, True), MemoryBlock(1, True))))
    assert reached(wanted, done)
    assert reason(told(vmi, a_pod(1, 512), done, IDLE, NOON), MEMORY) is None


def test_a_size_that_a_guest_lost_when_it_booted_again_is_reported() -> None:
    now, wanted = offline(512), Size(1, 512 * MIB)
    vmi = a_vmi(1, "512Mi")
    assert told(vmi, a_pod(1, 512), now, progress(wanted, now), NOON) == []
    found = told(vmi, a_pod(1, 512), now, progress(wanted, now, late=True), NOON)
    assert reason(found, MEMORY) == "GuestNotAccepting"


def test_with_kvm_a_cpu_that_is_plugged_and_offline_is_held_until_it_is_unplugged() -> None:
    kvm = replace(MACHINE, accelerator="kvm")
    now = replace(seen(2), machine=kvm, vcpus=(Vcpu(0, True, False), Vcpu(1, False, True)))
    assert size(now) == Size(2, 256 * MIB)
    for wanted in (1, 2):
        assert not reached(Size(wanted, 256 * MIB), now)
    assert size(replace(now, machine=MACHINE)) == Size(1, 256 * MIB)  # its device stays for good
    vmi = a_vmi(1, "256Mi", CPU)
    assert reason(told(vmi, a_pod(1), now, IDLE, NOON), CPU) is not None
