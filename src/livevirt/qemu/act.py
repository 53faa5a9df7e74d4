"""Doing one step of a plan. Safe to repeat: what is already so is left so.

Listens before asking, since the outcome of some requests is an event. Waits as long as the guest
does; callers set the deadline with `asyncio.timeout` and plan again after it.
"""

from typing import Any

from livevirt.qemu import balloon, cmdline, disk, mirror
from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.balloon import LowMemory, PollBalloon, SetBalloon
from livevirt.qemu.block_nodes import add_node, forget_node
from livevirt.qemu.disk import Disk
from livevirt.qemu.errors import AgentUnavailable, CommandFailed, UnplugRefused
from livevirt.qemu.mirror import EndCopy, FinishCopy, StartCopy
from livevirt.qemu.observe import PERIPHERALS, Drive, devices_of, drives_of
from livevirt.qemu.plan import (
    Blocked,
    ChangeMedium,
    CloseImage,
    EndThread,
    GrowDisk,
    OnlineMemory,
    PlugCpu,
    PlugDisk,
    PrepareMemory,
    RequestMemory,
    SetVcpus,
    Step,
    UnplugCpu,
    UnplugDisk,
)
from livevirt.qemu.session import Session

_OBJECTS = "/objects"  # where backends and threads with an id are


async def act(step: Step, qmp: Session, agent: GuestAgent | None = None) -> None:
    """Do one step; return when QEMU, or the guest where it has a say, has done it."""
    match step:
        case PlugCpu(type, thread):
            # An emulated one needs room, which is the caller's to see to (`translation.room`).
            await add_device(qmp, cmdline.cpu_device(type, thread.id, *thread))
        case UnplugCpu(id):
            await unplug(qmp, id)
        case SetVcpus(ids, online):
            await _set_vcpus(agent, ids, online=online)
        case RequestMemory(size):
            await _request_memory(qmp, size)
        case SetBalloon():
            await balloon.inflate(qmp, step)
        case PollBalloon(seconds):
            await balloon.poll(qmp, seconds)
        case PlugDisk(drive, place):
            await _plug_disk(qmp, drive, dict(place))
        case UnplugDisk(id, node):
            await _unplug_disk(qmp, id)
            await forget_node(qmp, node)
        case ChangeMedium(drive, force):
            await _change_medium(qmp, drive, force=force)
        case GrowDisk(_, node, size):
            await qmp.execute("block_resize", {"node-name": node, "size": size})
        case StartCopy():
            await mirror.start(qmp, step)
        case FinishCopy():
            await mirror.finish(qmp, step)
        case EndCopy():
            await mirror.end(qmp, step)
        case CloseImage(node):
            await forget_node(qmp, node)
        case EndThread(id):
            await _end_thread(qmp, id)
        case Blocked() | LowMemory() | PrepareMemory() | OnlineMemory():
            pass  # the last two are the guest agent's alone, and its client's to remember


async def forget_files(qmp: Session) -> None:
    """Let QEMU close the files that an earlier session handed over and had no time to close.

    What uses one has a copy of its own. Call it before this session hands over any.
    """
    for each in await qmp.execute("query-fdsets"):
        await qmp.execute("remove-fd", {"fdset-id": each["fdset-id"]})


async def unplug(qmp: Session, device: str) -> None:
    """Detach a device; return once the guest has released it."""
    # device_del only asks and the outcome is an event, so listen before asking.
    with qmp.listen("DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR") as events:
        try:
            await qmp.execute("device_del", {"id": device})
        except CommandFailed as error:
            if error.kind == "DeviceNotFound":
                return  # already gone, which is what was asked for
            raise
        async for event in events:  # raises Disconnected if QEMU goes away
            if event.data.get("device") == device:
                if event.name == "DEVICE_UNPLUG_GUEST_ERROR":
                    raise UnplugRefused(f"the guest kept {device}")
                return


async def _set_vcpus(agent: GuestAgent | None, ids: tuple[int, ...], *, online: bool) -> None:
    if agent is None:
        raise AgentUnavailable("the machine has no guest agent channel")
    done = await agent.set_vcpus(ids, online=online)
    if done < len(ids):
        raise UnplugRefused(f"the guest changed {done} of {len(ids)} CPUs")


