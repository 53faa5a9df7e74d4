"""Memory as the guest's kernel manages it: blocks that are online or offline, by its agent.

virtio-mem reports what the guest's driver has plugged in, in steps of 2 MiB. Whether the kernel
uses it is another question: memory appears in blocks (128 MiB on most x86 guests), and a kernel may
leave new blocks offline until they are brought online. The agent lists the blocks.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.errors import CommandFailed

BLOCKS, SET_BLOCKS = "guest-get-memory-blocks", "guest-set-memory-blocks"
BLOCK_INFO = "guest-get-memory-block-info"
AUTO_ONLINE = "/sys/devices/system/memory/auto_online_blocks"
_BLOCK_STATE = "/sys/devices/system/memory/memory{}/state"
POSSIBLE_CPUS = "/sys/devices/system/cpu/possible"
MOVABLE = "online_movable"  # what AUTO_ONLINE holds once new memory can be taken away again
_OVERRIDDEN = ("offline", "online")  # what distributions ship; anything else was chosen by a user
_LONGEST_FILE = 4096


class MemoryBlock(msgspec.Struct, frozen=True, rename="kebab"):
    """A block of the guest's memory by its number: its address divided by the block size."""

    phys_index: int
    online: bool


class _BlockInfo(msgspec.Struct, frozen=True):
    size: int


class _BlockResult(msgspec.Struct, frozen=True, rename="kebab"):
    phys_index: int
    response: str


class _FileContent(msgspec.Struct, frozen=True, rename={"data": "buf-b64"}):
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """The blocks that the guest's kernel has, in the order of their addresses.

    The default is what an agent that can list them reports while nothing is plugged in.
    """

    block_size: int = 0
    blocks: tuple[MemoryBlock, ...] = ()

    def offline(self, start: int, length: int) -> tuple[int, ...]:
        """Return the numbers of the blocks in a range of addresses that are offline."""
        return tuple(each.phys_index for each in self._within(start, length) if not each.online)

    def in_use(self, start: int, length: int, plugged: int) -> int:
        """Return how much of the plugged memory in a range of addresses the kernel uses.

        Blocks are larger than what is plugged at a time, so the sum of those online is too much;
        and a block that is being added may not be listed yet. Whichever is less is certain.
        """
        within = self._within(start, length)
        online = sum(each.online for each in within) * self.block_size
        offline = (len(within) * self.block_size) - online
        return max(0, min(plugged - offline, online))

    def _within(self, start: int, length: int) -> list[MemoryBlock]:
        if self.block_size <= 0:
            return []
        first, last = start // self.block_size, (start + length - 1) // self.block_size
        return [each for each in self.blocks if first <= each.phys_index <= last]


async def read(agent: GuestAgent, block_size: int = 0) -> GuestMemory:
    """Return the guest's blocks; raises CommandFailed if its agent cannot list them.

    Their size stays the same until the guest boots again, and is asked for if it is not given.
    """
    size = block_size or (await agent.ask(BLOCK_INFO, _BlockInfo)).size
    found = await agent.ask(BLOCKS, tuple[MemoryBlock, ...])
    return GuestMemory(size, tuple(sorted(found, key=lambda each: each.phys_index)))


async def online_as_movable(agent: GuestAgent, blocks: Iterable[int]) -> tuple[int, ...]:
    """Bring blocks online where they can be taken away again; return those that are not.

    These are all of them if the agent may not write files, else those that the kernel refuses.
    """
    refused = []
    for number in blocks:
        try:
            await _write_file(agent, _BLOCK_STATE.format(number), MOVABLE)
        except CommandFailed:
            refused.append(number)
    return tuple(refused)


async def bring_online(agent: GuestAgent, blocks: Iterable[int]) -> int:
    """Bring blocks online by the agent's own command; return how many are.

    It leaves the zone to the kernel, which takes Normal: such memory may not shrink.
    """
    wanted = [{"phys-index": number, "online": True} for number in blocks]
    answers = await agent.ask(SET_BLOCKS, tuple[_BlockResult, ...], {"mem-blks": wanted})
    return sum(each.response == "success" for each in answers)


async def online_new_blocks(agent: GuestAgent) -> str:
    """Make the kernel bring new memory online where it can be taken away again.

    Returns the kernel's setting as it is then. Raises CommandFailed if the agent may not read it.
    """
    setting = await _read_file(agent, AUTO_ONLINE)
    if setting in _OVERRIDDEN:
        await _write_file(agent, AUTO_ONLINE, MOVABLE)
        setting = await _read_file(agent, AUTO_ONLINE)
    return setting


async def possible_cpus(agent: GuestAgent) -> int | None:
    """Return how many CPUs the kernel can register until it boots again, None if not known."""
    return count_cpus(await _read_file(agent, POSSIBLE_CPUS))


def count_cpus(listed: str) -> int | None:
    """Return how many CPUs a kernel's list such as `0-3,5` names, None if it is no such list."""
    count = 0
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return None
        count += int(last or first) - int(first) + 1
    return count


async def _read_file(agent: GuestAgent, path: str) -> str:
    handle = await agent.ask("guest-file-open", int, {"path": path, "mode": "r"})
    try:
        arguments = {"handle": handle, "count": _LONGEST_FILE}
        content = (await agent.ask("guest-file-read", _FileContent, arguments)).data
    finally:
        await _close(agent, handle)
    return content.decode(errors="replace").strip()


async def _write_file(agent: GuestAgent, path: str, text: str) -> None:
    handle = await agent.ask("guest-file-open", int, {"path": path, "mode": "w"})
    data = base64.b64encode(text.encode()).decode()
    try:
        await agent.call("guest-file-write", {"handle": handle, "buf-b64": data})
        # The agent writes through a buffer: an error of the kernel shows here at the earliest.
        await agent.call("guest-file-flush", {"handle": handle})
    finally:
        await _close(agent, handle)


async def _close(agent: GuestAgent, handle: int) -> None:
    with contextlib.suppress(CommandFailed):
        await agent.call("guest-file-close", {"handle": handle})
