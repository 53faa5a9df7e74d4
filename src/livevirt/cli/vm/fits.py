"""`virtctl what-fits`: which instance types a VM can have, and at what price."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import click

from livevirt.cli import cluster, table
from livevirt.cli.session import VM, Session, refusals, talk
from livevirt.cli.table import Row
from livevirt.cli.vm.documents import INSTANCETYPES, Named
from livevirt.cli.vm.flags import Command, takes_over
from livevirt.cli.vm.switch import Switch
from livevirt.kube.objects import quantity
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds


class Reach(StrEnum):
    """How an instance type can be had, the easiest first."""

    LIVE = "live"
    START = "next start"
    WAITS = "live, will wait"
    NO_NODE = "next start, will wait"
    RESTART = "restart"
    NO = "no"


_ORDER = tuple(Reach)
_COLOURS = {Reach.WAITS: "cyan", Reach.NO_NODE: "cyan", Reach.RESTART: "yellow", Reach.NO: "red"}
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """How one instance type can be had."""

    to: Named
    spec: Object
    reach: Reach
    why: str
    current: bool = False  # it is the one the VM has
    conflicts: tuple[str, ...] = ()  # fields that stand against it: the VM sets them too

    @property
    def vcpus(self) -> int | None:
        """Its vCPUs, None if the VM gives them."""
        return (self.spec.get("cpu") or {}).get("guest")

    @property
    def memory(self) -> str | None:
        """Its memory, None if the VM gives it."""
        return (self.spec.get("memory") or {}).get("guest")


def fit(vm: Object, obj: Object, to: Named, plan: Object, conflicts: Iterable[str] = ()) -> Fit:
    """Return the result of a plan that switches a VM to an instance type.

    `conflicts` are fields that the VM sets itself and that the plan does not remove.
    """
    reach, against = _reach(plan), tuple(conflicts)
    why = _why(plan, reach) if not against else f"the VM sets {', '.join(map(_short, against))}"
    return Fit(to, obj["spec"], reach, why, Switch(to).is_made(vm), against)


def _reach(plan: Object) -> Reach:
    if plan["verdict"] == "Refused":
        return Reach.NO
    if not plan["running"]:
        return Reach.START if _places(plan)["nodes"] else Reach.NO_NODE
    if plan["verdict"] == "Restart":
        return Reach.RESTART
    return Reach.WAITS if plan["waits"] else Reach.LIVE


def _places(plan: Object) -> Object:
    """Return where a guest that does not run could start; if unknown, assume that it can."""
    return plan.get("placement") or {"nodes": [""], "message": ""}


def _why(plan: Object, reach: Reach) -> str:
    """Return what decides: the fields that stand against it, or what changes if none does."""
    if reach is Reach.NO_NODE:
        return str(_places(plan)["message"])
    deciding = [change for change in plan["changes"] if _decides(change, reach)]
    reasons = [_reason(change, reach) for change in deciding[:_MOST_REASONS]]
    if len(deciding) > _MOST_REASONS:
        reasons.append(f"{len(deciding) - _MOST_REASONS} more")
    return "; ".join(reasons)


def _decides(change: Object, reach: Reach) -> bool:
    match reach:
        case Reach.NO:
            return bool(change["verdict"] == "Refused")
        case Reach.RESTART:  # what another field holds back is not the cause
            return bool(change["verdict"] == "Restart" and change["reason"] != "HeldBack")
        case Reach.WAITS:
            return bool(change.get("waits"))
        case _:
            return True


def _reason(change: Object, reach: Reach) -> str:
    from livevirt.vm.verdict.summary import compact

    path = _short(change["path"])
    if reach not in (Reach.LIVE, Reach.START):
        return f"{path}: {change['message']}"
    values = [compact(change["path"], change[side]).strip('"') for side in ("from", "to")]
    return f"{path} {' -> '.join(values)}"


def _short(path: str) -> str:
    """Return the path of a field without what all fields of a domain have in front."""
    from livevirt.vm.verdict.comparison import TEMPLATE

    return path.removeprefix(f"{TEMPLATE}.").removeprefix("domain.")


def ordered(fits: Iterable[Fit]) -> list[Fit]:
    """Return them with the easiest first, and each sort by size."""

    def place(each: Fit) -> tuple[Any, ...]:
        memory = quantity.parse(each.memory) if each.memory else quantity.ZERO
        return _ORDER.index(each.reach), each.vcpus or 0, memory, each.to.name

    return sorted(fits, key=place)


def document(fits: Iterable[Fit]) -> list[Object]:
    """Return them for JSON output."""
    return [
        {
            "kind": each.to.kind.kind,
            "name": each.to.name,
            "vcpus": each.vcpus,
            "memory": each.memory,
            "reach": each.reach,
            "why": each.why,
            "current": each.current,
            "conflicts": list(each.conflicts),
        }
        for each in fits
    ]


@click.command(cls=Command)
@click.argument("vm", metavar="VM")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="What to print.",
)  # fmt: skip
@takes_over
@cluster.flags()
def what_fits(vm: str, output: str, take_over: bool) -> None:
    """Show which instance types a VM can have: live, after a restart or not at all, and why.

    For a VM that does not run it shows whether any node has room for it now. Nothing is changed;
    `virtctl vm update-instance-type` switches to one of them.

    \b
    virtctl what-fits web
    virtctl what-fits web -o json
    virtctl what-fits web --take-over    # as if it did not set a size itself
    """

    async def work(session: Session) -> list[Fit]:
        found = await session.client.get(kinds.VM, vm, session.namespace)
        fits = []
        for kind in INSTANCETYPES:
            page = await session.client.list(kind, session.namespace if kind.namespaced else "")
            for obj in page.items:
                to = Named(kind, obj["metadata"]["name"])
                switch = Switch(to)
                conflicts = switch.conflicts(found, obj)
                patch = switch.patch(conflicts if take_over else ())
                answer = json.loads(await session.ask("POST", VM, vm, "plan", patch))
                fits.append(fit(found, obj, to, answer, () if take_over else conflicts))
        return ordered(fits)

    with refusals(f"error planning VirtualMachine {vm}: {{}}"):
        fits = talk(work)
    if output == "json":
        click.echo(json.dumps(document(fits), indent=2, ensure_ascii=False))
    else:
        _show(fits)
        if text := advice(vm, fits):
            click.echo(text)


def advice(vm: str, fits: Iterable[Fit]) -> str:
    """Return what to do about fields that stand against instance types, "" if none does."""
    fields = dict.fromkeys(path for each in fits for path in each.conflicts)
    if not fields:
        return ""
    return (
        f"\nVM {vm} sets {', '.join(fields)}.\nRemove it to use an instance type that sets it too,"
        f" or let virtctl do so:\n  virtctl what-fits {vm} --take-over\n"
        f"  virtctl vm update-instance-type {vm} NAME --take-over"
    )


def _show(fits: list[Fit]) -> None:
    if not fits:
        click.echo("there are no instance types; see `virtctl create instancetype --help`")
        return
    rows = []
    for each in fits:
        kind = f"{each.to.kind.short[0]}/" if each.to.kind.namespaced else ""
        name = f"{kind}{each.to.name}{' (now)' if each.current else ''}"
        cells = (name, str(each.vcpus or "-"), each.memory or "-", each.reach)
        rows.append(Row(cells, each.why, _COLOURS.get(each.reach, "green")))
    table.echo(("INSTANCE TYPE", "VCPUS", "MEMORY", "REACHED", "WHY"), rows)
