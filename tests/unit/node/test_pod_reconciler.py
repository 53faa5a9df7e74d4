"""A pod that a guest comes to or leaves: whatever is asked of it meanwhile, one guest is left."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from livevirt.node import pod_reconciler
from livevirt.node.exit_record import destroyed
from livevirt.node.migration import source, target
from livevirt.node.migration.handover import Departure

from .moving_pod import AT, SOURCE, MovingPod
from .moving_qemu import Qmp

LAST_BYTE = "paused"  # the run state of a target that has got it


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def soon(_: object) -> None:
        await asyncio.sleep(0.001)

    monkeypatch.setattr(target, "_next", soon)
    monkeypatch.setattr(target, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(source, "POLL_SECONDS", 0.01)


def ask_for_its_end(pod: MovingPod, how: str) -> None:
    if how == "cancel":
        pod.api.change(abortRequested=True)
    else:
        pod.api.delete_pod()


def stays_at_the_source(pod: MovingPod) -> bool:
    state = pod.api.state
    return bool(state.get("failed")) and pod.api.vmi["status"]["nodeName"] == "n1"


def is_at_the_target(pod: MovingPod) -> bool:
    state = pod.api.state
    return bool(state.get("completed")) and pod.api.vmi["status"]["nodeName"] == "n2"


def is_waited_for(pod: MovingPod) -> bool:
    return bool(pod.handovers.get("m").socket)


# ---------------------------------------------------------------- called off or arrived


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_given_the_last_byte_comes_when_the_end_is_decided_then_the_guest_never_runs_here(
    tmp_path: Path, how: str
) -> None:
    pod = MovingPod(tmp_path, Qmp("inmigrate"))
    pod.folder.seconds = 0.1

    def last_byte(_: str) -> None:
        pod.qmp.run_state = LAST_BYTE

    pod.folder.meanwhile = last_byte
    async with pod.kept():
        await pod.until(lambda: is_waited_for(pod))
        ask_for_its_end(pod, how)
        await pod.until(lambda: pod.api.state.get("endTimestamp"))
    assert "quit" in pod.qmp.told
    assert "cont" not in pod.qmp.told
    assert stays_at_the_source(pod)
    assert pod.api.state.get("abortStatus") == ("Succeeded" if how == "cancel" else None)


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_given_its_arrival_is_being_noted_then_it_is_too_late_to_end_it(
    tmp_path: Path, how: str
) -> None:
    pod = MovingPod(tmp_path, Qmp("inmigrate"))
    pod.folder.seconds = 0.1
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    pod.folder.meanwhile = lambda _: loop.call_soon_threadsafe(begun.set) and None
    async with pod.kept():
        await pod.until(lambda: is_waited_for(pod))
        pod.qmp.run_state = LAST_BYTE
        await begun.wait()
        ask_for_its_end(pod, how)
        await pod.until(lambda: pod.api.state.get("endTimestamp"))
        await pod.stays(lambda: "quit" not in pod.qmp.told)
    assert "cont" in pod.qmp.told
    assert is_at_the_target(pod)
    assert pod.api.state.get("abortStatus") == ("Failed" if how == "cancel" else None)


async def test_an_arrival_is_reported_only_once_it_survives_the_machine(tmp_path: Path) -> None:
    pod = MovingPod(tmp_path, Qmp("inmigrate"))
    begun, durable = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow_disk(_: str) -> None:
        loop.call_soon_threadsafe(begun.set)
        durable.wait(30)

    pod.folder.meanwhile = slow_disk
    async with pod.kept():
        await pod.until(lambda: is_waited_for(pod))
        pod.qmp.run_state = LAST_BYTE
        await begun.wait()
        await pod.stays(lambda: not is_at_the_target(pod))
        durable.set()
        await pod.until(lambda: is_at_the_target(pod))


@pytest.mark.parametrize("seed", range(12))
async def test_whenever_it_is_called_off_the_guest_runs_in_one_place_and_that_is_told(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    pod = MovingPod(tmp_path, Qmp("inmigrate"))
    pod.folder.seconds = dice.choice([0.0, 0.003, 0.01])

    async def after(seconds: float, act: Any) -> None:
        await asyncio.sleep(seconds)
        act()

    async with pod.kept():
        await pod.until(lambda: is_waited_for(pod))
        await asyncio.gather(
            after(dice.uniform(0, 0.01), lambda: setattr(pod.qmp, "run_state", LAST_BYTE)),
            after(dice.uniform(0, 0.01), lambda: ask_for_its_end(pod, "cancel")),
        )
        await pod.until(lambda: pod.api.state.get("endTimestamp"))
        await pod.until(lambda: "cont" in pod.qmp.told or "quit" in pod.qmp.told)
    assert ("cont" in pod.qmp.told) != ("quit" in pod.qmp.told)
    assert is_at_the_target(pod) == ("cont" in pod.qmp.told)
    assert stays_at_the_source(pod) == ("quit" in pod.qmp.told)


# ---------------------------------------------------------------- a target that is gone


@pytest.mark.parametrize("deleted", [False, True])
async def test_given_the_target_dies_before_it_could_tell_then_the_guest_has_moved_and_ended(
    tmp_path: Path, deleted: bool
) -> None:
    pod = MovingPod(tmp_path, Qmp())
    pod.folder.migration.write_arrived()
    pod.qmp.gone = True
    if deleted:
        pod.api.delete_pod()
    async with pod.kept():
        await pod.until(lambda: pod.api.vmi["status"]["phase"] == "Failed")
        await pod.until(lambda: pod.api.pod is None or not deleted)
    assert is_at_the_target(pod)


async def test_given_the_target_dies_without_the_guest_then_it_goes_on_at_the_source(
    tmp_path: Path,
) -> None:
    pod = MovingPod(tmp_path, Qmp("inmigrate"))
    async with pod.kept():
        await pod.until(lambda: is_waited_for(pod))
        pod.qmp.gone = True
        await pod.until(lambda: stays_at_the_source(pod))
    assert pod.api.vmi["status"]["phase"] == "Running"


async def test_a_dead_target_never_takes_back_that_the_guest_stayed(tmp_path: Path) -> None:
    pod = MovingPod(tmp_path, Qmp(), failed=True, endTimestamp=AT)
    pod.folder.migration.write_arrived()
    pod.folder.write_ending(destroyed(AT))
    pod.local.ending = pod.folder.read_ending()
    pod.qmp.gone = True
    async with pod.kept():
        await pod.stays(lambda: stays_at_the_source(pod))


# ---------------------------------------------------------------- the source


class Killed(Exception):
    """The agent was killed."""


async def test_given_a_kill_before_a_source_is_removed_then_the_guest_keeps_its_disks(
    tmp_path: Path,
) -> None:
    pod = MovingPod(tmp_path, Qmp("postmigrate"), SOURCE, completed=True, endTimestamp=AT)
    pod.api.vmi["status"]["nodeName"] = "n2"
    pod.api.delete_pod()
    remove = pod.api.delete

    async def killed(*_: Any, **__: Any) -> None:
        raise Killed

    pod.api.delete = killed  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        with pytest.raises(Killed):
            await pod.keep()
    pod.api.delete = remove  # type: ignore[method-assign]
    pod.restart()
    async with pod.kept():
        await pod.until(lambda: pod.api.pod is None)
        await pod.until(lambda: not pod.folder.root.exists())
    assert pod.disks_removed == 0


@pytest.mark.parametrize(("node", "removed"), [("n1", True), ("n2", False)])
async def test_given_nothing_is_known_of_a_source_then_it_is_asked_where_the_guest_is(
    tmp_path: Path, node: str, removed: bool
) -> None:
    pod = MovingPod(tmp_path, Qmp("postmigrate"), SOURCE, completed=True, endTimestamp=AT)
    pod.api.vmi["status"]["nodeName"] = node
    pod.api.delete_pod()
    pod.folder.remove()
    pod.restart()
    async with pod.kept():
        await pod.until(lambda: pod.api.pod is None)
    assert bool(pod.disks_removed) == removed


async def test_given_a_paused_guest_is_being_sent_then_its_end_does_not_resume_it(
    tmp_path: Path,
) -> None:
    pod = MovingPod(tmp_path, Qmp("paused", "active"), SOURCE)
    pod.folder.migration.write_departure(Departure(uid="m", paused=True))
    pod.api.delete_pod()
    async with pod.kept():
        await pod.stays(lambda: "cont" not in pod.qmp.told)
        pod.qmp.run_state, pod.qmp.status = "postmigrate", "completed"
        await pod.stays(lambda: "cont" not in pod.qmp.told)
        # Its target is gone without it. Only now it is resumed, to hear the power button.
        pod.api.change(failed=True, endTimestamp=AT)
        await pod.until(lambda: "system_powerdown" in pod.qmp.told)
    assert pod.qmp.told.index("cont") < pod.qmp.told.index("system_powerdown")


async def test_a_running_guest_hears_the_power_button_while_it_is_sent(tmp_path: Path) -> None:
    pod = MovingPod(tmp_path, Qmp("running", "active"), SOURCE)
    pod.folder.migration.write_departure(Departure(uid="m"))
    pod.api.delete_pod()
    async with pod.kept():
        await pod.until(lambda: "system_powerdown" in pod.qmp.told)
    assert "cont" not in pod.qmp.told


class HungQmp(Qmp):
    """A QEMU that answers nothing any more."""

    async def execute(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        self.told.append(command)
        await asyncio.Event().wait()


@pytest.mark.parametrize("state", ["running", "paused"])
async def test_given_qemu_hangs_then_its_pod_is_looked_at_again_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(pod_reconciler, "PRESS_SECONDS", 0.01)
    pod = MovingPod(tmp_path, HungQmp(state), SOURCE, failed=True, endTimestamp=AT)
    pod.api.delete_pod()
    async with asyncio.timeout(30):
        found = await pod.reconciler.reconcile(pod.key)
    assert found.after is not None, "when its time may be up"
    assert len(pod.qmp.told) == 1


async def test_given_a_paused_guest_stays_then_it_is_shown_as_paused(tmp_path: Path) -> None:
    pod = MovingPod(tmp_path, Qmp("paused", "active"), SOURCE)
    pod.folder.migration.write_departure(Departure(uid="m", paused=True))
    pod.qmp.run_state, pod.qmp.status = "postmigrate", "completed"
    async with pod.kept():
        pod.api.change(failed=True, endTimestamp=AT)
        await pod.until(lambda: not pod.local.is_sending and pod.local.migration is None)
        standing = pod.local.standing
        assert standing is not None
        assert (standing.condition, pod.qmp.run_state) == ("paused", "postmigrate")
    assert "cont" not in pod.qmp.told


async def test_given_nobody_saw_the_guest_leave_then_the_next_migration_tells_it(
    tmp_path: Path,
) -> None:
    """It came back to this node, so the node's name does not tell."""
    later = {"migrationUid": "m3", "sourcePod": "u", "targetPod": "v"}
    pod = MovingPod(tmp_path, Qmp("postmigrate", "completed"), SOURCE, **later)
    pod.folder.migration.write_departure(Departure(uid="m"))
    async with pod.kept():
        await pod.until(lambda: pod.local.has_left)
        assert not pod.migrations.is_home(pod.local, pod.api.vmi)
        pod.api.delete_pod()
        await pod.until(lambda: pod.api.pod is None)
    assert pod.qmp.told == ["quit"]


