"""The subresources of an instance that reach its guest: pause, reset, guest information."""

from __future__ import annotations

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.kinds.subresources import (
    GUEST_AGENT_STOPPED,
    GUEST_NOT_RUNNING,
    NO_GUEST_AGENT,
)
from livevirt.vm.subresources import call as subresources_call
from livevirt.vm.subresources.call import DONE, Call, phase

_VMI = kinds.VMI


async def pause(call: Call) -> Answer:
    """Stop the CPUs."""
    asked = subresources_call.read(call, "PauseOptions")
    if _is(await running_instance(call), "Paused"):
        raise call.refuse(_VMI, "VMI is already paused")
    if not asked.dry_run:
        await call.guests.pause(call.namespace, call.name)
    return Answer(200, b"", asked.warnings)


async def unpause(call: Call) -> Answer:
    """Let them go on."""
    asked = subresources_call.read(call, "UnpauseOptions")
    if not _is(await running_instance(call), "Paused"):
        raise call.refuse(_VMI, "VMI is not paused")
    if not asked.dry_run:
        await call.guests.unpause(call.namespace, call.name)
    return Answer(200, b"", asked.warnings)


async def soft_reboot(call: Call) -> Answer:
    """Ask the guest to reboot."""
    vmi = await running_instance(call)
    if _is(vmi, "Paused"):
        raise call.refuse(_VMI, "VMI is paused")
    acpi = ((vmi["spec"]["domain"].get("features") or {}).get("acpi") or {}).get("enabled", True)
    if not acpi and not _is(vmi, "AgentConnected"):
        why = "VMI neither have the agent connected nor the ACPI feature enabled"
        raise call.refuse(_VMI, why)
    await call.guests.soft_reboot(call.namespace, call.name)
    return DONE


async def reset(call: Call) -> Answer:
    """Reset the machine."""
    await running_instance(call)
    await call.guests.reset(call.namespace, call.name)
    return DONE


async def running_instance(call: Call) -> Object:
    """Return the instance, or refuse if its guest does not run."""
    vmi = await call.instance()
    if phase(vmi) != "Running":
        raise call.refuse(_VMI, "VMI is not running", GUEST_NOT_RUNNING)
    return vmi


def _is(vmi: Object, condition: str) -> bool:
    return conditions.is_true((vmi.get("status") or {}).get("conditions"), condition)


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
    check_agent(call, await running_instance(call))


def check_agent(call: Call, vmi: Object) -> None:
    """Refuse what the agent of the guest would have to do if it is not connected."""
    if _is(vmi, "AgentConnected"):
        return
    if call.guests.agent_answered(call.namespace, call.name):
        why = "the guest agent was connected and has stopped"
        raise call.refuse(kinds.VMI, why, GUEST_AGENT_STOPPED)
    raise call.refuse(kinds.VMI, "VMI does not have guest agent connected", NO_GUEST_AGENT)
