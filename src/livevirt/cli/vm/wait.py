"""Waiting until a VM is where a command sent it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from livevirt.api import conditions, registry
from livevirt.api.kind import Kind
from livevirt.api.request import Object
from livevirt.cli.progress import Tell, waiting
from livevirt.cli.session import Session
from livevirt.errors import Expired, NotFound, Timeout

#: Tells whether an object, None once it is gone, is where it should be.
Goal = Callable[[Object | None], bool]


def started(vm: Object | None) -> bool:
    """Tell whether the guest of a VM runs and is ready."""
    status = _status(vm)
    return bool(status.get("ready")) and status.get("printableStatus") == "Running"


def paused(vm: Object | None) -> bool:
    """Tell whether the guest of a VM is loaded and does not run."""
    return _status(vm).get("printableStatus") == "Paused"


def stopped(vm: Object | None) -> bool:
    """Tell whether nothing of a VM runs any more."""
    status = _status(vm)
    return vm is None or (not status.get("created") and status.get("printableStatus") == "Stopped")


def replaced(uid: str) -> Goal:
    """Return the goal that an instance of another uid is ready."""

    def goal(vmi: Object | None) -> bool:
        if vmi is None or vmi["metadata"]["uid"] == uid:
            return False
        return _is_true(vmi, "Ready")

    return goal


def agent_connected(vmi: Object | None) -> bool:
    """Tell whether the agent of an instance's guest answers."""
    return _is_true(vmi, "AgentConnected")


def node_ready(node: Object | None) -> bool:
    """Tell whether a node takes guests."""
    return _is_true(node, "Ready")


def state(obj: Object | None) -> str:
    """Return in a word or two what a VM or an instance is doing."""
    if obj is None:
        return "not there"
    status = _status(obj)
    return str(status.get("printableStatus") or status.get("phase") or "accepted")


def _is_true(obj: Object | None, condition: str) -> bool:
    return conditions.is_true(_status(obj).get("conditions"), condition)


def _status(obj: Object | None) -> Object:
    return (obj or {}).get("status") or {}


async def until(
    session: Session, kind: Kind, name: str, goal: Goal, seconds: float, what: str
) -> None:
    """Return once the object has reached the goal, showing its states meanwhile.

    Raises Timeout, naming the last state, and NotFound when a VM is deleted on the way.
    """
    last = "unknown"
    with waiting(what) as show:

        def tell(text: str) -> None:
            nonlocal last
            last = text
            show(text)

        try:
            async with asyncio.timeout(seconds):
                while not await _follow(session, kind, name, goal, tell):
                    pass  # the server ends watches now and then
        except TimeoutError:
            raise Timeout(
                f"{kind.singular} {name} is still {last} after {seconds:g} s; see why with"
                f" `kubectl describe {kind.singular} {name} -n {session.namespace}`"
            ) from None


async def _follow(session: Session, kind: Kind, name: str, goal: Goal, tell: Tell) -> bool:
    client, fields = session.client, f"metadata.name={name}"
    page = await client.list(kind, session.namespace, fields=fields)
    found = page.items[0] if page.items else None
    if _arrived(kind, name, found, goal, tell):
        return True
    try:
        async for event in client.watch(
            kind, session.namespace, resource_version=page.resource_version, fields=fields
        ):
            if event.type == "BOOKMARK":
                continue
            found = None if event.type == "DELETED" else event.object
            if _arrived(kind, name, found, goal, tell):
                return True
    except Expired:
        pass  # list again
    return False


def _arrived(kind: Kind, name: str, obj: Object | None, goal: Goal, tell: Tell) -> bool:
    tell(state(obj))
    if goal(obj):
        return True
    if obj is None and kind is registry.VM:
        raise NotFound(f'{kind.resource} "{name}" was deleted')
    return False


async def uid_of(session: Session, name: str) -> str:
    """Return the uid of a VM's instance, or nothing when it has none."""
    try:
        vmi = await session.client.get(registry.VMI, name, session.namespace)
    except NotFound:
        return ""
    return str(vmi["metadata"]["uid"])
