"""`virtctl cdrom inject` and `eject`: discs into and out of the CD-ROM drives of a VM."""

from __future__ import annotations

import click

from livevirt.cli import cluster
from livevirt.cli.session import Session, refusals, talk
from livevirt.cli.vm import attachment, hotplug
from livevirt.cli.vm.attachment import Attachment
from livevirt.cli.vm.flags import Command, waits
from livevirt.cli.vm.objects import instance
from livevirt.errors import BadRequest
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.volumes.volume_lists import Lists, NotInLists


@click.group()
def cdrom() -> None:
    """Change the discs in the CD-ROM drives of a VM while it runs.

    \b
    virtctl cdrom inject web cd --volume-name tools --wait
    virtctl cdrom eject web cd --wait
    """


@cdrom.command(cls=Command)
@click.argument("name", metavar="VM")
@click.argument("drive", metavar="DRIVE")
@click.option("--volume-name", required=True, help="The DataVolume or claim with the disc.")
@waits(hotplug.UNTIL)
@cluster.flags()
def inject(name: str, drive: str, volume_name: str, waits: bool, timeout: float | None) -> int:
    """Put a disc into a drive, in place of the one it holds.

    DRIVE is the name of a disk of the VM that is a `cdrom`.

    \b
    virtctl cdrom inject web cd --volume-name tools
    virtctl cdrom inject web cd --volume-name more-tools --wait
    """

    async def work(session: Session) -> int:
        disc = {"name": drive, **await hotplug.find_source(session, volume_name)}
        await _edit(session, name, lambda vm: _with(hotplug.lists_of(vm).with_disc(disc)))
        click.echo(f"VM {name} was scheduled to have {volume_name} in drive {drive}")
        if not waits:
            return 0
        change = Attachment(name, drive, volume_name)
        return await hotplug.settled(session, kinds.VM, change, timeout)

    with refusals("error injecting a disc, {}"):
        return talk(work)


@cdrom.command(cls=Command)
@click.argument("name", metavar="VM")
@click.argument("drive", metavar="DRIVE")
@hotplug.forces
@waits(hotplug.UNTIL)
@cluster.flags()
def eject(name: str, drive: str, force: bool, waits: bool, timeout: float | None) -> int:
    """Take the disc out of a drive; the drive stays.

    A guest that has the disc mounted holds it until it is unmounted, or loses it at once with
    --force.

    \b
    virtctl cdrom eject web cd --wait
    virtctl cdrom eject web cd --force
    """

    async def work(session: Session) -> int:
        vmi = await instance(session, name)

        def change(vm: Object) -> Object:
            mark = {"metadata": attachment.forced(vm, drive)} if force else {}
            lists = hotplug.lists_of(vm)
            if force and lists.volume(drive) is None and attachment.is_leaving(vmi, drive):
                return mark  # the guest would not let go of it so far
            return _with(lists.without_disc(drive)) | mark

        await _edit(session, name, change)
        click.echo(f"VM {name} was scheduled to have drive {drive} empty")
        if not (waits or force):
            return 0
        gone = Attachment(name, drive)
        return await hotplug.settled(session, kinds.VM, gone, timeout, forced=force)

    with refusals("error ejecting a disc, {}"):
        return talk(work)


async def _edit(session: Session, name: str, change: hotplug.Change) -> None:
    try:
        await hotplug.edit(session, kinds.VM, name, change)
    except NotInLists as error:
        raise BadRequest(str(error)) from None


def _with(lists: Lists) -> Object:
    return {"spec": {"template": {"spec": lists.patch()}}}
