"""One guest as it is followed: its QEMU is made up, its agent's channel is a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import process as processes
from livevirt.node.guest import Guest, agent_poller, qmp_connection
from livevirt.node.guest.view import RebootRequest
from livevirt.qemu import agent as agent_client
from livevirt.qemu import guest_memory
from livevirt.qemu.errors import AgentUnavailable
from livevirt.qemu.observe import MemoryState, Observed
from livevirt.qemu.plan import OnlineMemory, PrepareMemory
from livevirt.qemu.session import Event

RUNNING = Observed("running", (), MemoryState(2**20))
OFF = replace(RUNNING, run_state="shutdown")
WITH_AGENT = replace(RUNNING, agent_open=True)


class Qemu:
    """A machine, its monitor's only session, and the events of that session."""

    connected = True

    def __init__(self, state: Observed = RUNNING) -> None:
        self.state = state
        self.told: list[str] = []
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def becomes(self, state: Observed) -> None:
        self.state = state
        self._events.put_nowait(Event("STOP", {}))

    async def execute(self, command: str, arguments: object = None) -> Any:
        if command == "qom-get":
            return "pc-q35-7.2-machine"
        self.told.append(command)
        if command == "cont":
            self.state = RUNNING
        return {}

    @contextmanager
    def listen(self, *names: str) -> Iterator[Qemu]:
        yield self

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await self._events.get()

    def waiting(self) -> list[Event]:
        return []

    async def __aenter__(self) -> Qemu:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def close(self) -> None:
        pass


