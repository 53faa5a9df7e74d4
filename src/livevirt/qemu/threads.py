"""Which thread of QEMU does what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from livevirt.qemu.machine import Thread
from livevirt.qemu.session import Session


@dataclass(frozen=True, slots=True)
class Threads:
    """By the kernel's number of a thread: the vCPU that it runs, or the id of the IO thread."""

    vcpus: Mapping[int, Thread]
    io_threads: Mapping[int, str]


async def threads(qmp: Session) -> Threads:
    """Ask QEMU for its threads."""
    return Threads(
        vcpu_threads(await qmp.execute("query-cpus-fast")),
        io_threads(await qmp.execute("query-iothreads")),
    )


def vcpu_threads(answer: Sequence[Mapping[str, Any]]) -> dict[int, Thread]:
    """Read `query-cpus-fast`."""
    found = {}
    for entry in answer:
        place = entry["props"]
        thread = Thread(place["socket-id"], place["core-id"], place["thread-id"])
        found[int(entry["thread-id"])] = thread
    return found


def io_threads(answer: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Read `query-iothreads`."""
    return {int(entry["thread-id"]): str(entry["id"]) for entry in answer}