async def _request_memory(qmp: Session, size: int) -> None:
    # How far the guest follows is seen in `observe`, and reported by MEMORY_DEVICE_SIZE_CHANGE.
    path = f"{PERIPHERALS}/{cmdline.MEMORY_DEVICE}"
    await qmp.execute("qom-set", {"path": path, "property": "requested-size", "value": size})


async def _plug_disk(qmp: Session, drive: Disk, place: dict[str, Any]) -> None:
    bridge = disk.bridge(drive)
    if drive.image is not None:
        await add_node(qmp, drive)  # first: it fails most, and then nothing is left to undo
    try:
        if bridge is not None:
            await add_device(qmp, bridge)
        if drive.io_thread is not None:
            await _add_thread(qmp, drive.io_thread)
        await add_device(qmp, disk.device(drive, place))
    except CommandFailed:
        await forget_node(qmp, drive.node)  # or its image would stay open and locked
        raise
    if bridge is not None:
        # A bridge that is plugged hides until all that is behind it is there.
        path = f"{PERIPHERALS}/{bridge['id']}"
        await qmp.execute("qom-set", {"path": path, "property": "attached", "value": True})


async def add_device(qmp: Session, device: dict[str, Any]) -> None:
    """Plug a device in unless it is there; that is looked up only if QEMU refuses."""
    try:
        await qmp.execute("device_add", device)
    except CommandFailed:
        if device["id"] not in devices_of(await qmp.execute("qom-list", {"path": PERIPHERALS})):
            raise


async def _add_thread(qmp: Session, id: str) -> None:
    if id not in devices_of(await qmp.execute("qom-list", {"path": _OBJECTS})):
        await qmp.execute("object-add", {"qom-type": "iothread", "id": id})


async def _end_thread(qmp: Session, id: str) -> None:
    if id in devices_of(await qmp.execute("qom-list", {"path": _OBJECTS})):
        await qmp.execute("object-del", {"id": id})


async def _unplug_disk(qmp: Session, id: str) -> None:
    there = devices_of(await qmp.execute("qom-list", {"path": PERIPHERALS}))
    if there.get(id) == "scsi-cd":
        # QEMU never releases the medium of a drive that was plugged empty and goes as it is.
        await _with_open_tray(qmp, id, "blockdev-remove-medium", force=True)
    bridge = disk.bridge_id(id)
    await unplug(qmp, bridge if bridge in there else id)  # what is behind a bridge goes with it


async def _change_medium(qmp: Session, drive: Disk, *, force: bool) -> None:
    """Open the tray, swap what is inside, close it; a locked tray raises `UnplugRefused`."""
    before = await _drive(qmp, drive.id)
    if before.node == drive.node:
        if before.tray_open:
            await qmp.execute("blockdev-close-tray", {"id": drive.id})
        return
    if drive.image is not None:
        await add_node(qmp, drive)  # first: an image that cannot be opened changes nothing
    try:
        await _with_open_tray(qmp, drive.id, "blockdev-remove-medium", force=force)
    except (CommandFailed, UnplugRefused):
        await forget_node(qmp, drive.node)
        raise
    await forget_node(qmp, before.node)
    if drive.image is not None:
        await _with_open_tray(qmp, drive.id, "blockdev-insert-medium", force=True, node=drive.node)
    await qmp.execute("blockdev-close-tray", {"id": drive.id})


async def _with_open_tray(
    qmp: Session, id: str, command: str, *, force: bool, node: str | None = None
) -> None:
    """Run a command that needs an open tray; open it again if the guest closes it in between.

    A reset of the SCSI bus closes the tray. Firmware and kernels reset the bus while they boot.
    """
    arguments = {"id": id} if node is None else {"id": id, "node-name": node}
    for last in (False, False, True):
        await qmp.execute("blockdev-open-tray", {"id": id, "force": force})
        if not force and (drive := await _drive(qmp, id)).locked and not drive.tray_open:
            # The guest has been asked to open the tray and decides whether and when it does.
            raise UnplugRefused(f"the guest holds the medium in {id}: unmount it there")
        try:
            await qmp.execute(command, arguments)
        except CommandFailed:
            if last or (await _drive(qmp, id)).tray_open:
                raise
        else:
            return


async def _drive(qmp: Session, id: str) -> Drive:
    for drive in drives_of(await qmp.execute("query-block"), {}):
        if drive.id == id:
            return drive
    raise CommandFailed("DeviceNotFound", f"there is no drive {id}")
