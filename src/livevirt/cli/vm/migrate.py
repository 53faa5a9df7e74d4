"""`virtctl migrate` and `migrate-cancel`: move a guest to another node, or keep it where it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

import click

from livevirt.cli import cluster
from livevirt.cli.frame import waiting
from livevirt.cli.session import DRY_RUN, VM, Session, refusals, talk
from livevirt.cli.vm import wait
from livevirt.cli.vm.documents import instance, status_of
from livevirt.cli.vm.flags import Command, FlagError, announce, dry_runs, waits
from livevirt.errors import NotFound
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.migration import migratability

# ---------------------------------------------------------------- a migration as its owner sees it

#: Conditions that say why a migration is not started yet.
_HELD_UP = (
    "migrationRejectedByResourceQuota",
    "migrationBlockedByUtilityVolumes",
    "migrationBlockedByBackup",
    "migrationBlockedByVolumesChange",
)


class Outcome(Enum):
    """Where a migration can end."""

    MOVED = "the guest is on the target"
    CANCELLED = "it was cancelled"
    FAILED = "it failed"


@dataclass(frozen=True, slots=True)
class View:
    """A migration as it was seen last, and its target pod while there is one."""

    migration: Object
    source: str = ""  # the node it began on
    pod: Object | None = None
    gone: bool = False  # the migration is deleted

    @property
    def name(self) -> str:
        """The name of the migration."""
        return str(self.migration["metadata"]["name"])

    @property
    def vm(self) -> str:
        """The name of the VM."""
        return str(self.migration["spec"]["vmiName"])

    @property
    def phase(self) -> str:
        """The phase, empty at first."""
        return str(status_of(self.migration).get("phase") or "")

    @property
    def progress(self) -> Object:
        """The progress reported by the nodes, once the migration was handed to them."""
        return status_of(self.migration).get("migrationState") or {}

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop: deleting a migration is the way to."""
        return self.gone or "deletionTimestamp" in self.migration["metadata"]


def unfinished(migrations: Iterable[Object], vm: str) -> list[Object]:
    """List the migrations of a VM that have not ended."""
    return [
        each
        for each in migrations
        if each["spec"].get("vmiName") == vm and status_of(each).get("phase") not in FINAL
    ]


def outcome(view: View) -> Outcome | None:
    """Return how a migration ended; None while it goes on."""
    if view.phase == "Succeeded":
        return Outcome.MOVED
    if view.gone or (view.phase == "Failed" and view.cancelled):
        return Outcome.CANCELLED
    return Outcome.FAILED if view.phase == "Failed" else None


def state(view: View) -> str:
    """Return in a line where a migration stands."""
    target, news = _target(view), _news(view)
    where = f"{_source(view)} -> {target}" if target else f"on {_source(view)}"
    return f"{view.phase or 'accepted'}, {where}{f': {news}' if news else ''}"


def outcome_message(view: View, end: Outcome, vmi: Object | None, namespace: str) -> str:
    """Return the sentence on how a migration ended; `vmi` is the instance after it."""
    match end:
        case Outcome.MOVED:
            return f"VM {view.vm} moved from {_source(view)} to {_target(view) or node(vmi)}"
        case Outcome.CANCELLED:
            return f"the migration of VM {view.vm} was cancelled; {_whereabouts(vmi)}"
        case Outcome.FAILED:
            why = view.progress.get("failureReason") or _held_up(view) or "no reason was given"
            return (
                f"VM {view.vm} was not migrated: {why}; {_whereabouts(vmi)}; see"
                f" `kubectl describe vmim {view.name} -n {namespace}`,"
                f" try again with `virtctl migrate {view.vm} -n {namespace}`"
            )


def too_slow(view: View, seconds: float, namespace: str) -> str:
    """Return the sentence on a migration that was not waited for any longer."""
    options = f"{view.vm} -n {namespace}"
    return (
        f"VM {view.vm} still migrates after {seconds:g} s ({state(view)}), and goes on; watch it"
        f" with `virtctl migrate {options} --wait`, stop it with `virtctl migrate-cancel {options}`"
    )


def node(vmi: Object | None) -> str:
    """Return the node an instance is on."""
    return str(status_of(vmi).get("nodeName") or "")


def _source(view: View) -> str:
    return str(view.progress.get("sourceNode") or view.source)


def _target(view: View) -> str:
    return str(view.progress.get("targetNode") or _spec(view.pod).get("nodeName") or "")


def _news(view: View) -> str:
    """Return what there is to know beside the phase."""
    if view.progress.get("completed"):
        return "the guest has arrived"
    if view.cancelled or view.progress.get("abortRequested"):
        return "it is being stopped"
    return _held_up(view)


def _held_up(view: View) -> str:
    """Return why the migration does not begin: a quota, or no node for the target."""
    listed = status_of(view.migration).get("conditions")
    for type_ in _HELD_UP:
        if conditions.is_true(listed, type_):
            return str((conditions.find(listed, type_) or {}).get("message") or type_)
    scheduled = conditions.find(status_of(view.pod).get("conditions"), "PodScheduled") or {}
    return str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""


def _whereabouts(vmi: Object | None) -> str:
    if status_of(vmi).get("phase") in (None, "", *FINAL):
        return "its guest does not run"
    return f"the guest runs on {node(vmi)}"


def _spec(obj: Object | None) -> Object:
    return (obj or {}).get("spec") or {}


# ---------------------------------------------------------------- the commands


