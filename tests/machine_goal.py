"""A machine as a test asks for it, in one piece; livevirt asks for its size and its disks apart."""

from dataclasses import dataclass

from livevirt.qemu.disk import Disk
from livevirt.qemu.plan import MachineSnapshot, Step, Wanted, disks, resize


@dataclass(frozen=True, slots=True)
class MachineGoal:
    """What the running machine should be; `disks` are all of them, empty drives too."""

    sockets: int
    memory: int
    disks: tuple[Disk, ...] = ()
    paused: bool = False


def plan(goal: MachineGoal, seen: MachineSnapshot) -> list[Step]:
    """List the steps to all of it."""
    size = Wanted(goal.sockets, goal.memory, paused=goal.paused)
    return [*resize(size, seen), *disks(goal.disks, seen)]
