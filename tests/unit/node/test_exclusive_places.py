from livevirt.node.exclusive import places
from livevirt.node.intent import Exclusive
from livevirt.qemu.machine import Cpu, Thread
from livevirt.qemu.observe import Threads, io_threads, vcpu_threads

CPU = Cpu(model="max", sockets=2, max_sockets=4)
OWN = Exclusive(cpus=(3, 4, 5, 6), vcpus=(3, 4), io_threads={"io0": 5}, emulator=(6,))
NAMED = Threads({101: Thread(0, 0, 0), 102: Thread(1, 0, 0)}, {201: "io0", 202: "mon_iothread"})


def test_each_vcpu_and_io_thread_is_on_its_cpu_and_all_else_with_the_emulator() -> None:
    found = places(NAMED, OWN, CPU, [100, 101, 102, 201, 202, 300])
    assert found == {
        100: {6}, 101: {3}, 102: {4}, 201: {5}, 202: {6}, 300: {6},
    }  # fmt: skip


def test_threads_that_qemu_names_and_does_not_have_are_left_alone() -> None:
    assert places(NAMED, OWN, CPU, [100]) == {100: {6}}


def test_a_vcpu_that_came_later_is_on_the_cpu_that_was_kept_for_it() -> None:
    booted = Cpu(model="max", sockets=1, max_sockets=4)
    assert places(NAMED, OWN, booted, [101, 102]) == {101: {3}, 102: {4}}


def test_a_vcpu_for_which_the_pod_has_no_cpu_stays_with_the_emulator() -> None:
    named = Threads({103: Thread(2, 0, 0)}, {})
    assert places(named, OWN, CPU, [103]) == {103: {6}}


def test_qemu_s_answers_are_read() -> None:
    place = {"socket-id": 1, "core-id": 0, "thread-id": 2, "node-id": 0}
    answer = [{"cpu-index": 0, "thread-id": 77, "props": place, "target": "x86_64"}]
    assert vcpu_threads(answer) == {77: Thread(1, 0, 2)}
    assert io_threads([{"id": "io0", "thread-id": 78, "poll-max-ns": 1}]) == {78: "io0"}
