"""What an instance's status reports of its guest's CPUs and memory: confirmed, or plugged in."""

from __future__ import annotations

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Object
from livevirt.node.guest import AgentView
from livevirt.qemu.plan import MachineSnapshot
from livevirt.vm.sizing import guest_size, hot_change


def topology(guest: MachineSnapshot, agent: AgentView | None) -> Object:
    """Return `currentCPUTopology`: what the guest uses, and what its kernel knows of."""
    cpu = guest.machine.cpu
    found: Object = {"cores": cpu.cores, "sockets": guest.sockets, "threads": cpu.threads}
    found["confirmed"] = guest.vcpus is not None
    if guest.present is not None:
        found["present"] = guest.present
    if agent is not None and agent.possible_cpus is not None:
        found["possible"] = agent.possible_cpus
    return found


def memory(
    guest: MachineSnapshot, agent: AgentView | None, old: Object, *, unasked: bool
) -> Object:
    """Return `memory`; what an agent that was not asked yet reported before holds until then."""
    found = {
        **old,
        "guestAtBoot": _bytes(guest.machine.memory.boot),
        "guestPlugged": _bytes(guest.plugged + guest.ballooned),
        "guestRequested": _bytes(guest.offered),
    }
    if not unasked:
        found["guestCurrent"] = _bytes(guest.memory)
        found["confirmed"] = guest.blocks is not None
    found.setdefault("guestCurrent", _bytes(guest.memory))
    balloon = guest.observed.memory.balloon
    if balloon is not None:
        found["guestBallooned"] = _bytes(balloon.held)
        found["balloonStatistics"] = (
            balloon.statistics is not None or old.get("balloonStatistics") is True
        )
    if not guest.observed.memory.plugged:
        found.pop("shrinkable", None)
    elif agent is not None and agent.unmovable:
        found["shrinkable"] = False
    return found


def confirmation(
    guest: MachineSnapshot, agent: AgentView | None, vmi: Object, observed: Object | None
) -> Condition | None:
    """Return the condition on changes that are done and that the guest does not confirm.

    None if all are confirmed, or none was made. `observed` is the `observedSizeRevision` to be.
    """
    requested = (vmi.get("status") or {}).get(hot_change.REQUESTED) or {}
    done = {key for key, revision in requested.items() if (observed or {}).get(key) == revision}
    unsure = (guest.vcpus is None and "cpu" in done) or (guest.blocks is None and "memory" in done)
    if not unsure:
        return None
    reason = guest_size.NO_AGENT if agent is None else guest_size.NO_COMMAND
    message = guest_size.UNCONFIRMED[reason]
    return conditions.condition(guest_size.CONFIRMED, False, reason, message)


def _bytes(amount: int) -> str:
    return str(Quantity.from_int(amount, Format.BINARY_SI))
