"""A guest whose agent answers with much, with nonsense, or with text made to mislead."""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.errors import AgentUnavailable

MIB = 2**20


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[GuestAgent]:
    """Run an agent that gives this answer; only the agreement on a number and `exec` succeed."""

    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while line := await reader.readline():
            message = json.loads(line.rpartition(b"\xff")[2])
            if message["execute"] == "guest-sync-delimited":
                number = message["arguments"]["id"]
                writer.write(b"\xff" + json.dumps({"return": number}).encode() + b"\n")
            elif message["execute"] == "guest-exec":
                writer.write(b'{"return":{"pid":1}}\n')
            else:
                writer.write(answer)
        writer.close()

    with tempfile.TemporaryDirectory(prefix="lv-") as folder:
        path = str(Path(folder, "agent.sock"))
        async with await asyncio.start_unix_server(serve, path), GuestAgent(path) as agent:
            yield agent
        for writer in writers:
            writer.close()


def peak() -> int:
    """Return the most memory that this process has ever used, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def test_given_64_mib_of_small_values_then_memory_stays_bounded() -> None:
    filler = b"[]," * (20 * MIB)  # decoded as Python lists it takes gigabytes
    answer = b'{"return":{"exited":true,"filler":[' + filler + b"0]}}\n"
    before = peak()
    async with answering(answer) as agent:
        finished = await agent.exec("/bin/true")
    assert finished.stdout == b""
    assert peak() - before < 400  # the answer itself, a few times


async def test_given_a_list_that_is_too_long_then_it_is_no_answer() -> None:
    users = [{"user": "u", "login-time": 1.0}] * 9000
    async with answering(json.dumps({"return": users}).encode() + b"\n") as agent:
        with pytest.raises(AgentUnavailable):
            await agent.users()


async def test_given_addresses_and_names_that_are_none_then_they_are_left_out() -> None:
    good = {"ip-address": "10.0.2.15", "ip-address-type": "ipv4", "prefix": 24}
    bad = [
        good | {"ip-address": "10.0.2.15\nInjected: yes"},
        good | {"ip-address": "attacker.example"},
        good | {"ip-address-type": "ipv6"},
        good | {"prefix": 33},
    ]
    card = {
        "name": "eth0\x1b[2J" + "x" * 1000,
        "hardware-address": "52:54:00:00:00:01<script>",
        "ip-addresses": [*bad, good],
    }
    async with answering(json.dumps({"return": [card]}).encode() + b"\n") as agent:
        (found,) = await agent.interfaces()
    assert [each.ip_address for each in found.ip_addresses] == ["10.0.2.15"]
    assert found.hardware_address == ""
    assert found.name.isprintable()
    assert len(found.name) == 256


async def test_given_names_with_control_characters_then_they_are_cleaned() -> None:
    answer = {"return": {"host-name": "web\r\nroot", "pretty-name": "Debian\x00\x1b[31m"}}
    async with answering(json.dumps(answer).encode() + b"\n") as agent:
        assert (await agent.hostname()).isprintable()
        assert (await agent.osinfo()).pretty_name.isprintable()