class InGuest:
    """Holds the agent's port open; answers a sync, and commands as long as it is `well`."""

    def __init__(self) -> None:
        self.well = True
        self.asked: list[str] = []
        self.answers: dict[str, object] = {
            "guest-info": {"version": "7.2"},
            "guest-get-vcpus": [],
            "guest-network-get-interfaces": [],
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            message = json.loads(line.rpartition(b"\xff")[2])
            name = message["execute"]
            if name == "guest-sync-delimited":
                writer.write(b"\xff" + _line({"return": message["arguments"]["id"]}))
                continue
            self.asked.append(name)
            if self.well and name in self.answers:
                writer.write(_line({"return": self.answers[name]}))
            elif self.well:
                writer.write(_line({"error": {"class": "CommandNotFound", "desc": name}}))
        writer.close()


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


@asynccontextmanager
async def following(
    qemu: Qemu, inside: InGuest, reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Guest]:
    async def connect(path: str) -> Qemu:
        return qemu

    async def observe(_: Qemu) -> Observed:
        return qemu.state

    async def nothing(_: Qemu) -> None:
        pass

    monkeypatch.setattr(qmp_connection, "Session", SimpleNamespace(connect=connect))
    monkeypatch.setattr(qmp_connection, "observe", observe)
    monkeypatch.setattr(qmp_connection, "forget_files", nothing)
    monkeypatch.setattr(qmp_connection, "forget_forwards", nothing)
    with tempfile.TemporaryDirectory(prefix="lv-") as folder:
        socket = str(Path(folder, "agent"))
        intent: Any = SimpleNamespace(
            namespace="default",
            vmi="web",
            machine=SimpleNamespace(balloon=False),
            exclusive=None,
            agent_socket=socket,
            qmp_socket="/none",
        )
        process = processes.seen(os.getpid())
        assert process is not None
        async with await asyncio.start_unix_server(inside.serve, socket):
            guest = Guest(intent, process, lambda: None, lambda _: None, reboot)
            try:
                yield guest
            finally:
                await guest.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - several tasks change what is waited for
            await asyncio.sleep(0.005)


@pytest.fixture
def reboot(tmp_path: Path) -> RebootRequest:
    return RebootRequest(tmp_path / "reboot", lambda: 1000.0)


async def test_given_no_agent_when_it_is_rebooted_then_it_is_switched_on_once_it_is_off(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = Qemu()
    async with following(qemu, InGuest(), reboot, monkeypatch) as guest:
        await until(lambda: guest.view.standing is not None)
        await guest.reboot(30)
        qemu.becomes(OFF)
        await until(lambda: qemu.told == ["system_powerdown", "system_reset", "cont"])
        qemu.becomes(OFF)  # once more, by itself
        await until(lambda: guest.view.standing is not None and guest.view.standing.ended)
    assert qemu.told == ["system_powerdown", "system_reset", "cont"]


async def test_given_an_earlier_agent_asked_for_a_reboot_then_the_guest_is_switched_on(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reboot.write(30)
    qemu = Qemu(OFF)
    async with following(qemu, InGuest(), reboot, monkeypatch) as guest:
        await until(lambda: guest.view.standing is not None)
        assert guest.view.standing is not None
        assert guest.view.standing.condition == "running"
    assert qemu.told == ["system_reset", "cont"]


async def test_given_a_guest_ignored_the_button_when_it_is_switched_off_later_then_it_stays_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    qemu = Qemu()
    reboot = RebootRequest(tmp_path / "reboot", lambda: now)
    async with following(qemu, InGuest(), reboot, monkeypatch) as guest:
        await until(lambda: guest.view.standing is not None)
        await guest.reboot(30)
        now += 7 * 24 * 3600
        qemu.becomes(OFF)
        await until(lambda: guest.view.standing is not None and guest.view.standing.ended)
    assert qemu.told == ["system_powerdown"]


async def test_a_power_down_takes_back_a_reboot(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = Qemu()
    async with following(qemu, InGuest(), reboot, monkeypatch) as guest:
        await until(lambda: guest.view.standing is not None)
        await guest.reboot(30)
        await guest.power_down()
        qemu.becomes(OFF)
        await until(lambda: guest.view.standing is not None and guest.view.standing.ended)
    assert qemu.told == ["system_powerdown", "system_powerdown"]


async def test_given_the_guest_is_reset_while_its_agent_is_asked_then_the_agent_after_it_is_heard(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu, inside = Qemu(), InGuest()
    inside.well = False
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        qemu.becomes(WITH_AGENT)
        await until(lambda: inside.asked == ["guest-info"])
        qemu.becomes(RUNNING)
        await until(lambda: not guest.view.observed.agent_open)  # type: ignore[union-attr]
        inside.well = True
        qemu.becomes(WITH_AGENT)
        await until(lambda: guest.view.agent is not None)


async def test_given_an_agent_that_talks_nonsense_then_it_is_asked_again_and_heard(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_poller, "_OFTEN_SECONDS", 0.01)
    qemu, inside = Qemu(WITH_AGENT), InGuest()
    inside.answers["guest-info"] = 5
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        await until(lambda: inside.asked.count("guest-info") > 2)
        assert guest.view.agent is None
        inside.answers["guest-info"] = {"version": "7.2"}
        await until(lambda: guest.view.agent is not None)


async def test_a_mistake_of_ours_does_not_end_the_questions(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_poller, "_OFTEN_SECONDS", 0.01)
    qemu, inside = Qemu(WITH_AGENT), InGuest()
    asked = 0

    async def osinfo() -> None:
        nonlocal asked
        asked += 1
        raise KeyError("mistake") if asked == 1 else AgentUnavailable("nobody")

    async with following(qemu, inside, reboot, monkeypatch) as guest:
        monkeypatch.setattr(guest.agent, "osinfo", osinfo)
        await until(lambda: asked > 2)


# ---------------------------------------------------------------- an agent that hangs


async def test_given_an_agent_that_hangs_then_what_it_reported_is_void_until_it_answers(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_poller, "_OFTEN_SECONDS", 0.01)
    monkeypatch.setattr(agent_poller, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(agent_client, "ANSWER_SECONDS", 0.05)
    qemu, inside = Qemu(WITH_AGENT), InGuest()
    inside.answers["guest-get-vcpus"] = [{"logical-id": 0, "online": True}]
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        await until(lambda: guest.view.agent is not None)
        assert guest.seen is not None
        assert guest.seen.vcpus is not None
        inside.well = False
        await until(lambda: guest.view.agent is None)
        assert guest.view.agent_silent
        assert guest.seen is not None  # plans are made without it
        assert guest.seen.vcpus is None
        inside.well = True
        await until(lambda: guest.view.agent is not None)
        assert not guest.view.agent_silent


async def test_given_a_guest_that_stands_still_then_its_agent_is_not_given_up(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_poller, "_OFTEN_SECONDS", 0.01)
    monkeypatch.setattr(agent_poller, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(agent_client, "ANSWER_SECONDS", 0.05)
    qemu, inside = Qemu(WITH_AGENT), InGuest()
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        await until(lambda: guest.view.agent is not None)
        qemu.becomes(replace(WITH_AGENT, run_state="paused"))
        await until(lambda: guest.view.observed.run_state == "paused")  # type: ignore[union-attr]
        inside.well = False
        asked = len(inside.asked)
        await until(lambda: len(inside.asked) > asked + 3)
        assert guest.view.agent is not None


# ---------------------------------------------------------------- memory blocks

PLUGGED = replace(WITH_AGENT, memory=MemoryState(2**20, 2**27, 2**27, 2**28, 2**32))


async def test_blocks_are_asked_for_once_memory_is_plugged_and_an_agent_without_them_says_none(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu, inside = Qemu(WITH_AGENT), InGuest()
    commands = [guest_memory.BLOCKS, guest_memory.BLOCK_INFO]
    inside.answers["guest-info"] = {
        "version": "7.2",
        "supported_commands": [{"name": name, "enabled": True} for name in commands],
    }
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        await until(lambda: guest.view.agent is not None)
        assert guest.seen is not None
        assert guest.seen.blocks == guest_memory.GuestMemory()
        assert guest_memory.BLOCKS not in inside.asked
        qemu.becomes(PLUGGED)
        inside.answers[guest_memory.BLOCK_INFO] = {"size": 2**27}
        listed = [{"phys-index": 32, "online": False, "can-offline": True}]
        inside.answers[guest_memory.BLOCKS] = listed
        assert (await guest.look()).offline_blocks == (32,)
        del inside.answers[guest_memory.BLOCKS]
        assert (await guest.look()).blocks is None


async def test_what_was_done_to_the_guests_memory_is_remembered(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu, inside = Qemu(PLUGGED), InGuest()
    done = {"phys-index": 32, "response": "success"}
    inside.answers[guest_memory.SET_BLOCKS] = [done]
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        await until(lambda: guest.view.agent is not None)
        await guest.do(PrepareMemory())  # the agent has no file commands
        await guest.do(OnlineMemory((32,)))
        agent = guest.view.agent
        assert agent is not None
        assert (agent.auto_online, agent.unmovable) == ("", True)
        qemu.becomes(replace(PLUGGED, agent_open=False))
        await until(lambda: guest.view.agent is None)
        qemu.becomes(PLUGGED)
        await until(lambda: guest.view.agent is not None)
        assert guest.view.agent is not None
        assert guest.view.agent.unmovable  # another agent, the same memory


async def test_blocks_are_brought_online_as_movable_by_an_agent_that_may_write_files(
    reboot: RebootRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu, inside = Qemu(PLUGGED), InGuest()
    inside.answers |= {"guest-file-open": 1, "guest-file-write": {"count": 1, "eof": False}}
    inside.answers |= {"guest-file-flush": {}, "guest-file-close": {}}
    async with following(qemu, inside, reboot, monkeypatch) as guest:
        await until(lambda: guest.view.agent is not None)
        await guest.do(OnlineMemory((32,)))
        assert guest.view.agent is not None
        assert not guest.view.agent.unmovable
    assert guest_memory.SET_BLOCKS not in inside.asked