@click.command(cls=Command)
@click.argument("vm", metavar="VM")
@click.option(
    "--addedNodeSelector", "added", multiple=True, metavar="KEY=VALUE,…",
    help="Labels the node must have, beside those the VM asks for.",
)  # fmt: skip
@dry_runs()
@waits("Return when it is over.")
@cluster.flags()
def migrate(
    vm: str, added: tuple[str, ...], dry_run: bool, waits: bool, timeout: float | None
) -> int:
    """Move a running virtual machine to another node, without stopping it.

    With --wait the phases are shown, and it exits with 0 once the guest is there; a migration that
    is under way already, such as one of a node that is drained, is waited for all the same.

    \b
    virtctl migrate web
    virtctl migrate web --wait --timeout 10m
    virtctl migrate web --addedNodeSelector=kubernetes.io/hostname=node02
    virtctl migrate web --dry-run
    """
    selector = _selector(added)
    body: Object = {"addedNodeSelector": selector} if selector else {}

    async def work(session: Session) -> int:
        if not waits or dry_run:
            await session.ask("PUT", VM, vm, "migrate", body | (DRY_RUN if dry_run else {}))
            click.echo(f"VM {vm} was scheduled to migrate")
            return 0
        before = await _migrations(session)
        asked = None if selector else _under_way(before, vm)
        if asked is None:
            await session.ask("PUT", VM, vm, "migrate", body)
            click.echo(f"VM {vm} was scheduled to migrate")
            asked = await _made_since(session, vm, before)
        else:
            click.echo(f"VM {vm} is migrating already")
        end, sentence = await _ended(session, asked, timeout, f"migrating {vm}")
        click.echo(sentence, err=end is not Outcome.MOVED)
        return 0 if end is Outcome.MOVED else 1

    announce(dry_run)
    with refusals("Error migrating VirtualMachine {}"):
        return talk(work)


@click.command(cls=Command)
@click.argument("vm", metavar="VM")
@dry_runs()
@waits("Return when it is over.")
@cluster.flags()
def migrate_cancel(vm: str, dry_run: bool, waits: bool, timeout: float | None) -> int:
    """Stop the migration of a virtual machine; its guest stays where it is.

    With --wait it exits with 0 once nothing migrates any more, and with 1 if the guest was on its
    new node before the migration could be stopped.

    \b
    virtctl migrate-cancel web
    virtctl migrate-cancel web --wait
    """

    async def work(session: Session) -> int:
        found = unfinished(await _migrations(session), vm)
        if not found:
            raise click.ClickException(
                f"Found no migration to cancel for {vm}; `kubectl get vmim` lists migrations"
            )
        meta = found[0]["metadata"]
        if not dry_run:
            await session.client.delete(
                kinds.MIGRATION, meta["name"], session.namespace, uid=meta["uid"]
            )
        click.echo(f"VM {vm} was scheduled to migrate-cancel")
        if not waits or dry_run:
            return 0
        end, sentence = await _ended(session, found[0], timeout, f"stopping the migration of {vm}")
        late = end is Outcome.MOVED
        click.echo(f"too late: {sentence}" if late else sentence, err=late)
        return 1 if late else 0

    announce(dry_run)
    with refusals(f"error cancelling the migration of VirtualMachine {vm}: {{}}"):
        return talk(work)


def _selector(given: tuple[str, ...]) -> dict[str, str]:
    """Return the labels of `key=value,…`; raises FlagError."""
    found = {}
    for pair in [pair for text in given for pair in text.split(",") if pair]:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise FlagError("addedNodeSelector", f"{pair} must be formatted as key=value")
        found[key] = value
    return found


async def _migrations(session: Session) -> list[Object]:
    # Not selected by KubeVirt's label: the name of a VM may be longer than a label's value.
    return (await session.client.list(kinds.MIGRATION, session.namespace)).items


def _under_way(migrations: list[Object], vm: str) -> Object | None:
    """Return a VM's migration that is not being cancelled."""
    found = unfinished(migrations, vm)
    return next((each for each in found if "deletionTimestamp" not in each["metadata"]), None)


async def _made_since(session: Session, vm: str, before: list[Object]) -> Object:
    """Return the newer migration of a VM: the answer to the request for it does not name it."""
    known = {each["metadata"]["uid"] for each in before}
    for each in await _migrations(session):
        if each["spec"].get("vmiName") == vm and each["metadata"]["uid"] not in known:
            return each
    raise NotFound(
        f"{vm}: its migration was deleted right after it was created; run the command again"
    )


async def _ended(
    session: Session, asked: Object, limit: float | None, what: str
) -> tuple[Outcome, str]:
    """Show a migration until it is over; return how it ended, and the sentence on it."""
    name = asked["spec"]["vmiName"]
    view = View(asked, node(await instance(session, name)))
    meta = asked["metadata"]
    with waiting(what, time.monotonic) as show:

        def seen(newer: View) -> bool:
            nonlocal view
            view = newer
            show(state(view))
            return outcome(view) is not None

        def arrived(found: Object | None) -> bool:
            if found is None or found["metadata"]["uid"] != meta["uid"]:
                return seen(replace(view, gone=True))
            return seen(replace(view, migration=found))

        def placed(pod: Object | None) -> bool:
            # The pod of a failed migration may go first; why it had no node is still of interest.
            return seen(replace(view, pod=pod or view.pod))

        labels = f"{migratability.JOB}={meta['uid']}"
        try:
            async with asyncio.timeout(limit):
                await wait.first(
                    wait.follow(session, kinds.MIGRATION, meta["name"], arrived),
                    wait.follow_one(session, core.POD, placed, labels=labels),
                )
        except TimeoutError:
            text = too_slow(view, limit or 0, session.namespace)
            raise click.ClickException(text) from None
    end = outcome(view)
    assert end is not None
    return end, outcome_message(view, end, await instance(session, name), session.namespace)
