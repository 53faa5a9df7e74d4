from pathlib import Path

import pytest

from livevirt.node.cgroups import (
    Cgroups,
    Hierarchy,
    PodCgroup,
    cpu_list,
    hierarchies,
    quota,
    settings,
    shares,
    weight,
)
from livevirt.node.intent import CgroupDir, Limits

HYBRID = """\
30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
33 24 0:29 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
"""
HYBRID_OWN = "5:cpuset:/\n4:memory:/box/7\n1:cpu,cpuacct:/\n0::/\n"
UNIFIED = "32 24 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
CONTAINER = "32 24 0:28 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def test_given_a_hybrid_host_then_each_controller_is_found_where_it_is() -> None:
    assert hierarchies(HYBRID, HYBRID_OWN) == [
        Hierarchy(("cpu",), 1, "/sys/fs/cgroup/cpu", ""),
        Hierarchy(("memory",), 1, "/sys/fs/cgroup/memory", "box/7"),
        Hierarchy(("cpuset",), 1, "/sys/fs/cgroup/cpuset", ""),
    ]


def test_given_version_2_alone_then_it_has_all_controllers() -> None:
    found = hierarchies(UNIFIED, "0::/user.slice/a.scope\n")
    assert found == [
        Hierarchy(("cpu", "memory"), 2, "/sys/fs/cgroup", "user.slice/a.scope"),
        Hierarchy(("cpuset",), 2, "/sys/fs/cgroup", "user.slice/a.scope"),
    ]


def test_given_a_mount_that_shows_only_a_part_then_paths_begin_there() -> None:
    found = hierarchies(CONTAINER, "0::/docker/1/sub\n")
    assert [each.own for each in found] == ["sub", "sub"]


@pytest.mark.parametrize(
    ("milli", "v1", "v2"), [(0, 2, 1), (100, 102, 4), (1000, 1024, 39), (10**9, 262144, 10000)]
)
def test_a_request_weighs_what_a_kubelet_makes_of_it(milli: int, v1: int, v2: int) -> None:
    assert (shares(milli), weight(milli)) == (v1, v2)


@pytest.mark.parametrize(("milli", "microseconds"), [(1500, 150_000), (1, 1_000)])
def test_a_limit_is_a_share_of_each_period(milli: int, microseconds: int) -> None:
    assert quota(milli) == microseconds


def test_no_limit_is_written_as_the_kernel_wants_it() -> None:
    none = Limits(cpu_request=1000)
    assert settings(1, none)["cpu"][-1] == ("cpu.cfs_quota_us", "-1")
    assert settings(1, none)["memory"] == [("memory.limit_in_bytes", "-1")]
    assert settings(2, none)["cpu"][-1] == ("cpu.max", "max 100000")
    assert settings(2, none)["memory"] == [("memory.max", "max")]


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_written_can_be_read_back(tmp_path: Path, version: int) -> None:
    group = PodCgroup([CgroupDir(str(tmp_path), ("cpu", "memory"), version)])
    limits = Limits(cpu_request=500, cpu_limit=1500, memory_limit=1 << 30)
    group.apply(limits)
    assert group.in_force() == Limits(cpu_limit=1500, memory_limit=1 << 30)


@pytest.mark.parametrize(("version", "file"), [(1, "memory.oom_control"), (2, "memory.events")])
def test_an_out_of_memory_kill_is_seen(tmp_path: Path, version: int, file: str) -> None:
    group = PodCgroup([CgroupDir(str(tmp_path), ("memory",), version)])
    assert not group.oom_killed()
    (tmp_path / file).write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.oom_killed()


@pytest.mark.parametrize(("text", "cpus"), [("0-2,5\n", [0, 1, 2, 5]), ("3", [3]), ("\n", [])])
def test_the_kernel_s_way_of_writing_cpus_is_read(text: str, cpus: list[int]) -> None:
    assert cpu_list(text) == cpus


def test_given_version_1_then_new_cpusets_have_what_the_group_above_has(tmp_path: Path) -> None:
    for name, value in (("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")):
        for folder in ("", "livevirt", "livevirt/node1", "livevirt/node1/poduid"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / name).write_text("" if folder else value)
    found = Cgroups("node1", [Hierarchy(("cpuset",), 1, str(tmp_path), "")])
    pod = found.of("uid")
    found.create(pod)
    assert Path(pod.dirs[0].path, "cpuset.mems").read_text() == "0\n"
    assert (tmp_path / "livevirt/cpuset.cpus").read_text() == "0-3\n"
    pod.set_cpus((1, 3))
    assert Path(pod.dirs[0].path, "cpuset.cpus").read_text() == "1,3"
    found.create(pod)
    assert Path(pod.dirs[0].path, "cpuset.cpus").read_text() == "1,3", "what was set stays"


@pytest.mark.parametrize(
    ("version", "file"), [(1, "cpuset.effective_cpus"), (2, "cpuset.cpus.effective")]
)
def test_given_the_kernel_uses_other_cpus_then_that_is_no_success(
    tmp_path: Path, version: int, file: str
) -> None:
    group = PodCgroup([CgroupDir(str(tmp_path), ("cpuset",), version)])
    (tmp_path / file).write_text("0\n")
    with pytest.raises(OSError, match="asked for CPUs"):
        group.set_cpus((1,))
    (tmp_path / file).write_text("1\n")
    group.set_cpus((1,))


def test_given_no_cpuset_then_a_pod_cannot_be_kept_to_cpus(tmp_path: Path) -> None:
    group = PodCgroup([CgroupDir(str(tmp_path), ("cpu",), 1)])
    assert not group.has_cpuset
    with pytest.raises(OSError, match="no cpuset"):
        group.set_cpus((1,))


def test_given_no_cpuset_controller_then_pods_are_confined_all_the_same(tmp_path: Path) -> None:
    found = Cgroups("node1", [Hierarchy(("cpu", "memory"), 1, str(tmp_path), "")])
    assert found.problem == ""
    assert found.cpuset_problem == "cpuset: no such controller"


def test_given_no_controller_is_mounted_then_the_node_says_that_pods_are_not_confined() -> None:
    assert Cgroups("node1", []).problem == "cpu: no such controller; memory: no such controller"


def test_given_no_permission_then_the_node_says_so(tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    found = Cgroups("node1", [Hierarchy(("cpu", "memory"), 1, str(nowhere), "")])
    assert found.problem.startswith("cpu/memory: ")
    assert found.of("uid").dirs == ()
