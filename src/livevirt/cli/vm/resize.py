"""`virtctl vm update-instance-type` and `update-preference`: another size by its name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from livevirt.cli import cluster
from livevirt.cli.frame import Show
from livevirt.cli.session import VM, Session, refusals, talk
from livevirt.cli.vm import plan, switch, wait
from livevirt.cli.vm.documents import INSTANCETYPES, PREFERENCES, Named, named, status_of
from livevirt.cli.vm.flags import Command, announce, dry_runs, takes_over, times_out, waits
from livevirt.cli.vm.switch import Outcome, Planned, Since, Switch
from livevirt.errors import BadRequest, Conflict
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.verdict.summary import RESTART_REQUIRED

F = TypeVar("F", bound=Callable[..., Any])

_STATUSES = {
    Outcome.LIVE: 0,
    Outcome.AT_START: 0,
    Outcome.RESTART: 2,
    Outcome.FAILED: 1,
    Outcome.WINDOW: 4,
}


@click.group()
def vm() -> None:
    """Change a virtual machine while it runs.

    \b
    virtctl vm update-instance-type web u1.small --wait
    virtctl vm update-preference web fedora --dry-run
    virtctl vm wait web
    """


def _flags(command: F) -> F:
    command = waits("Return when the guest has it or a restart is required.")(command)
    return dry_runs("Show what would become of it; change nothing.")(command)


@vm.command("update-instance-type", cls=Command)
@click.argument("name", metavar="VM")
@click.argument("to", metavar="[KIND/]NAME")
@takes_over
@_flags
@cluster.flags()
def update_instance_type(
    name: str, to: str, take_over: bool, dry_run: bool, waits: bool, timeout: float | None
) -> int:
    """Give a VM another instance type, live where that is possible.

    A VM that sets its size itself is refused: remove the field, or have it removed with
    --take-over. KIND is virtualmachineclusterinstancetype if it is left out. Naming the instance
    type the VM has takes its newest generation. With --wait it exits with 0 once the guest has it
    and with 2 if a restart is required, or 4 if it waits for the maintenance window; with
    --dry-run as `virtctl plan` does.

    \b
    virtctl vm update-instance-type web u1.small
    virtctl vm update-instance-type web u1.small --wait --timeout 1m
    virtctl vm update-instance-type web virtualmachineinstancetype/mine --dry-run
    virtctl vm update-instance-type web u1.small --take-over    # in place of memory.guest
    """
    asked = _Asked(named(to, INSTANCETYPES), dry_run, waits, timeout, take_over)
    return _update(name, asked)


@vm.command("update-preference", cls=Command)
@click.argument("name", metavar="VM")
@click.argument("to", metavar="[KIND/]NAME")
@_flags
@cluster.flags()
def update_preference(name: str, to: str, dry_run: bool, waits: bool, timeout: float | None) -> int:
    """Give a VM another preference, live where that is possible.

    KIND is virtualmachineclusterpreference if it is left out. Flags and exit status are those of
    `virtctl vm update-instance-type`.

    \b
    virtctl vm update-preference web fedora --dry-run
    virtctl vm update-preference web virtualmachinepreference/mine --wait
    """
    return _update(name, _Asked(named(to, PREFERENCES), dry_run, waits, timeout))


@vm.command("wait", cls=Command)
@click.argument("name", metavar="VM")
@times_out("How long to wait")
@cluster.flags()
def wait_for_it(name: str, timeout: float | None) -> int:
    """Show the progress of a live change; return once all changes are applied in the guest.

    Exits with 0 once it has, or if no guest runs, with 2 if something needs a restart, with 4 if
    the changes wait for the VM's maintenance window. Without a guest agent the guest cannot confirm
    a size; the last line then mentions it.

    \b
    kubectl apply -f web.yaml && virtctl vm wait web
    virtctl vm wait web --timeout 10m
    """

    async def work(session: Session) -> int:
        vm = await session.client.get(kinds.VM, name, session.namespace)
        since = Since(vm["metadata"]["generation"])
        with wait.showing(session, kinds.VM, name, timeout, f"changing {name}") as show:
            async with asyncio.timeout(timeout):
                watched = _Watched(session, vm, show)
                await watched.vm_until(lambda vm: _is_seen(vm, since))
                end = await watched.outcome(since)
        sentence = _ENDS[end]
        if end is Outcome.LIVE:
            sentence = switch.unconfirmed(watched.vmi) or sentence
        elif end is Outcome.WINDOW:
            sentence = f"{sentence} at {switch.window(watched.vm)}"
        click.echo(f"VM {name}: {sentence}", err=end is Outcome.FAILED)
        return _STATUSES[end]

    with refusals(f"error waiting for VirtualMachine {name}: {{}}"):
        return talk(work)


_ENDS = {
    Outcome.LIVE: "all changes are applied in the guest",
    Outcome.AT_START: "no guest runs, it takes effect at the next start",
    Outcome.RESTART: "something needs a restart; see `virtctl plan`",
    Outcome.FAILED: "it failed; see `kubectl describe vm`",
    Outcome.WINDOW: "the changes are applied in the maintenance window",
}


def _is_seen(vm: Object, since: Since) -> bool:
    """Return whether the controller has looked at the VM since it was edited."""
    status = status_of(vm)
    if (status.get("desiredGeneration") or 0) < since.generation:
        return False
    waits = conditions.is_true(status.get("conditions"), RESTART_REQUIRED)
    behind = (status.get("observedGeneration") or 0) < since.generation
    waits = waits or bool(switch.window(vm))
    return waits or not behind or not status.get("created") or since.failed(vm)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to switch to, and the flags."""

    to: Named
    dry_run: bool
    waits: bool
    seconds: float | None
    take_over: bool = False


