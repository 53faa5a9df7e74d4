"""`virtctl pause`, `unpause`, `soft-reboot`, `reset`, and what the guest agent reports.

That is `guestosinfo`, `userlist` and `fslist`.
"""

from __future__ import annotations

import json

import click

from livevirt.cli import cluster
from livevirt.cli.session import DRY_RUN, VMI, Session, refusals, talk
from livevirt.cli.vm.flags import Command, announce, dry_runs
from livevirt.errors import BadRequest, NotFound

_KINDS = {
    name: kind
    for kind, names in {
        "vm": ("vm", "vms", "virtualmachine", "virtualmachines"),
        "vmi": ("vmi", "vmis", "virtualmachineinstance", "virtualmachineinstances"),
    }.items()
    for name in names
}


def either(_: click.Context, __: click.Parameter, value: str) -> str:
    """Return vm or vmi for what is typed, as a callback of an argument."""
    if value.lower() not in _KINDS:
        raise click.BadParameter(f"{value!r} is neither vm nor vmi")
    return _KINDS[value.lower()]


async def _of_vm(session: Session, name: str, verb: str, body: object) -> None:
    """Do it to the instance of a VM; say so if the VM is not meant to have one."""
    from livevirt.vm import kinds

    vm = await session.client.get(kinds.VM, name, session.namespace)
    try:
        await session.ask("PUT", VMI, name, verb, body)
    except NotFound:
        spec = vm["spec"]
        if spec.get("runStrategy") == "Halted" or spec.get("running") is False:
            raise BadRequest(
                f"VirtualMachine {name} is not set to run; start it with `virtctl start {name}`"
            ) from None
        raise


def _either(sort: str, name: str, verb: str, dry_run: bool) -> None:
    body = DRY_RUN if dry_run else {}

    async def work(session: Session) -> None:
        if sort == "vm":
            await _of_vm(session, name, verb, body)
        else:
            await session.ask("PUT", VMI, name, verb, body)

    announce(dry_run)
    doing = {"pause": "pausing", "unpause": "unpausing"}[verb]
    with refusals(f"Error {doing} VirtualMachineInstance {name}: {{}}"):
        talk(work)
    click.echo(f"VMI {name} was scheduled to {verb}")


@click.command(cls=Command)
@click.argument("sort", callback=either, metavar="vm|vmi")
@click.argument("name")
@dry_runs()
@cluster.flags()
def pause(sort: str, name: str, dry_run: bool) -> None:
    """Stop the CPUs of a guest; its memory stays as it is.

    \b
    virtctl pause vm web
    virtctl pause vmi web
    """
    _either(sort, name, "pause", dry_run)


@click.command(cls=Command)
@click.argument("sort", callback=either, metavar="vm|vmi")
@click.argument("name")
@dry_runs()
@cluster.flags()
def unpause(sort: str, name: str, dry_run: bool) -> None:
    """Let a paused guest run on.

    \b
    virtctl unpause vm web
    virtctl unpause vmi web
    """
    _either(sort, name, "unpause", dry_run)


@click.command("soft-reboot", cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def soft_reboot(vmi: str) -> None:
    """Ask the guest to reboot, by its agent or else by ACPI.

    \b
    virtctl soft-reboot web
    """
    with refusals(f"Error soft rebooting VirtualMachineInstance {vmi}: {{}}"):
        talk(lambda session: session.ask("PUT", VMI, vmi, "softreboot"))
    click.echo(f"VMI {vmi} was scheduled to soft-reboot")


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def reset(vmi: str) -> None:
    """Reset the machine, as by its reset button: the guest is not asked.

    \b
    virtctl reset web
    """
    with refusals(f"Error reseting VirtualMachineInstance {vmi}: {{}}"):
        talk(lambda session: session.ask("PUT", VMI, vmi, "reset"))
    click.echo(f"VMI {vmi} was scheduled to reset")


# ---------------------------------------------------------------- what the guest agent reports


def _show(vmi: str, verb: str, failing: str) -> None:
    with refusals(f"Error {failing} VirtualMachineInstance {vmi}, {{}}"):
        answer = talk(lambda session: session.ask("GET", VMI, vmi, verb))
    click.echo(json.dumps(json.loads(answer), indent=2, ensure_ascii=False))


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def guestosinfo(vmi: str) -> None:
    """Show the guest's operating system, as reported by its agent.

    \b
    virtctl guestosinfo web
    """
    _show(vmi, "guestosinfo", "getting guestosinfo of")


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def userlist(vmi: str) -> None:
    """List who is logged in to the guest.

    \b
    virtctl userlist web
    """
    _show(vmi, "userlist", "listing users of")


@click.command(cls=Command)
@click.argument("vmi", metavar="VMI")
@cluster.flags()
def fslist(vmi: str) -> None:
    """List the file systems mounted in the guest.

    \b
    virtctl fslist web
    """
    _show(vmi, "filesystemlist", "listing filesystems of")
