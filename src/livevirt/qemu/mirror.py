"""Copying a disk to another image while the guest runs, and letting the guest go on with that.

QEMU's mirror job does it. From the start every write of the guest goes to both sides, and is done
when both have it: once the job is ready they are the same and stay so. The job's id names the
target's node, which identifies the disk and the image, and a job that has ended stays until it is
dismissed: the next driver of QEMU finds out all there is to know by asking.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from livevirt.qemu.block_nodes import add_node, forget_node
from livevirt.qemu.disk import Disk
from livevirt.qemu.errors import CommandFailed
from livevirt.qemu.session import Session

JOB_EVENT = "JOB_STATUS_CHANGE"
_JOB_PREFIX = "copy-"
_RUNNING = ("created", "running", "paused", "ready", "standby")  # it runs until it is stopped
_CONCLUDED, _READY = "concluded", "ready"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that QEMU makes, or has made and was not seen yet."""

    target: str  # the node of the image it copies to
    status: str  # as QEMU names it
    done: int = 0
    total: int = 0
    error: str = ""

    @property
    def ready(self) -> bool:
        """Whether both sides are the same and stay so."""
        return self.status == _READY

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self.status == _CONCLUDED

    @property
    def percent(self) -> int:
        """How much is copied; what the guest writes meanwhile adds to what is to do."""
        return min(self.done, self.total) * 100 // self.total if self.total else 0


@dataclass(frozen=True, slots=True)
class StartCopy:
    """Begin to copy the image that a drive has to that of `disk`."""

    disk: Disk
    source: str  # the node
    size: int


@dataclass(frozen=True, slots=True)
class FinishCopy:
    """Let the guest go on with what `disk` was copied to; the old image stays open, unused."""

    disk: Disk


@dataclass(frozen=True, slots=True)
class EndCopy:
    """Stop a copy, or forget one that has ended."""

    target: str


def copies_of(answer: Sequence[Mapping[str, Any]]) -> tuple[Copy, ...]:
    """Read `query-jobs`."""
    return tuple(
        Copy(
            entry["id"].removeprefix(_JOB_PREFIX),
            entry["status"],
            entry.get("current-progress", 0),
            entry.get("total-progress", 0),
            entry.get("error", ""),
        )
        for entry in answer
        if entry["type"] == "mirror" and entry["id"].startswith(_JOB_PREFIX)
    )


def towards(
    disk: Disk, source: str, size: int, copies: Sequence[Copy], *, switch: bool
) -> Iterator[StartCopy | FinishCopy | EndCopy]:
    """Yield the step that brings a drive nearer to the image of `disk`; none while QEMU is at it.

    `switch`: the guest may go over once both are the same.
    """
    found = next((copy for copy in copies if copy.target == disk.node), None)
    if found is None:
        yield StartCopy(disk, source, size)
    elif found.over:
        yield EndCopy(found.target)
    elif found.ready and switch:
        yield FinishCopy(disk)


def surplus(copies: Sequence[Copy], wanted: frozenset[str]) -> list[EndCopy]:
    """List the ends of copies to images that are not wanted, or reached.

    One that is just ending is seen when it has.
    """
    return [
        EndCopy(copy.target)
        for copy in copies
        if copy.target not in wanted and (copy.over or copy.status in _RUNNING)
    ]


async def start(qmp: Session, step: StartCopy) -> None:
    """Begin a copy; its target, which may be left of an earlier attempt, is opened afresh."""
    node = step.disk.node
    await forget_node(qmp, node)
    await add_node(qmp, step.disk)
    try:
        await _fit(qmp, step)
        await qmp.execute(
            "blockdev-mirror",
            {
                "job-id": f"{_JOB_PREFIX}{node}",
                "device": step.source,
                "target": node,
                "sync": "full",
                "copy-mode": "write-blocking",
                "auto-dismiss": False,
            },
        )
    except CommandFailed:
        await forget_node(qmp, node)  # or its image would stay open and locked
        raise


async def _fit(qmp: Session, step: StartCopy) -> None:
    """Make a target that is larger as large as the disk, which QEMU insists on."""
    nodes = await qmp.execute("query-named-block-nodes", {"flat": True})
    sizes = {each["node-name"]: each["image"]["virtual-size"] for each in nodes}
    room = sizes[step.disk.node]
    if room < step.size:
        problem = f"the target holds {room} bytes and the disk has {step.size}"
        raise CommandFailed("GenericError", problem)
    if room > step.size:
        if step.disk.image is not None and step.disk.image.block:
            problem = f"the target is a block device of {room} bytes and the disk has {step.size}"
            raise CommandFailed("GenericError", f"{problem}: they must be of one size")
        size = {"node-name": step.disk.node, "size": step.size}
        await qmp.execute("block_resize", size)


async def finish(qmp: Session, step: FinishCopy) -> None:
    """Let the guest go over; return when it has, or the copy has failed."""
    job = f"{_JOB_PREFIX}{step.disk.node}"
    with qmp.listen(JOB_EVENT) as events:
        copy = await _find(qmp, job)
        if copy is None or copy.over:
            return
        if copy.ready:
            await qmp.execute("job-complete", {"id": job})
        async for event in events:
            if event.data["id"] == job and event.data["status"] == _CONCLUDED:
                return


async def end(qmp: Session, step: EndCopy) -> None:
    """Stop a copy and forget it; the drive stays on the image that it has."""
    job = f"{_JOB_PREFIX}{step.target}"
    with qmp.listen(JOB_EVENT) as events:
        copy = await _find(qmp, job)
        if copy is None:
            return
        if not copy.over:
            await qmp.execute("job-cancel", {"id": job})
            async for event in events:
                if event.data["id"] == job and event.data["status"] == _CONCLUDED:
                    break
    await qmp.execute("job-dismiss", {"id": job})


async def _find(qmp: Session, job: str) -> Copy | None:
    found = copies_of(await qmp.execute("query-jobs"))
    return next((copy for copy in found if f"{_JOB_PREFIX}{copy.target}" == job), None)