def _update(name: str, asked: _Asked) -> int:
    """Switch a VM, and wait for it if asked to."""
    to, wanted = asked.to, Switch(asked.to)

    async def work(session: Session) -> int:
        namespace = session.namespace
        found = await session.client.get(kinds.VM, name, namespace)
        obj = await session.client.get(to.kind, to.name, namespace if to.kind.namespaced else "")
        conflicts = wanted.conflicts(found, obj)
        if conflicts and not asked.take_over:
            raise BadRequest(switch.refusal(conflicts, to))
        again, patch = wanted.is_made(found), wanted.patch(conflicts)
        if asked.dry_run:
            body = patch | (wanted.refresh() if again else {})
            document = json.loads(await session.ask("POST", VM, name, "plan", body))
            announce(asked.dry_run)
            plan.show(name, document)
            return plan.exit_status(document)
        changed = await session.client.patch(kinds.VM, name, namespace, patch)
        since = Since(changed["metadata"]["generation"])
        if again:
            left = await session.client.patch(
                kinds.VM, name, namespace, wanted.refresh(), subresource="status"
            )
            if wanted.has_taken(changed):
                since = Since(since.generation, switch.failure(left))
        click.echo(f"VM {name} was scheduled to use {to.title}")
        for path in conflicts:
            click.echo(f"{path} was removed from VM {name}; remove it from its manifest too")
        if not asked.waits:
            return 0
        end, sentence = await _settled(session, changed, wanted, since, asked.seconds)
        click.echo(sentence, err=end is Outcome.FAILED)
        return _STATUSES[end]

    with refusals(f"error updating VirtualMachine {name}: {{}}"):
        return talk(work)


async def _settled(
    session: Session, changed: Object, wanted: Switch, since: Since, seconds: float | None
) -> tuple[Outcome, str]:
    """Wait until the guest has what the VM was switched to, or it is known that it cannot."""
    name = changed["metadata"]["name"]
    what = f"switching {name} to {wanted.to.name}"
    with wait.showing(session, kinds.VM, name, seconds, what) as show:
        async with asyncio.timeout(seconds):
            watched = _Watched(session, changed, show)
            await watched.vm_until(
                lambda vm: wanted.is_seen(vm, since.generation) or since.failed(vm)
            )
            generation = watched.vm["metadata"]["generation"]
            # Asked for only now: what the guest is to get depends on the generation that was taken.
            # Either the instance asks for it already, or it is in this plan.
            try:
                answer = await session.ask("POST", VM, name, "plan", {})
                expected = switch.planned(json.loads(answer), generation)
            except Conflict:  # it is unknown how the guest was started
                expected = Planned(generation, restart=True)
            end = await watched.outcome(since, expected)
    return end, switch.outcome_message(end, watched.vm, watched.vmi, wanted.to)


class _Watched:
    """A VM and its instance, as last seen."""

    def __init__(self, session: Session, vm: Object, show: Show) -> None:
        self._session, self._show = session, show
        self._name = vm["metadata"]["name"]
        self.vm, self.vmi = vm, None  # type: Object, Object | None

    async def vm_until(self, holds: Callable[[Object], bool]) -> None:
        """Follow the VM until something holds of it."""

        def arrived(vm: Object | None) -> bool:
            if vm is None:
                raise wait.deleted(kinds.VM, self._name)
            self.vm = vm
            self._show(switch.state(vm, self.vmi))
            return holds(vm)

        await wait.follow(self._session, kinds.VM, self._name, arrived)

    async def outcome(self, since: Since, plan: Planned | None = None) -> Outcome:
        """Follow both until it is known how the switch ended."""
        looked = False  # at the instance
        end: Outcome | None = None

        def is_over(_: Object) -> bool:
            nonlocal end
            if end is None and looked:
                end = switch.outcome(self.vm, self.vmi, since, plan)
            return end is not None

        def arrived(vmi: Object | None) -> bool:
            nonlocal looked
            self.vmi, looked = vmi, True
            self._show(switch.state(self.vm, vmi))
            return is_over(self.vm)

        await wait.first(
            self.vm_until(is_over),
            wait.follow(self._session, kinds.VMI, self._name, arrived),
        )
        assert end is not None
        return end
