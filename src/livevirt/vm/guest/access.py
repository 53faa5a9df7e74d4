"""The verbs that let people into a guest, and what virtctl asks besides: for `Actions`."""

from __future__ import annotations

from typing import Protocol

from livevirt.kube.objects import refusals
from livevirt.kube.objects.request import Answer
from livevirt.vm.guest import exec
from livevirt.vm.guest.console import ConsoleDoor, Consoles
from livevirt.vm.guest.exec import ExecDoor
from livevirt.vm.kinds import version
from livevirt.vm.subresources.call import Call, Verb

_VMI = "virtualmachineinstances"


class AccessDoor(ConsoleDoor, ExecDoor, Protocol):
    """Reaches into the guests that run here; the node has it."""


def verbs(door: AccessDoor) -> dict[tuple[str, str], Verb]:
    """Return the verbs by resource and name."""
    return {
        (_VMI, "console"): Consoles(door).verb,
        (_VMI, "exec"): exec.verb(door),
        ("", "version"): _version,
    }


async def _version(call: Call) -> Answer:
    if call.http.method not in ("GET", "HEAD"):
        raise refusals.method_not_allowed()
    return Answer(200, dict(version.info()))
