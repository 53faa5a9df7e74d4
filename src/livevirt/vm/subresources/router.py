"""Verbs of subresources.kubevirt.io: start, stop, pause and the like, a module for each noun.

What changes objects is done here, through the same admission as everything else. What reaches into
a guest is asked of a `GuestEndpoint`, which the node has. Streams (console, vnc) are others' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aiohttp import web

from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.turns import Turns
from livevirt.kube.objects import refusals
from livevirt.kube.objects.request import ActionPath, Answer, User
from livevirt.vm.guest import exec as guest_exec
from livevirt.vm.guest import port_forward
from livevirt.vm.guest import subresources as guest_subresources
from livevirt.vm.guest.console import ConsoleEndpoint, Consoles
from livevirt.vm.guest.exec import ExecEndpoint
from livevirt.vm.guest.port_forward import PortEndpoint
from livevirt.vm.guest.usb import UsbEndpoint, UsbSlots
from livevirt.vm.guest.vnc import ScreenEndpoint, Screens
from livevirt.vm.instancetypes import sizing_admission
from livevirt.vm.kinds import subresources, support
from livevirt.vm.lifecycle import start_stop
from livevirt.vm.migration import request
from livevirt.vm.subresources.call import Call, GuestEndpoint, Verb, utc_now
from livevirt.vm.verdict import plan_subresource
from livevirt.vm.volumes import subresources as volumes

__all__ = ["Actions", "Call", "GuestEndpoint", "Verb"]

_METHODS = {"get": ("GET", "HEAD"), "update": ("PUT",), "create": ("POST",)}
_VM, _VMI = "virtualmachines", "virtualmachineinstances"

VERBS: dict[tuple[str, str], Verb] = {
    (_VM, "start"): start_stop.start,
    (_VM, "stop"): start_stop.stop,
    (_VM, "restart"): start_stop.restart,
    (_VM, "migrate"): request.migrate,
    (_VM, "addvolume"): volumes.add_to_vm,
    (_VM, "removevolume"): volumes.remove_from_vm,
    (_VM, "plan"): plan_subresource.plan,
    (_VM, "expand-spec"): sizing_admission.expand_spec,
    ("", "expand-vm-spec"): sizing_admission.expand_vm_spec,
    (_VMI, "addvolume"): volumes.add_to_instance,
    (_VMI, "removevolume"): volumes.remove_from_instance,
    (_VMI, "pause"): guest_subresources.pause,
    (_VMI, "unpause"): guest_subresources.unpause,
    (_VMI, "softreboot"): guest_subresources.soft_reboot,
    (_VMI, "reset"): guest_subresources.reset,
    (_VMI, "guestosinfo"): guest_subresources.guest_os_info,
    (_VMI, "userlist"): guest_subresources.user_list,
    (_VMI, "filesystemlist"): guest_subresources.filesystem_list,
}


class Actions:
    """Answers the verbs; `more` holds those that other parts bring along, by resource and name."""

    def __init__(
        self,
        client: Client,
        guests: GuestEndpoint,
        more: Mapping[tuple[str, str], Verb] | None = None,
        now: Now = utc_now,
    ) -> None:
        self._client, self._guests, self._now = client, guests, now
        self._verbs = {**VERBS, **(more or {})}
        self._turns = Turns()

    async def handle(
        self, action: ActionPath, http: web.BaseRequest, user: User, body: Any
    ) -> Answer | web.StreamResponse:
        """Do what a request asks for."""
        name, _, rest = action.action.partition("/")
        verb = self._verbs.get((action.resource, name))
        known = subresources.BY_PATH.get((action.resource, name))
        if verb is None and (what := subresources.UNSERVED.get((action.resource, name))):
            raise refusals.not_served(what)
        if verb is None:
            raise refusals.no_such_path()
        if known is not None and http.method not in _METHODS[known.verb]:
            raise refusals.method_not_allowed()
        call = Call(
            self._client, self._guests, action.namespace, action.name, user, http, body, rest,
            self._turns, self._now,
        )  # fmt: skip
        return await verb(call)


class GuestAccess(
    ConsoleEndpoint, ExecEndpoint, PortEndpoint, ScreenEndpoint, UsbEndpoint, Protocol
):
    """Reaches into the guests that run here; the node has it."""


def guest_verbs(guests: GuestAccess) -> dict[tuple[str, str], Verb]:
    """Return the verbs by resource and name."""
    return {
        (_VMI, "console"): Consoles(guests).verb,
        (_VMI, "exec"): guest_exec.verb(guests),
        (_VMI, "vnc"): Screens(guests).verb,
        (_VMI, "usbredir"): UsbSlots(guests).verb,
        (_VMI, "portforward"): port_forward.verb(guests, of_vm=False),
        (_VM, "portforward"): port_forward.verb(guests, of_vm=True),
        ("", "version"): _version,
    }


async def _version(call: Call) -> Answer:
    if call.http.method not in ("GET", "HEAD"):
        raise refusals.method_not_allowed()
    return Answer(200, dict(support.info()))
