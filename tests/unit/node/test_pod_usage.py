"""What pods use: from cgroups of either version, or from the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from livevirt.kube.control.cache import Key
from livevirt.kube.objects.node_share import Use
from livevirt.node import pod_usage
from livevirt.node.intent import CgroupDir
from livevirt.node.local import Local
from livevirt.node.pod_usage import Counted, Look, Pod, PodUsage

WEB, DB = ("node01", Key("team", "web")), ("node01", Key("team", "db"))
BOTH = ("cpu", "memory")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_cgroup(path: Path, version: int, controllers: Iterable[str], **files: str) -> CgroupDir:
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name.replace("__", ".")).write_text(content)
    return CgroupDir(str(path), tuple(controllers), version)


def test_given_version_2_then_both_are_read_there(tmp_path: Path) -> None:
    folder = a_cgroup(
        tmp_path, 2, BOTH, cpu__stat="usage_usec 1500\nuser_usec 1000\n",
        memory__current="5000\n", memory__stat="anon 10\ninactive_file 2000\n",
    )  # fmt: skip
    assert pod_usage.count(Pod(WEB[1], "n", (folder,), 0)) == Counted(1_500_000, 3000)


def test_given_version_1_then_both_are_read_there(tmp_path: Path) -> None:
    dirs = (
        a_cgroup(tmp_path / "cpu", 1, ("cpu",), cpuacct__usage="1500000\n"),
        a_cgroup(
            tmp_path / "memory", 1, ("memory",), memory__usage_in_bytes="5000\n",
            memory__stat="inactive_file 1\ntotal_inactive_file 2000\n",
        ),
    )  # fmt: skip
    assert pod_usage.count(Pod(WEB[1], "n", dirs, 0)) == Counted(1_500_000, 3000)


def test_given_a_hybrid_host_that_counts_no_cpu_there_then_the_process_is_looked_at(
    tmp_path: Path,
) -> None:
    dirs = (
        a_cgroup(tmp_path / "cpu", 1, ("cpu",)),
        a_cgroup(tmp_path / "unified", 2, ("memory",), memory__current="77", memory__stat=""),
    )
    found = pod_usage.count(Pod(WEB[1], "n", dirs, os.getpid()))
    assert found is not None
    assert found.cpu_nano > 0
    assert found.memory == 77


def test_given_no_cgroups_then_all_comes_from_the_process() -> None:
    found = pod_usage.count(Pod(WEB[1], "n", (), os.getpid()))
    assert found is not None
    assert found.memory > 1 << 20


def test_given_a_process_that_is_gone_then_its_pod_is_left_out() -> None:
    assert pod_usage.look([Pod(WEB[1], "n", (), 1 << 22)]).pods == {}


def test_given_two_looks_then_cpu_is_the_average_between_them() -> None:
    before = Look(10.0, {WEB: Counted(1_000_000_000, 5), DB: Counted(9_000_000_000, 5)})
    after = Look(14.0, {WEB: Counted(3_000_000_000, 7), DB: Counted(1_000_000, 6)})
    # The process of the second was started again in between.
    assert pod_usage.rates(before, after) == {WEB: Use(500_000_000, 7), DB: Use(0, 6)}


class Machine:
    """Nodes whose pods use half a CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.slept, self.looks = 0.0, 0.0, 0
        self.names = ["web"]
        monkeypatch.setattr(pod_usage, "look", self.look)
        monkeypatch.setattr(pod_usage, "monotonic", lambda: self.clock)
        monkeypatch.setattr(pod_usage, "sleep", self.sleep)
        self.usage = PodUsage(self.nodes, lambda: NOON)

    def nodes(self) -> list[tuple[str, list[Local]]]:
        guest = SimpleNamespace(ended=False, process=SimpleNamespace(pid=1))
        intent = SimpleNamespace(cgroups=())
        locals_ = [
            cast(Local, SimpleNamespace(key=Key("team", n), intent=intent, guest=guest))
            for n in self.names
        ]
        return [("node01", locals_), ("node02", [])]

    def look(self, pods: list[Pod]) -> Look:
        self.looks += 1
        counted = Counted(int(self.clock * 500_000_000), 100)
        return Look(self.clock, {(pod.node, pod.key): counted for pod in pods})

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.clock += seconds


async def test_given_questions_over_time_then_windows_follow_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    first = await machine.usage()
    assert (first.window, machine.slept) == (1.0, 1.0)  # nothing to compare with yet
    assert first.pods == {("team", "web"): {"compute": Use(500_000_000, 100)}}
    assert first.nodes == {"node01": Use(500_000_000, 100), "node02": Use(0, 0)}

    machine.clock += 0.5
    assert await machine.usage() is first  # too soon for another

    machine.clock += 15.0
    assert (await machine.usage()).window == 15.5
    machine.names.append("db")
    machine.clock += 10.0
    second = await machine.usage()  # one of them was not there before
    assert (second.window, machine.slept) == (1.0, 2.0)
    assert second.nodes["node01"] == Use(1_000_000_000, 200)

    machine.clock += 3600.0
    assert (await machine.usage()).window == 1.0


async def test_given_two_who_ask_at_once_then_one_measurement_serves_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    one, other = await asyncio.gather(machine.usage(), machine.usage())
    assert one is other
    assert machine.looks == 2


def test_given_a_stat_file_that_makes_no_sense_then_nothing_is_counted(tmp_path: Path) -> None:
    folder: Any = a_cgroup(tmp_path, 2, BOTH, cpu__stat="usage_usec many", memory__current="x")
    assert pod_usage.cgroup_cpu([folder]) is None
    assert pod_usage.working_set([folder]) is None
