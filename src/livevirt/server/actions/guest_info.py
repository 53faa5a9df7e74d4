"""GET …/virtualmachineinstances/NAME/guestosinfo and its like: what the guest's agent tells."""

from __future__ import annotations

from livevirt.api import conditions, registry
from livevirt.api.request import Answer
from livevirt.server.actions.call import Call
from livevirt.server.actions.guest_run import running_instance


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
        raise call.refuse(registry.VMI, "VMI does not have guest agent connected")
