"""Memory blocks as a guest's kernel has them, and what of the plugged memory it uses."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.qemu import guest_memory
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.guest_memory import GuestMemory, MemoryBlock

MIB = 2**20
BLOCK = 128 * MIB
START, LENGTH = 32 * BLOCK, 8 * BLOCK  # of the device; what is below is memory of the boot


def blocks(**states: bool) -> GuestMemory:
    """Return a guest with two blocks of the boot, and those named by number."""
    listed = {0: True, 1: True} | {int(name[1:]): online for name, online in states.items()}
    return GuestMemory(BLOCK, tuple(MemoryBlock(n, online) for n, online in sorted(listed.items())))


USES = {
    "nothing is plugged": (blocks(), 0, 0),
    "all is online": (blocks(b32=True, b33=True), 256, 256),
    "a part of a block is plugged": (blocks(b32=True, b33=True), 200, 200),
    "all is offline": (blocks(b32=False, b33=False), 256, 0),
    "one of two is offline": (blocks(b32=True, b33=False), 256, 128),
    "a part of an offline block is plugged": (blocks(b32=True, b33=False), 200, 72),
    "a block is not listed yet": (blocks(b32=True), 256, 128),
    "a block beyond the device": (blocks(b32=True, b40=False), 128, 128),
    "the agent was not asked since": (GuestMemory(), 256, 0),
}


@pytest.mark.parametrize(("memory", "plugged", "used"), USES.values(), ids=USES)
def test_what_the_kernel_uses_of_the_plugged_memory(
    memory: GuestMemory, plugged: int, used: int
) -> None:
    assert memory.in_use(START, LENGTH, plugged * MIB) == used * MIB


@given(st.dictionaries(st.integers(30, 42), st.booleans()), st.integers(0, 8 * 64))
def test_it_is_never_more_than_is_plugged_or_online(states: dict[int, bool], steps: int) -> None:
    memory = GuestMemory(BLOCK, tuple(MemoryBlock(n, up) for n, up in sorted(states.items())))
    used = memory.in_use(START, LENGTH, steps * 2 * MIB)
    online = sum(up for n, up in states.items() if 32 <= n < 40) * BLOCK
    assert 0 <= used <= min(steps * 2 * MIB, online)


def test_only_offline_blocks_of_the_device_are_brought_online() -> None:
    memory = blocks(b1=False, b32=False, b33=True, b34=False, b40=False)
    assert memory.offline(START, LENGTH) == (32, 34)


LISTS = {"0": 1, "0-3": 4, "0-1,4-5": 4, "": None, "all": None, "0-": 1}


@pytest.mark.parametrize(("listed", "count"), LISTS.items())
def test_cpus_of_a_kernels_list_are_counted(listed: str, count: int | None) -> None:
    assert guest_memory.count_cpus(listed) == count


class Files:
    """An agent with some of the guest's files, which a kernel may refuse to have written."""

    def __init__(self, **files: str) -> None:
        self.files = {guest_memory.AUTO_ONLINE: files["setting"]}
        self.refuses = False
        self.open: dict[int, str] = {}

    async def ask(self, command: str, type_: type, arguments: Any = None) -> Any:
        answer = await self.call(command, arguments)
        if command == "guest-file-read":
            return type_(data=base64.b64decode(answer["buf-b64"]))
        return answer

    async def call(self, command: str, arguments: Any = None) -> Any:
        match command:
            case "guest-file-open":
                self.open[len(self.open) + 1] = arguments["path"]
                return len(self.open)
            case "guest-file-read":
                text = self.files[self.open[arguments["handle"]]]
                return {"buf-b64": base64.b64encode(f"{text}\n".encode()).decode()}
            case "guest-file-write" if self.refuses:
                raise CommandFailed("GenericError", "Permission denied")
            case "guest-file-write":
                text = base64.b64decode(arguments["buf-b64"]).decode()
                self.files[self.open[arguments["handle"]]] = text
        return {}


SETTINGS = {
    "offline": "online_movable",
    "online": "online_movable",
    "online_movable": "online_movable",
    "online_kernel": "online_kernel",
}


@pytest.mark.parametrize(("shipped", "after"), SETTINGS.items())
async def test_the_kernel_is_made_to_online_memory_that_can_be_taken_away(
    shipped: str, after: str
) -> None:
    agent: Any = Files(setting=shipped)
    assert await guest_memory.online_new_blocks(agent) == after
    assert agent.files[guest_memory.AUTO_ONLINE] == after


async def test_given_the_agent_may_not_write_then_that_is_an_error() -> None:
    agent: Any = Files(setting="offline")
    agent.refuses = True
    with pytest.raises(CommandFailed):
        await guest_memory.online_new_blocks(agent)