async def test_given_one_migration_after_the_other_then_neither_ends_by_what_was_said_of_the_first(
    tmp_path: Path,
) -> None:
    pod = MovingPod(tmp_path, Qmp("running", "failed"), SOURCE)
    pod.folder.migration.write_departure(Departure(uid="m"))
    async with pod.kept():
        await pod.until(lambda: pod.api.state.get("failed"))
        again = {"migrationUid": "m2", "targetPod": "u", "failed": None, "endTimestamp": None}
        pod.api.change(**again, startTimestamp=None, failureReason=None)
        await pod.until(lambda: pod.handovers.get("m2").offer is not None)
        await pod.stays(lambda: not pod.api.state.get("failed"))


# ---------------------------------------------------------------- what people may do to it


@pytest.mark.parametrize(
    ("state", "noted", "left", "leaves"),
    [
        ({}, False, False, True),
        ({"failed": True, "endTimestamp": AT}, False, False, False),
        ({"failed": True, "endTimestamp": AT}, True, False, True),  # it may not go on yet
        ({"migrationUid": "m2", "sourcePod": "u"}, False, False, False),
        ({"completed": True, "endTimestamp": AT}, True, True, False),  # it is the other's matter
    ],
)
async def test_a_guest_leaves_from_when_it_is_handed_over_until_it_has_gone_or_goes_on(
    tmp_path: Path, state: dict[str, Any], noted: bool, left: bool, leaves: bool
) -> None:
    pod = MovingPod(tmp_path, Qmp(), SOURCE, **state)
    if noted:
        pod.folder.migration.write_departure(Departure(uid="m"))
    if left:
        pod.folder.migration.write_left()
    assert pod.migrations.is_leaving(pod.local, pod.api.vmi) is leaves
