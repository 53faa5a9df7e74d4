"""GET …/virtualmachineinstances/NAME/guestosinfo and its like: what the guest's agent tells."""

from __future__ import annotations

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Answer
from livevirt.vm import kinds
from livevirt.vm.guest.run_state import running_instance
from livevirt.vm.kinds.subresources import NO_GUEST_AGENT
from livevirt.vm.subresources.call import Call


async def guest_os_info(call: Call) -> Answer:
    """Answer with the guest's system, users and filesystems."""
    await _check_agent(call)
    return Answer(200, await call.guests.guest_os_info(call.namespace, call.name))


async def user_list(call: Call) -> Answer:
    """Answer with who is logged in."""
    await _check_agent(call)
    return Answer(200, await call.guests.user_list(call.namespace, call.name))


async def filesystem_list(call: Call) -> Answer:
    """Answer with what is mounted."""
    await _check_agent(call)
    return Answer(200, await call.guests.filesystem_list(call.namespace, call.name))


async def _check_agent(call: Call) -> None:
    vmi = await running_instance(call)
    if not conditions.is_true((vmi.get("status") or {}).get("conditions"), "AgentConnected"):
        why = "VMI does not have guest agent connected"
        raise call.refuse(kinds.VMI, why, NO_GUEST_AGENT)
