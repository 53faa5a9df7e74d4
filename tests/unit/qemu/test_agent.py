"""The guest agent client against an agent that behaves as badly as real ones do."""

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from livevirt.qemu import agent as agent_module
from livevirt.qemu.agent import Finished, GuestAgent, Interface, Vcpu
from livevirt.qemu.errors import AgentUnavailable, CommandFailed

SILENCE = object()
MIB = 2**20


class FakeAgent:
    """Answers on a socket as qemu-ga does through its port."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {"guest-ping": lambda _: {}}
        self.noise = b""  # sent ahead of the next answer to a sync, as left over from before
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while line := await reader.readline():
            message = json.loads(line.rpartition(b"\xff")[2])
            name, arguments = message["execute"], message.get("arguments", {})
            if name == "guest-sync-delimited":
                writer.write(self.noise + b"\xff" + _line({"return": arguments["id"]}))
                self.noise = b""
            elif name not in self.answers:
                error = {"class": "CommandNotFound", "desc": f"no {name}"}
                writer.write(_line({"error": error}))
            elif isinstance(answer := self.answers[name](arguments), bytes):
                writer.write(answer)
            elif answer is not SILENCE:
                writer.write(_line({"return": answer}))
        writer.close()


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


@pytest.fixture
async def fake() -> AsyncIterator[FakeAgent]:
    agent = FakeAgent()
    with tempfile.TemporaryDirectory(prefix="lv-") as folder:
        agent.path = str(Path(folder, "agent.sock"))  # type: ignore[attr-defined]
        async with await asyncio.start_unix_server(agent.serve, agent.path):  # type: ignore[attr-defined]
            yield agent
            for writer in agent.writers:
                writer.close()


@pytest.fixture
async def agent(fake: FakeAgent) -> AsyncIterator[GuestAgent]:
    client = GuestAgent(fake.path)  # type: ignore[attr-defined]
    yield client
    await client.close()


async def test_answers_are_typed_and_calls_share_a_connection(
    fake: FakeAgent, agent: GuestAgent
) -> None:
    fake.answers["guest-get-vcpus"] = lambda _: [
        {"logical-id": 1, "online": False, "can-offline": True},
        {"logical-id": 0, "online": True, "unheard-of": 1},
    ]
    fake.answers["guest-network-get-interfaces"] = lambda _: [{"name": "eth0"}]
    assert await agent.vcpus() == (Vcpu(0, True), Vcpu(1, False, True))
    assert await agent.interfaces() == (Interface("eth0"),)
    assert fake.connections == 1


async def test_an_agents_refusal_carries_its_error_class(agent: GuestAgent) -> None:
    with pytest.raises(CommandFailed) as caught:
        await agent.users()
    assert caught.value.kind == "CommandNotFound"


NOISE = {
    "an answer to somebody who gave up": b'{"return": {"late": true}}\n',
    "an answer cut short": b'{"return": {"la',
    "an answer to another sync": b'\xff{"return": 1}\n',
    "a long answer to somebody who gave up": b"x" * 3 * MIB,
    "something that is no answer": b"\xff7\n",
    "a complaint about the bytes before": b'\xff{"error": {"class": "GenericError"}}\n',
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
async def test_what_is_left_from_before_is_not_taken_for_an_answer(
    fake: FakeAgent, agent: GuestAgent, noise: bytes
) -> None:
    fake.noise = noise
    fake.answers["guest-get-host-name"] = lambda _: {"host-name": "web"}
    assert await agent.hostname() == "web"


async def test_given_a_call_is_given_up_when_the_next_comes_then_it_gets_its_own_answer(
    fake: FakeAgent, agent: GuestAgent
) -> None:
    fake.answers["guest-get-host-name"] = lambda _: SILENCE
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await agent.hostname()
    fake.answers["guest-get-host-name"] = lambda _: {"host-name": "web"}
    assert await agent.hostname() == "web"


async def test_an_agent_that_does_not_answer_is_unavailable(
    fake: FakeAgent, agent: GuestAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "SYNC_SECONDS", 0.05)

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(fake, "serve", swallow)
    path = fake.path + "2"  # type: ignore[attr-defined]
    async with await asyncio.start_unix_server(swallow, path):
        with pytest.raises(AgentUnavailable, match="does not answer"):
            await GuestAgent(path).ping()


async def test_given_the_answer_to_a_command_is_lost_then_the_next_caller_is_not_held_up(
    fake: FakeAgent, agent: GuestAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ANSWER_SECONDS", 0.05)
    fake.answers["guest-get-host-name"] = lambda _: SILENCE  # as when the guest is reset
    async with asyncio.timeout(30):
        with pytest.raises(AgentUnavailable, match="does not answer"):
            await agent.hostname()
        fake.answers["guest-get-host-name"] = lambda _: {"host-name": "web"}
        assert await agent.hostname() == "web"


async def test_given_somebody_waits_when_it_hangs_up_then_it_is_told_and_the_next_gets_through(
    fake: FakeAgent, agent: GuestAgent
) -> None:
    asked = asyncio.Event()
    fake.answers["guest-get-host-name"] = lambda _: asked.set() or SILENCE
    async with asyncio.timeout(30):
        waiting = asyncio.create_task(agent.hostname())
        await asked.wait()
        agent.hang_up()
        with pytest.raises(AgentUnavailable, match="went away"):
            await waiting
        fake.answers["guest-get-host-name"] = lambda _: {"host-name": "web"}
        assert await agent.hostname() == "web"


ODD = {
    "of another type": b'{"return": 5}\n',
    "without a result": b"{}\n",
    "no object": b"7\n",
    "an error without a class": b'{"error": {}}\n',
    "an error that is none": b'{"error": 5}\n',
    "no JSON": b"hello\n",
    "no text": b'{"return": {"version": "\xc3\x28"}}\n',
    "half a character": b'{"return": {"version": "\\ud800"}}\n',
    "too deep": b"[" * 100_000 + b"\n",
    "a huge number": b'{"return": ' + b"9" * 5000 + b"}\n",
    "too long": b'{"return": {"version": "' + b"7" * 4 * MIB + b'"}}\n',
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_given_an_odd_answer_then_the_agent_is_unavailable_and_the_next_call_goes_through(
    fake: FakeAgent, agent: GuestAgent, odd: bytes
) -> None:
    fake.answers["guest-info"] = lambda _: odd
    async with asyncio.timeout(30):
        with pytest.raises(
            AgentUnavailable, match=r"answer to guest-info makes no sense: .{1,501}$"
        ):
            await agent.info()
        await agent.ping()


@pytest.mark.parametrize(
    ("command", "ask"),
    [
        ("guest-get-host-name", lambda agent: agent.hostname()),
        ("guest-get-vcpus", lambda agent: agent.vcpus()),
        ("guest-set-vcpus", lambda agent: agent.set_vcpus([1], online=True)),
        ("guest-exec", lambda agent: agent.exec("/bin/true")),
    ],
)
async def test_an_answer_to_another_question_is_none(
    fake: FakeAgent, agent: GuestAgent, command: str, ask: Callable[[GuestAgent], Any]
) -> None:
    fake.answers[command] = lambda _: {"odd": True}
    with pytest.raises(AgentUnavailable, match=f"answer to {command} makes no sense"):
        await ask(agent)


async def test_given_a_program_whose_status_is_odd_then_the_agent_is_unavailable(
    fake: FakeAgent, agent: GuestAgent
) -> None:
    fake.answers["guest-exec"] = lambda _: {"pid": 7}
    fake.answers["guest-exec-status"] = lambda _: {"exited": True, "out-data": "no base64"}
    with pytest.raises(AgentUnavailable, match="answer to guest-exec-status makes no sense"):
        await agent.exec("/bin/true")


async def test_a_long_refusal_is_cut(fake: FakeAgent, agent: GuestAgent) -> None:
    error = {"class": "GenericError", "desc": "no " * 100_000}
    fake.answers["guest-get-users"] = lambda _: _line({"error": error})
    with pytest.raises(CommandFailed) as caught:
        await agent.users()
    assert len(str(caught.value)) < 600


async def test_given_the_channel_ends_during_a_shutdown_then_the_agent_is_unavailable(
    fake: FakeAgent,
) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    path = fake.path + "2"  # type: ignore[attr-defined]
    async with await asyncio.start_unix_server(leave, path):
        with pytest.raises(AgentUnavailable, match="went away"):
            await GuestAgent(path).shutdown("reboot")


async def test_without_a_socket_the_agent_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable, match="no guest agent channel"):
        await GuestAgent(str(tmp_path / "none")).ping()


async def test_given_qemu_closes_the_channel_then_the_call_fails_and_the_next_opens_it_again(
    fake: FakeAgent, agent: GuestAgent
) -> None:
    await agent.ping()
    fake.answers["guest-ping"] = lambda _: fake.writers[0].close() or SILENCE
    with pytest.raises(AgentUnavailable, match="went away"):
        await agent.ping()
    fake.answers["guest-ping"] = lambda _: {}
    await agent.ping()
    assert fake.connections == 2


async def test_a_program_is_waited_for_and_its_output_decoded(
    fake: FakeAgent, agent: GuestAgent
) -> None:
    asked: list[dict[str, Any]] = []
    states = iter(
        [
            {"exited": False},
            {"exited": True, "exitcode": 3, "out-data": base64.b64encode(b"\xff\n").decode()},
        ]
    )
    fake.answers["guest-exec"] = lambda arguments: asked.append(arguments) or {"pid": 7}
    fake.answers["guest-exec-status"] = lambda _: next(states)
    finished = await agent.exec("/bin/cat", ["-"], stdin=b"\xff\n", env={"A": "b"})
    assert finished == Finished(exit_code=3, stdout=b"\xff\n", stderr=b"")
    assert asked == [
        {
            "path": "/bin/cat",
            "arg": ["-"],
            "capture-output": True,
            "env": ["A=b"],
            "input-data": "/wo=",
        }
    ]


async def test_a_program_may_print_much(fake: FakeAgent, agent: GuestAgent) -> None:
    printed = b"0123456789abcdef" * 300_000
    ended = {"exited": True, "exitcode": 0, "out-data": base64.b64encode(printed).decode()}
    fake.answers["guest-exec"] = lambda _: {"pid": 7}
    fake.answers["guest-exec-status"] = lambda _: ended
    assert (await agent.exec("/bin/cat")).stdout == printed


async def test_callers_at_the_same_time_take_turns(fake: FakeAgent, agent: GuestAgent) -> None:
    fake.answers["echo"] = lambda arguments: arguments["n"]
    answers = await asyncio.gather(*(agent.call("echo", {"n": n}) for n in range(5)))
    assert answers == [0, 1, 2, 3, 4]
