"""Waiting until a VM is where a command sent it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import click

from livevirt.cli.frame import Show, waiting
from livevirt.cli.session import Session
from livevirt.cli.vm import obstacles
from livevirt.cli.vm.documents import instance, status_of
from livevirt.cli.vm.obstacles import Patience
from livevirt.errors import Expired, NotFound, Timeout
from livevirt.kube.objects import conditions
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.sizing import hot_change

#: Returns whether an object, None once it is gone, is where it should be.
Goal = Callable[[Object | None], bool]


def started(vm: Object | None) -> bool:
    """Return whether the guest of a VM runs and is ready."""
    status = status_of(vm)
    return bool(status.get("ready")) and status.get("printableStatus") == "Running"


def paused(vm: Object | None) -> bool:
    """Return whether the guest of a VM is loaded and does not run."""
    return status_of(vm).get("printableStatus") == "Paused"


def stopped(vm: Object | None) -> bool:
    """Return whether nothing of a VM runs any more."""
    status = status_of(vm)
    return vm is None or (not status.get("created") and status.get("printableStatus") == "Stopped")


def replaced(uid: str) -> Goal:
    """Return the goal that an instance of another uid is ready."""

    def goal(vmi: Object | None) -> bool:
        if vmi is None or vmi["metadata"]["uid"] == uid:
            return False
        return _is_true(vmi, "Ready")

    return goal


def agent_connected(vmi: Object | None) -> bool:
    """Return whether the agent of an instance's guest answers."""
    return _is_true(vmi, "AgentConnected")


def resized(sockets: int, memory: str) -> Goal:
    """Return the goal that a guest has its sockets and memory, and nothing is under way."""

    def goal(vmi: Object | None) -> bool:
        status = status_of(vmi)
        has = (status.get("currentCPUTopology") or {}).get("sockets")
        amount = (status.get("memory") or {}).get("guestCurrent")
        there = has == sockets and amount is not None and parse(amount) == parse(memory)
        return there and vmi is not None and not hot_change.under_way(vmi)

    return goal


def restart_required(wanted: bool) -> Goal:
    """Return the goal that something of a VM waits for a restart, or nothing does."""
    return lambda vm: vm is not None and _is_true(vm, "RestartRequired") is wanted


def node_ready(node: Object | None) -> bool:
    """Return whether a node takes guests."""
    return _is_true(node, "Ready")


def state(obj: Object | None) -> str:
    """Return what a VM or an instance is doing, and why it does not run yet."""
    if obj is None:
        return "not there"
    status = status_of(obj)
    found = str(status.get("printableStatus") or status.get("phase") or "accepted")
    obstacle = obstacles.find(obj) if found not in ("Running", "Stopped", "Stopping") else None
    if obstacle is not None and obstacle.why:
        return f"{found}: {obstacle.why}"
    listed = hot_change.reported(obj)
    for type_ in hot_change.under_way(obj):  # the progress of a resize is more specific
        found = f"{found}, {(conditions.find(listed, type_) or {}).get('message')}"
    return found


def _is_true(obj: Object | None, condition: str) -> bool:
    return conditions.is_true(status_of(obj).get("conditions"), condition)


async def until(
    session: Session, kind: Kind, name: str, goal: Goal, seconds: float | None, what: str
) -> None:
    """Return once the object has reached the goal, showing its states meanwhile.

    Raises Timeout, naming the last state, and NotFound when a VM is deleted on the way.
    """
    with showing(session, kind, name, seconds, what) as show:
        async with asyncio.timeout(seconds):
            await follow(session, kind, name, _arrival(kind, name, goal, show))


async def until_running(
    session: Session, kind: Kind, name: str, goal: Goal, seconds: float | None, what: str
) -> None:
    """Do the same, but stop waiting when the guest cannot run unless the user acts.

    Raises ClickException then.
    """
    patience, reached = Patience(), False

    def noted(obj: Object | None) -> bool:
        nonlocal reached
        patience.observe(obj)
        reached = goal(obj)
        return reached

    with showing(session, kind, name, seconds, what) as show:
        async with asyncio.timeout(seconds):
            arrived = _arrival(kind, name, noted, show)
            await first(follow(session, kind, name, arrived), patience.exhausted())
    if reached:
        return
    why = patience.obstacle.why if patience.obstacle is not None else ""
    raise click.ClickException(
        f"stopped waiting, because {name} cannot run until this is resolved:"
        f" {why or 'see its events'}; see `kubectl describe {kind.singular} {name}"
        f" -n {session.namespace}`"
    )


def _arrival(kind: Kind, name: str, goal: Goal, show: Show) -> Goal:
    """Return a goal that shows the states on the way and fails if a VM is deleted."""

    def arrived(obj: Object | None) -> bool:
        show(state(obj))
        if goal(obj):
            return True
        if obj is None and kind is kinds.VM:
            raise deleted(kind, name)
        return False

    return arrived


@contextmanager
def showing(
    session: Session, kind: Kind, name: str, seconds: float | None, what: str
) -> Iterator[Show]:
    """Show on standard error what is awaited; a TimeoutError names the last state."""
    last = "unknown"
    with waiting(what) as show:

        def update(text: str) -> None:
            nonlocal last
            last = text
            show(text)

        try:
            yield update
        except TimeoutError:
            if seconds is None:
                raise  # not ours
            raise Timeout(
                f"{kind.singular} {name} is still {last} after {seconds:g} s; see why with"
                f" `kubectl describe {kind.singular} {name} -n {session.namespace}`"
            ) from None


def deleted(kind: Kind, name: str) -> NotFound:
    """Return the error that an object went away while it was looked at."""
    return NotFound(f'{kind.resource} "{name}" was deleted')


async def follow(session: Session, kind: Kind, name: str, arrived: Goal) -> None:
    """Hand over the object, None while there is none, and each change of it; until one arrives."""
    await follow_one(session, kind, arrived, fields=f"metadata.name={name}")


async def follow_one(
    session: Session, kind: Kind, arrived: Goal, *, fields: str = "", labels: str = ""
) -> None:
    """Do the same with the one object that is selected."""
    while not await _follow(session, kind, arrived, fields, labels):
        pass  # the server ends watches now and then


async def _follow(session: Session, kind: Kind, arrived: Goal, fields: str, labels: str) -> bool:
    client, namespace = session.client, session.namespace
    page = await client.list(kind, namespace, fields=fields, labels=labels)
    if arrived(page.items[0] if page.items else None):
        return True
    since = page.resource_version
    try:
        async for event in client.watch(
            kind, namespace, resource_version=since, fields=fields, labels=labels
        ):
            if event.type == "BOOKMARK":
                continue
            if arrived(None if event.type == "DELETED" else event.object):
                return True
    except Expired:
        pass  # list again
    return False


async def first(*works: Coroutine[Any, Any, None]) -> None:
    """Run until one of several ends, as it ends; the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def uid_of(session: Session, name: str) -> str:
    """Return the uid of a VM's instance, or nothing when it has none."""
    vmi = await instance(session, name)
    return "" if vmi is None else str(vmi["metadata"]["uid"])
