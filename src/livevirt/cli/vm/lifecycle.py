"""`virtctl start`, `stop` and `restart`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from livevirt.cli import cluster
from livevirt.cli.session import DRY_RUN, VM, Session, refusals, talk
from livevirt.cli.vm.flags import Command, announce, dry_runs, waits

F = TypeVar("F", bound=Callable[..., Any])


def _forced(command: F) -> F:
    command = click.option(
        "--grace-period", type=int, default=-1, metavar="SECONDS",
        help="How long the guest may take to shut down; needs --force.",
    )(command)  # fmt: skip
    return click.option("--force", is_flag=True, help="Do not wait for the guest.")(command)


def _grace(force: bool, grace_period: int) -> int | None:
    if force != (grace_period >= 0):
        raise click.ClickException("Must both use --force=true and set --grace-period.")
    return grace_period if force else None


@click.command(cls=Command)
@click.argument("vm", metavar="VM")
@click.option("--paused", is_flag=True, help="Load the guest but do not run it yet.")
@dry_runs()
@waits("Return when it is done.")
@cluster.flags()
def start(vm: str, paused: bool, dry_run: bool, waits: bool, timeout: float | None) -> None:
    """Start a virtual machine.

    With --wait it shows why the guest does not run yet, and exits with 1 at once if it cannot run
    until it is fixed, such as by importing its image.

    \b
    virtctl start web                # ask for it and return
    virtctl start web --wait         # return when the guest is ready
    virtctl start web --wait --timeout 2m
    virtctl start web --paused       # load it, run it later: virtctl unpause vm web
    """
    body: dict[str, Any] = {"paused": True} if paused else {}

    async def work(session: Session) -> None:
        await session.ask("PUT", VM, vm, "start", body | (DRY_RUN if dry_run else {}))
        click.echo(f"VM {vm} was scheduled to start")
        if waits and not dry_run:
            from livevirt.cli.vm import wait
            from livevirt.vm import kinds

            goal = wait.paused if paused else wait.started
            await wait.until_running(session, kinds.VM, vm, goal, timeout, f"starting {vm}")

    announce(dry_run)
    with refusals("Error starting VirtualMachine {}"):
        talk(work)


@click.command(cls=Command)
@click.argument("vm", metavar="VM")
@_forced
@dry_runs()
@waits("Return when it is done.")
@cluster.flags()
def stop(
    vm: str, force: bool, grace_period: int, dry_run: bool, waits: bool, timeout: float | None
) -> None:
    """Stop a virtual machine.

    \b
    virtctl stop web                             # as by its power button
    virtctl stop web --wait                      # return when it is off
    virtctl stop web --force --grace-period=0    # pull the plug
    """
    grace = _grace(force, grace_period)
    body: dict[str, Any] = {} if grace is None else {"gracePeriod": grace}

    async def work(session: Session) -> None:
        await session.ask("PUT", VM, vm, "stop", body | (DRY_RUN if dry_run else {}))
        click.echo(f"VM {vm} was scheduled to stop")
        if waits and not dry_run:
            from livevirt.cli.vm import wait
            from livevirt.vm import kinds

            await wait.until(session, kinds.VM, vm, wait.stopped, timeout, f"stopping {vm}")

    announce(dry_run)
    forced = "error force stopping VirtualMachine: {}"
    with refusals(forced if force else "error stopping VirtualMachine {}"):
        talk(work)


@click.command(cls=Command)
@click.argument("vm", metavar="VM")
@_forced
@dry_runs()
@waits("Return when it is done.")
@cluster.flags()
def restart(
    vm: str, force: bool, grace_period: int, dry_run: bool, waits: bool, timeout: float | None
) -> None:
    """Stop a virtual machine and start it again.

    \b
    virtctl restart web                             # also applies changes that need a restart
    virtctl restart web --wait                      # return when the new guest is ready
    virtctl restart web --force --grace-period=0    # pull the plug first
    """
    grace = _grace(force, grace_period)
    body: dict[str, Any] = {} if grace is None else {"gracePeriodSeconds": grace}

    async def work(session: Session) -> None:
        from livevirt.cli.vm import wait
        from livevirt.vm import kinds

        before = await wait.uid_of(session, vm) if waits else ""
        await session.ask("PUT", VM, vm, "restart", body | (DRY_RUN if dry_run else {}))
        click.echo(f"VM {vm} was scheduled to restart")
        if waits and not dry_run:
            goal = wait.replaced(before)
            await wait.until_running(session, kinds.VMI, vm, goal, timeout, f"restarting {vm}")

    announce(dry_run)
    forced = "error force restarting VirtualMachine: {}"
    with refusals(forced if force else "error restarting VirtualMachine: {}"):
        talk(work)
