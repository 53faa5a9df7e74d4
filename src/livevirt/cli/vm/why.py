"""`virtctl why`: what a guest has, what is desired, what it waits for and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from livevirt.cli import cluster
from livevirt.cli.session import Session, refusals, talk
from livevirt.cli.vm import switch
from livevirt.cli.vm.documents import instance, status_of
from livevirt.cli.vm.flags import Command
from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.sizing import guest_size, hot_change, reservation
from livevirt.vm.verdict.summary import RESTART_REQUIRED

_NOTHING = "nothing: it continues by itself"
#: What to do about a change of size, by the reason of its condition.
_STEPS = {
    hot_change.WAITING: _NOTHING,
    hot_change.PLUGGING: _NOTHING,
    hot_change.UNPLUGGING: _NOTHING,
    hot_change.PLUG_FAILED: "nothing: it is tried again; the node agent's log has details",
    hot_change.DEFERRED: "free capacity on the node, or allow LiveMigrate in workloadUpdateMethods",
    hot_change.INFEASIBLE: "choose a smaller size, or allow LiveMigrate in workloadUpdateMethods",
    hot_change.OVER_QUOTA: "raise the namespace's ResourceQuota, or free some of it",
    hot_change.OVER_LIMIT_RANGE: "choose another size, or change the namespace's LimitRange",
    hot_change.RESIZE_REFUSED: "choose another size",
    hot_change.RESIZE_FAILED: "look at the events of the pod",
    hot_change.WAITING_FOR_MIGRATION: "allow LiveMigrate in workloadUpdateMethods",
}
_UNCONFIRMED = {
    guest_size.NO_AGENT: "start qemu-guest-agent in the guest to have its size confirmed",
    guest_size.NO_COMMAND: (
        "allow guest-get-vcpus and guest-get-memory-blocks in the guest agent's configuration"
    ),
}
_LABELS = {hot_change.CPU: "sockets", hot_change.MEMORY_TYPE: "memory"}


@click.command(cls=Command)
@click.argument("name", metavar="VM")
@cluster.flags()
def why(name: str) -> None:
    """Explain why a guest does not have what its VM asks for, and what to do about it.

    Shows what the guest has, what is desired, and what waits for the guest, its pod or a restart.

    \b
    virtctl why web
    virtctl why web -n shop
    """

    async def work(session: Session) -> list[str]:
        vm = await session.client.get(kinds.VM, name, session.namespace)
        return list(explain(vm, await instance(session, name)))

    with refusals(f"error explaining VirtualMachine {name}: {{}}"):
        for line in talk(work):
            click.echo(line)


def explain(vm: Object, vmi: Object | None) -> Iterator[str]:
    """Yield a few lines on a VM and its guest."""
    name, status = vm["metadata"]["name"], status_of(vm)
    state = status.get("printableStatus") or "not seen by the controller yet"
    node = status_of(vmi).get("nodeName")
    yield f"{name}: {state}{f' on node {node}' if node else ''}"
    if vmi is None or status_of(vmi).get("phase") in FINAL or not status.get("created"):
        yield "guest: none is running; edits take effect at the next start"
    else:
        yield from _sizes(vmi)
    yield from _waiting(vm, vmi)


def _sizes(vmi: Object) -> Iterator[str]:
    wanted = reservation.asked(vmi)
    cpus = guest_size.reported_cpus(vmi, wanted.sockets)
    yield _line(
        "sockets", str(cpus.sockets), "", str(wanted.sockets), guest_size.cpu_confirmed(vmi)
    )
    memory = guest_size.reported_memory(vmi, wanted.memory)
    plugged = f", {_amount(memory.plugged)} plugged in" if memory.plugged != memory.used else ""
    confirmed = guest_size.memory_confirmed(vmi)
    yield _line("memory", _amount(memory.used), plugged, _amount(wanted.memory), confirmed)


def _line(label: str, used: str, plugged: str, wanted: str, confirmed: bool) -> str:
    has = f"{used} in use" if confirmed else f"{used} plugged in, not confirmed"
    return f"{label + ':':9}{has}{plugged}, {wanted} desired"


def _waiting(vm: Object, vmi: Object | None) -> Iterator[str]:
    """Yield what is waited for, each with what to do."""
    found = False
    for type_ in hot_change.under_way(vmi) if vmi is not None else ():
        found = True
        yield from _change(vmi or {}, type_)
    for obj, type_, step in (
        (vmi, hot_change.VOLUME, "follow the message"),
        (vm, RESTART_REQUIRED, f"virtctl restart {vm['metadata']['name']}, or revert the edit"),
        (vm, "Failure", "correct the VM; the controller tries again"),
    ):
        listed = status_of(obj).get("conditions")
        if conditions.is_true(listed, type_):
            found = True
            message = (conditions.find(listed, type_) or {}).get("message", "")
            yield from _step(type_, message, step)
    if opens := switch.window(vm):
        found = True
        what = f"maintenance window: it opens at {opens}"
        yield from _step(what, "", f"nothing; or virtctl restart {vm['metadata']['name']}")
    unsure = conditions.find(status_of(vmi).get("conditions"), guest_size.CONFIRMED)
    if unsure is not None and unsure.get("reason") in _UNCONFIRMED:
        yield f"to do:   {_UNCONFIRMED[unsure['reason']]}"
    if not found:
        yield "waiting: for nothing"


def _change(vmi: Object, type_: str) -> Iterator[str]:
    reason = hot_change.reason_of(vmi, type_)
    condition = conditions.find(hot_change.reported(vmi), type_) or {}
    step = _STEPS.get(reason, _NOTHING)
    if reason == hot_change.NOT_ACCEPTING:
        wanted = reservation.asked(vmi)
        cause = (
            guest_size.reported_cpus(vmi, wanted.sockets).cause
            if type_ == hot_change.CPU
            else guest_size.reported_memory(vmi, wanted.memory).cause
        )
        step = guest_size.ADVICE[cause] if cause else _NOTHING
        yield f"waiting: {_LABELS[type_]}: the guest does not accept the change ({reason})"
        yield f"to do:   {step}"
        return
    what = f"{_LABELS[type_]} ({reason})" if reason else _LABELS[type_]
    yield from _step(what, condition.get("message", ""), step)


def _step(what: str, message: str, step: str) -> Iterator[str]:
    yield f"waiting: {what}: {message}" if message else f"waiting: {what}"
    yield f"to do:   {step}"


def _amount(size: int) -> str:
    return str(Quantity.from_int(size, Format.BINARY_SI))
