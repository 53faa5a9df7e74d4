import asyncio
import os
from pathlib import Path

import pytest

from livevirt.node import process
from livevirt.node.pod_dir import PodDir
from livevirt.node.process import Account, Order, Process, SpawnFailed


@pytest.fixture
def folder(tmp_path: Path) -> PodDir:
    found = PodDir(tmp_path / "nodes" / "node1" / "pods", tmp_path / "run", "some-uid")
    found.create(None)
    return found


def an_order(folder: PodDir, *argv: str, **more: object) -> Order:
    lock = folder.take_lock()
    assert lock is not None
    return Order(argv, folder.stderr, folder.spawned, lock, **more)  # type: ignore[arg-type]


async def spawned(order: Order) -> Process | None:
    try:
        return await process.spawn(order)
    finally:
        os.close(order.lock)


async def test_a_spawned_process_holds_the_lock_until_it_ends(folder: PodDir) -> None:
    argv = ("/bin/sleep", "1234")
    found = await spawned(an_order(folder, *argv))
    assert found is not None
    try:
        assert folder.spawned.exists()
        assert folder.locked()
        assert folder.take_lock() is None
        async with asyncio.timeout(10):
            while process.find(argv, process.all_pids()) is None:  # noqa: ASYNC110 - it becomes that in a moment
                await asyncio.sleep(0.01)
        assert process.find(argv, process.all_pids()) == found
        assert process.find((*argv, "more"), [found.pid]) is None
        assert os.getsid(found.pid) == found.pid != os.getsid(0)
    finally:
        process.kill(found)
    async with asyncio.timeout(10):
        await process.exited(found)
    assert not process.alive(found)
    assert not folder.locked()


async def test_what_a_process_says_is_in_its_log_and_nothing_of_ours_is_open_in_it(
    folder: PodDir,
) -> None:
    found = await spawned(an_order(folder, "/bin/sh", "-c", "echo oh; ls /proc/self/fd; umask"))
    if found is not None:
        async with asyncio.timeout(10):
            await process.exited(found)
    said = folder.complaint().split()
    assert said[0] == "oh"
    assert said[-1] == "0077"
    assert len(said[1:-1]) <= 5  # three, the lock, and what ls itself opened


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_program_is_found_and_run_by_somebody_who_may_read_nothing_of_ours(
    folder: PodDir,
) -> None:
    found = await spawned(an_order(folder, "id", "-u", account=Account(65534, 65534)))
    if found is not None:
        async with asyncio.timeout(10):
            await process.exited(found)
    assert folder.complaint() == "65534"


async def test_given_no_such_program_then_the_log_says_so(folder: PodDir) -> None:
    found = await spawned(an_order(folder, "/no/such/program"))
    if found is not None:
        async with asyncio.timeout(10):
            await process.exited(found)
    assert "cannot start /no/such/program" in folder.complaint()
    assert folder.spawned.exists()


async def test_given_a_cgroup_that_cannot_be_entered_then_nothing_is_started(
    folder: PodDir, tmp_path: Path
) -> None:
    order = an_order(folder, "/bin/sleep", "1234", cgroups=[str(tmp_path / "no/cgroup.procs")])
    with pytest.raises(SpawnFailed, match="No such file"):
        await spawned(order)
    assert not folder.spawned.exists()
    assert not folder.locked()


def test_a_reused_id_is_not_taken_for_the_process() -> None:
    me = process.seen(os.getpid())
    assert me is not None
    assert process.alive(me)
    other = Process(me.pid, me.started - 1)
    assert not process.alive(other)
    process.kill(other)  # would end this test run


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"pid": 1}'])
def test_a_note_that_was_half_written_is_none(data: bytes) -> None:
    assert process.noted(data) is None
    assert process.noted(process.note(Process(1, 2))) == Process(1, 2)
