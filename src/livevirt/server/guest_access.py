"""The verbs that let people into a guest, and what virtctl asks besides: for `Actions`."""

from __future__ import annotations

from typing import Protocol

from livevirt.api import version
from livevirt.api.request import Answer
from livevirt.server import guest_exec, refusals
from livevirt.server.actions.call import Call, Verb
from livevirt.server.console import ConsoleDoor, Consoles
from livevirt.server.guest_exec import ExecDoor

_VMI = "virtualmachineinstances"


class AccessDoor(ConsoleDoor, ExecDoor, Protocol):
    """Reaches into the guests that run here; the node has it."""


def verbs(door: AccessDoor) -> dict[tuple[str, str], Verb]:
    """Return the verbs by resource and name."""
    return {
        (_VMI, "console"): Consoles(door).verb,
        (_VMI, "exec"): guest_exec.verb(door),
        ("", "version"): _version,
    }


async def _version(call: Call) -> Answer:
    if call.http.method not in ("GET", "HEAD"):
        raise refusals.method_not_allowed()
    return Answer(200, dict(version.info()))
