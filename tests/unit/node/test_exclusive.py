from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.node.exclusive import Asked, Cpus, HostCpu, NoCpus, asked, choose, deal, layout, pool


def one_node(count: int) -> list[HostCpu]:
    return [HostCpu(0, n, n) for n in range(count)]


TWO_NODES = [HostCpu(n // 4, n - n % 2, n) for n in range(8)]  # of two cores with two threads


# ---------------------------------------------------------------- which


def test_one_cpu_is_never_given_away() -> None:
    assert [cpu.number for cpu in pool(one_node(2))] == [1]
    assert pool(one_node(1)) == []
    assert [cpu.number for cpu in pool([HostCpu(1, 2, 2), HostCpu(0, 7, 7)])] == [7]


CHOICES: dict[str, tuple[list[int], int, tuple[int, ...]]] = {
    "the fullest node that has them": ([1, 2, 3, 4, 5, 6, 7], 2, (1, 2)),
    "an empty node for many": ([1, 2, 3, 4, 5, 6, 7], 4, (4, 5, 6, 7)),
    "threads of one core are neighbours": ([2, 3, 4, 5, 6, 7], 2, (2, 3)),
    "over two nodes only if none has them": ([2, 3, 5, 6, 7], 4, (5, 6, 7, 2)),
}


@pytest.mark.parametrize(("free", "count", "numbers"), CHOICES.values(), ids=CHOICES)
def test_choice(free: list[int], count: int, numbers: tuple[int, ...]) -> None:
    assert choose([TWO_NODES[n] for n in free], count) == numbers


def test_too_few_are_none() -> None:
    with pytest.raises(NoCpus, match="2 wanted, 1 left"):
        choose(one_node(1), 2)


# ---------------------------------------------------------------- for what


def a_vmi(status: Any = None, **domain: Any) -> Any:
    return {"spec": {"domain": domain}, "status": status or {}}


def test_a_guest_that_shares_asks_for_none() -> None:
    assert asked(a_vmi(cpu={"cores": 2})) is None


def test_vcpus_supplemental_threads_and_an_isolated_emulator_ask_for_one_each() -> None:
    cpu = {"sockets": 2, "cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
    threads = {"supplementalPoolThreadCount": 2}
    vmi = a_vmi(cpu=cpu, ioThreadsPolicy="supplementalPool", ioThreads=threads)
    assert asked(vmi) == Asked(4, ("io0", "io1"), isolated=True)
    assert Asked(4, ("io0", "io1"), isolated=True).count == 7


def test_an_edit_before_the_boot_asks_for_nothing_more() -> None:
    status = {"currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1}}
    cpu = {"sockets": 3, "cores": 1, "dedicatedCpuPlacement": True}
    assert asked(a_vmi(status, cpu=cpu)) == Asked(1)


def test_each_vcpu_then_each_io_thread_then_the_emulator_has_its_cpu() -> None:
    dealt = deal((3, 4, 5, 6), Asked(2, ("io0",), isolated=True))
    assert (dealt.vcpus, dealt.io_threads, dealt.emulator) == ((3, 4), {"io0": 5}, (6,))


def test_what_a_pod_has_beyond_its_guest_is_for_the_vcpus_that_come_later() -> None:
    assert deal((3, 4), Asked(1)).vcpus == (3, 4)
    dealt = deal((3, 4, 5, 6), Asked(1, ("io0",), isolated=True))
    assert (dealt.vcpus, dealt.io_threads, dealt.emulator) == ((3, 4), {"io0": 5}, (6,))


def test_an_emulator_that_is_not_isolated_runs_where_its_guest_does() -> None:
    assert deal((3, 4), Asked(2)).emulator == (3, 4)


def test_a_pod_with_less_than_its_guest_needs_is_refused() -> None:
    with pytest.raises(NoCpus, match="needs 3 dedicated CPUs and its pod has 2"):
        deal((3, 4), Asked(2, isolated=True))


def test_a_guest_that_was_not_asked_about_is_not_pinned() -> None:
    assert deal((3, 4), None).vcpus == ()


# ---------------------------------------------------------------- where they are


def test_the_kernel_tells_nodes_and_cores(tmp_path: Path) -> None:
    for node, cpus in ((0, "0-1"), (1, "2-3")):
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(f"{cpus}\n")
    folder = tmp_path / "cpu/cpu3/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text("2-3\n")
    assert layout([1, 3], tmp_path) == [HostCpu(0, 1, 1), HostCpu(1, 2, 3)]


# ---------------------------------------------------------------- in force


class FakeGroup:
    """A cpuset that knows what it was last set to; it checks nothing, as the kernel would not."""

    def __init__(self, *, has_cpuset: bool = True, there: bool = True) -> None:
        self.has_cpuset, self.there = has_cpuset, there
        self.cpus: tuple[int, ...] = ()

    def set_cpus(self, cpus: Sequence[int]) -> None:
        if not self.there:
            raise FileNotFoundError("cpuset.cpus")
        if not self.has_cpuset:
            raise OSError("no cpuset")
        self.cpus = tuple(cpus)


def test_given_a_cpu_is_taken_then_pods_that_run_leave_it_before_its_owner_comes() -> None:
    cpus, first, second = Cpus(one_node(3)), FakeGroup(), FakeGroup()
    cpus.confine("shared", first)
    assert first.cpus == (0, 1, 2)
    assert cpus.take("own", 1) == (1,)
    cpus.confine("own", second)
    assert (first.cpus, second.cpus) == ((0, 2), (1,))
    cpus.release("own")
    assert first.cpus == (0, 1, 2)


def test_given_a_pod_cannot_be_kept_off_then_nobody_has_a_cpu_alone() -> None:
    cpus, own = Cpus(one_node(2)), FakeGroup()
    cpus.confine("old", FakeGroup(has_cpuset=False))
    cpus.take("own", 1)
    with pytest.raises(OSError, match="no cpuset"):
        cpus.confine("own", own)
    assert own.cpus == (), "it must not run"


def test_given_no_cpusets_then_pods_that_share_run_all_the_same() -> None:
    Cpus(one_node(2)).confine("shared", FakeGroup(has_cpuset=False))


def test_given_another_pod_has_just_ended_then_its_missing_cpuset_is_no_hindrance() -> None:
    cpus, own = Cpus(one_node(2)), FakeGroup()
    cpus.adopt("gone", (), FakeGroup(there=False))
    cpus.take("own", 1)
    cpus.confine("own", own)
    assert own.cpus == (1,)


def test_asking_twice_gives_the_same() -> None:
    cpus = Cpus(one_node(4))
    assert cpus.take("a", 2) == cpus.take("a", 2) == (1, 2)


class Machine:
    """What is left of pods when the agent is killed: intents and cpusets."""

    def __init__(self, layout: list[HostCpu]) -> None:
        self.layout = layout
        self.intents: dict[str, tuple[int, ...]] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.cpus = Cpus(layout)

    def start(self, uid: str, count: int, *, killed_before: str = "") -> None:
        """Start a pod, or as much of it as happens before the agent is killed."""
        if uid in self.groups:
            return
        try:
            own = self.cpus.take(uid, count) if count else ()
        except NoCpus:
            return
        if killed_before == "intent":
            return self.restart()
        self.intents[uid] = own
        if killed_before == "cpuset":
            return self.restart()
        self.cpus.confine(uid, self.groups.setdefault(uid, FakeGroup()))
        return None

    def stop(self, uid: str) -> None:
        """End a pod: its cpuset goes with its processes, then its files go."""
        self.groups.pop(uid, None)
        self.cpus.release(uid)
        self.intents.pop(uid, None)

    def restart(self) -> None:
        """Read everything back, then bring up what was intended."""
        self.cpus = Cpus(self.layout)
        for uid, own in self.intents.items():
            self.cpus.adopt(uid, own, self.groups.get(uid, FakeGroup(there=False)))
        for uid in self.intents.keys() - self.groups.keys():
            self.cpus.confine(uid, self.groups.setdefault(uid, FakeGroup()))

    def check(self) -> None:
        for uid, own in self.intents.items():
            if own:
                assert self.groups[uid].cpus == own
            for other, group in self.groups.items():
                assert other == uid or not set(own) & set(group.cpus)
        for group in self.groups.values():
            assert group.cpus, "a pod without a CPU does not run"


pods = st.sampled_from([f"pod{n}" for n in range(5)])
moments = st.sampled_from(["", "", "intent", "cpuset"])
stories = st.lists(
    st.one_of(
        st.tuples(st.just("start"), pods, st.integers(0, 3), moments),
        st.tuples(st.just("stop"), pods),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@given(st.sampled_from([one_node(2), one_node(5), TWO_NODES]), stories)
def test_no_two_pods_ever_share_a_cpu_that_is_one_s_own(
    layout: list[HostCpu], story: list[tuple[Any, ...]]
) -> None:
    machine = Machine(layout)
    for step in story:
        match step:
            case "start", uid, count, moment:
                machine.start(uid, count, killed_before=moment)
            case "stop", uid:
                machine.stop(uid)
            case _:
                machine.restart()
        machine.check()
    for uid in list(machine.intents):
        machine.stop(uid)
    assert machine.cpus.shared == tuple(sorted(cpu.number for cpu in layout))
