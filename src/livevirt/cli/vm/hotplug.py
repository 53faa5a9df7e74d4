"""`virtctl addvolume`, `removevolume` and `cdrom`: volumes and CD-ROM images of a running guest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import click

from livevirt.cli import cluster
from livevirt.cli.session import DRY_RUN, VM, VMI, Session, refusals, talk
from livevirt.cli.vm import attachment, wait
from livevirt.cli.vm.attachment import Attachment, Outcome
from livevirt.cli.vm.documents import instance, status_of
from livevirt.cli.vm.flags import Command, announce, dry_runs, waits
from livevirt.errors import BadRequest, Conflict, NotFound
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.volumes.volume_lists import Lists, NotInLists

F = TypeVar("F", bound=Callable[..., Any])
Change = Callable[[Object], Object]  # from an object as it is to a merge patch of it

TRIES = 15  # when others write at the same time
UNTIL = "Return when the guest has followed or a restart is required."  # what --wait does
_BUSES = {"disk": ("scsi", "virtio"), "lun": ("scsi",)}
_CACHES = ("none", "writethrough", "writeback")
_STATUSES = {Outcome.LIVE: 0, Outcome.AT_START: 0, Outcome.RESTART: 2}


def forces(command: F) -> F:
    """Give a command `--force`."""
    return click.option(
        "--force",
        is_flag=True,
        help="Go ahead even if the guest uses it, and wait for it; data may be lost.",
    )(command)


def _persists(command: F) -> F:
    return click.option(
        "--persist", is_flag=True, expose_value=False,
        help="Accepted as KubeVirt's virtctl does; the VM is edited in any case.",
    )(command)  # fmt: skip


@click.command(cls=Command)
@click.argument("name", metavar="VM")
@click.option("--volume-name", required=True, help="The DataVolume or claim to attach.")
@click.option("--disk-name", default="", help="What to call it (default: as --volume-name).")
@click.option("--serial", default="", help="The disk's serial number (default: its name).")
@click.option("--cache", default="", help="none, writethrough or writeback.")
@click.option("--disk-type", default="disk", show_default=True, help="disk or lun.")
@click.option("--bus", default="scsi", show_default=True, help="scsi or virtio.")
@dry_runs()
@_persists
@waits(UNTIL)
@cluster.flags()
def addvolume(
    name: str, volume_name: str, disk_name: str, serial: str, cache: str, disk_type: str, bus: str,
    dry_run: bool, waits: bool, timeout: float | None,
) -> int:  # fmt: skip
    """Attach a volume to a VM while it runs.

    It is written to the VM, and the guest finds the disk by its serial number. A volume named like
    an empty CD-ROM drive goes into that drive. With --wait it exits with 0 once the guest has it
    and with 2 if a restart is required.

    \b
    virtctl addvolume web --volume-name data --wait
    virtctl addvolume web --volume-name data --serial 1234 --cache none
    virtctl addvolume web --volume-name data --bus virtio --dry-run
    """
    disk = _disk(disk_type, bus, serial or disk_name or volume_name, cache)
    volume = disk_name or volume_name

    async def work(session: Session) -> int:
        source = await find_source(session, volume_name)
        body: Object = {"name": volume, "disk": disk, "volumeSource": source}
        kind = await _ask(session, name, "addvolume", body | (DRY_RUN if dry_run else {}))
        said = "Successfully submitted add volume request to VM"
        click.echo(f"{said} {name} for volume {volume_name}")
        if not waits or dry_run:
            return 0
        return await settled(session, kind, Attachment(name, volume, volume_name), timeout)

    announce(dry_run)
    with refusals("error adding volume, {}"):
        return talk(work)


@click.command(cls=Command)
@click.argument("name", metavar="VM")
@click.option("--volume-name", required=True, help="The volume, or its DataVolume or claim.")
@forces
@dry_runs()
@_persists
@waits(UNTIL)
@cluster.flags()
def removevolume(
    name: str, volume_name: str, force: bool, dry_run: bool, waits: bool, timeout: float | None
) -> int:
    """Detach a volume from a VM while it runs.

    A disk that the guest agent knows to be mounted stays until it is unmounted, or goes at once
    with --force. The image of a CD-ROM drive is ejected, and the drive stays.

    \b
    virtctl removevolume web --volume-name data --wait
    virtctl removevolume web --volume-name data --force
    """

    async def work(session: Session) -> int:
        kind, obj, vmi = await _found(session, name)
        lists = lists_of(obj)
        volume = lists.meant(volume_name)
        # One that the guest did not release has left the spec already.
        left = force and lists.volume(volume) is None and attachment.is_leaving(vmi, volume)
        if not left:
            body: Object = {"name": volume_name}
            await _ask(session, name, "removevolume", body | (DRY_RUN if dry_run else {}))
        if force and not dry_run:
            await edit(
                session, kind, name, lambda now: {"metadata": attachment.forced(now, volume)}
            )
        said = "Successfully submitted remove volume request to VM"
        click.echo(f"{said} {name} for volume {volume_name}")
        if dry_run or not (waits or force):
            return 0
        return await settled(session, kind, Attachment(name, volume), timeout, forced=force)

    announce(dry_run)
    with refusals("error removing volume, {}"):
        return talk(work)


def _disk(disk_type: str, bus: str, serial: str, cache: str) -> Object:
    """Return the disk that the flags describe."""
    if disk_type not in _BUSES:
        raise click.ClickException(
            f"Invalid disk type '{disk_type}'. Only LUN and Disk are supported."
        )
    if bus not in _BUSES[disk_type]:
        only = "'scsi' and 'virtio' are" if disk_type == "disk" else "'scsi' bus is"
        what = "disk" if disk_type == "disk" else "LUN disk"
        raise click.ClickException(f"Invalid bus type '{bus}' for {what}. Only {only} supported.")
    if cache and cache not in _CACHES:
        raise click.ClickException(
            f"error adding volume, invalid cache value {cache}, supported values are:"
            f" {', '.join(_CACHES)}"
        )
    return {disk_type: {"bus": bus}, "serial": serial} | ({"cache": cache} if cache else {})


# ---------------------------------------------------------------- what changes of volumes share


async def find_source(session: Session, name: str) -> Object:
    """Return the source of a volume: the DataVolume of a name, else the claim."""
    for kind, source in (
        (kinds.DATA_VOLUME, {"dataVolume": {"name": name, "hotpluggable": True}}),
        (core.CLAIM, {"persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}),
    ):
        try:
            await session.client.get(kind, name, session.namespace)
        except NotFound:
            continue
        return source
    raise BadRequest(
        f"Volume {name} is not a DataVolume or PersistentVolumeClaim; create one, for example with"
        f" `livevirt volume import FILE --pvc {name}`"
    )


def lists_of(obj: Object) -> Lists:
    """Return the volumes and disks of a VM or of an instance."""
    spec = obj["spec"]
    return Lists.of((spec["template"].get("spec") or {}) if "template" in spec else spec)


async def edit(session: Session, kind: Kind, name: str, change: Change) -> None:
    """Send the merge patch that `change` makes of an object, again if others were faster."""
    for attempt in range(TRIES):
        now = await session.client.get(kind, name, session.namespace)
        patch = change(now)
        version = {"resourceVersion": now["metadata"]["resourceVersion"]}
        meta = version | (patch.get("metadata") or {})
        try:
            await session.client.patch(kind, name, session.namespace, patch | {"metadata": meta})
        except Conflict:
            if attempt == TRIES - 1:
                raise
        else:
            return


async def settled(
    session: Session, kind: Kind, change: Attachment, seconds: float | None, *, forced: bool = False
) -> int:
    """Wait until the guest has followed or it is known that it will not; return the exit status.

    Force is for this time only: the mark on the object is removed.
    """
    end, sentence = await _end(session, kind, change, seconds)
    if forced:  # or the next volume of this name would go so as well
        await edit(
            session, kind, change.owner,
            lambda now: {"metadata": attachment.unforced(now, change.volume)},
        )  # fmt: skip
    click.echo(sentence)
    return _STATUSES[end]


async def _end(
    session: Session, kind: Kind, change: Attachment, seconds: float | None
) -> tuple[Outcome, str]:
    name, last = change.owner, None
    what = f"{'attaching' if change.claim else 'detaching'} {change.volume}"
    with wait.showing(session, kind, name, seconds, what) as show:
        async with asyncio.timeout(seconds):
            if kind is kinds.VM:
                vm = await _seen(session, name)
                if why := change.staged(vm):
                    return Outcome.RESTART, change.message(Outcome.RESTART, None, why)

            def arrived(vmi: Object | None) -> bool:
                nonlocal last
                last = vmi
                show(change.state(vmi))
                return change.ends(vmi) is not None

            await wait.follow(session, kinds.VMI, name, arrived)
    end = change.ends(last)
    assert end is not None  # or it would still be followed
    return end, change.message(end, last)


async def _seen(session: Session, name: str) -> Object:
    """Return a VM once its controller has looked at it as it is now."""
    found = await session.client.get(kinds.VM, name, session.namespace)
    generation = found["metadata"]["generation"]

    def arrived(vm: Object | None) -> bool:
        nonlocal found
        if vm is None:
            raise wait.deleted(kinds.VM, name)
        found = vm
        return bool((status_of(vm).get("desiredGeneration") or 0) >= generation)

    await wait.follow(session, kinds.VM, name, arrived)
    return found


async def _ask(session: Session, name: str, verb: str, body: Object) -> Kind:
    """Ask it of the VM, or of the instance if there is no VM; return which it was."""
    try:
        await session.ask("PUT", VM, name, verb, body)
    except NotFound as missing:
        try:
            await session.ask("PUT", VMI, name, verb, body)
        except NotFound:
            raise missing from None
        return kinds.VMI
    return kinds.VM


async def _found(session: Session, name: str) -> tuple[Kind, Object, Object | None]:
    """Return the VM, or the instance if there is no VM, and the instance."""
    vmi = await instance(session, name)
    try:
        return kinds.VM, await session.client.get(kinds.VM, name, session.namespace), vmi
    except NotFound:
        if vmi is None:
            raise
    return kinds.VMI, vmi, vmi


# ---------------------------------------------------------------- CD-ROM drives


@click.group()
def cdrom() -> None:
    """Change the images in the CD-ROM drives of a VM while it runs.

    \b
    virtctl cdrom inject web cd --volume-name tools --wait
    virtctl cdrom eject web cd --wait
    """


@cdrom.command(cls=Command)
@click.argument("name", metavar="VM")
@click.argument("drive", metavar="DRIVE")
@click.option("--volume-name", required=True, help="The DataVolume or claim with the image.")
@waits(UNTIL)
@cluster.flags()
def inject(name: str, drive: str, volume_name: str, waits: bool, timeout: float | None) -> int:
    """Put an image into a drive, in place of the one it holds.

    DRIVE is the name of a disk of the VM that is a `cdrom`.

    \b
    virtctl cdrom inject web cd --volume-name tools
    virtctl cdrom inject web cd --volume-name more-tools --wait
    """

    async def work(session: Session) -> int:
        image = {"name": drive, **await find_source(session, volume_name)}
        await _edit(session, name, lambda vm: _with(lists_of(vm).with_medium(image)))
        click.echo(f"VM {name} was scheduled to have {volume_name} in drive {drive}")
        if not waits:
            return 0
        change = Attachment(name, drive, volume_name)
        return await settled(session, kinds.VM, change, timeout)

    with refusals("error injecting an image, {}"):
        return talk(work)


@cdrom.command(cls=Command)
@click.argument("name", metavar="VM")
@click.argument("drive", metavar="DRIVE")
@forces
@waits(UNTIL)
@cluster.flags()
def eject(name: str, drive: str, force: bool, waits: bool, timeout: float | None) -> int:
    """Eject the image from a drive; the drive stays.

    A guest that has the image mounted keeps it until it is unmounted, or loses it at once with
    --force.

    \b
    virtctl cdrom eject web cd --wait
    virtctl cdrom eject web cd --force
    """

    async def work(session: Session) -> int:
        vmi = await instance(session, name)

        def change(vm: Object) -> Object:
            mark = {"metadata": attachment.forced(vm, drive)} if force else {}
            lists = lists_of(vm)
            if force and lists.volume(drive) is None and attachment.is_leaving(vmi, drive):
                return mark  # the guest has not released it so far
            return _with(lists.without_medium(drive)) | mark

        await _edit(session, name, change)
        click.echo(f"VM {name} was scheduled to have drive {drive} empty")
        if not (waits or force):
            return 0
        gone = Attachment(name, drive)
        return await settled(session, kinds.VM, gone, timeout, forced=force)

    with refusals("error ejecting an image, {}"):
        return talk(work)


async def _edit(session: Session, name: str, change: Change) -> None:
    try:
        await edit(session, kinds.VM, name, change)
    except NotInLists as error:
        raise BadRequest(str(error)) from None


def _with(lists: Lists) -> Object:
    return {"spec": {"template": {"spec": lists.patch()}}}
