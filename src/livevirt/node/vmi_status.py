"""The part of a VMI's status that is the node's to tell, from what QEMU and the guest say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from string import ascii_lowercase

from livevirt.api import conditions
from livevirt.api.conditions import Condition
from livevirt.api.quantity import Format, Quantity
from livevirt.api.request import Object
from livevirt.api.times import format_time
from livevirt.node import sizing
from livevirt.node.domain import DISK_PREFIX, NIC_PREFIX
from livevirt.node.ending import Ending
from livevirt.node.guest import NOTHING_YET, AgentView, View
from livevirt.node.progress import IDLE, Progress
from livevirt.qemu import plan as qemu_plan
from livevirt.qemu.agent import Interface
from livevirt.qemu.lifecycle import Standing
from livevirt.qemu.machine import Machine
from livevirt.qemu.observe import Observed
from livevirt.rollout import hot_change

FINAL = ("Succeeded", "Failed")
_DISCS = ("cloudInitNoCloud", "cloudInitConfigDrive")
_SHARED = ("ReadWriteMany",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything the status depends on."""

    vmi: Object
    now: datetime
    machine: Machine
    view: View = NOTHING_YET
    ending: Ending | None = None
    claims: Mapping[str, Object] = field(default_factory=dict)  # by volume
    pod: Object | None = None
    progress: Progress = IDLE  # of a change of size


def patch(seen: Seen) -> Object:
    """Return the fields of the status that must change; nothing if it is right as it is."""
    old = seen.vmi.get("status") or {}
    if old.get("phase") in FINAL:
        return {}
    new = _ended(seen, seen.ending) if seen.ending is not None else _running(seen)
    return _merge_patch(old, new)


def _merge_patch(old: Object, new: Object) -> Object:
    """Return what turns the fields of `old` that `new` names into those of `new`."""
    changed: Object = {}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict):
            within = _merge_patch(before or {}, value)
            within |= {key: None for key in before or () if key not in value}
            if within:
                changed[name] = within
        elif before != value:
            changed[name] = value
    return changed


def _ended(seen: Seen, ending: Ending) -> Object:
    found: list[Condition] | None = (seen.vmi.get("status") or {}).get("conditions")
    for type_ in ("AgentConnected", "Paused", *hot_change.TYPES):
        found = conditions.without_condition(found, type_)
    new: Object = {**_phase(seen, ending.phase), "conditions": found}
    if ending.phase == "Failed":
        new["reason"] = ending.reason
    return new


def _running(seen: Seen) -> Object:
    view = seen.view
    if view.standing is None or view.observed is None:
        return {}
    old = seen.vmi.get("status") or {}
    if old.get("phase") not in ("Scheduled", "Running"):
        return {}  # not handed over to the node yet
    new = _phase(seen, "Running")
    cpu, guest = seen.machine.cpu, _guest(seen, view.observed)
    new |= {
        "currentCPUTopology": {
            "cores": cpu.cores,
            "sockets": guest.sockets,
            "threads": cpu.threads,
        },
        "memory": {
            **(old.get("memory") or {}),
            "guestAtBoot": _bytes(seen.machine.memory.boot),
            "guestCurrent": _bytes(guest.memory),
            "guestRequested": _bytes(guest.offered),
        },
        "machine": {"type": view.machine_type},
        "interfaces": _interfaces(seen),
        "volumeStatus": list(_volumes(seen)),
        "guestOSInfo": os_info(view.agent) if view.agent else {},
        "migrationMethod": "BlockMigration" if _has_local_disks(seen) else "LiveMigration",
        "conditions": _conditions(seen, guest),
    }
    return new


def _guest(seen: Seen, observed: Observed) -> qemu_plan.Seen:
    vcpus = seen.view.agent.vcpus if seen.view.agent is not None else None
    return qemu_plan.Seen(seen.machine, observed, vcpus)


def _phase(seen: Seen, phase: str) -> Object:
    old = seen.vmi.get("status") or {}
    if old.get("phase") == phase:
        return {"phase": phase}
    stamp = {"phase": phase, "phaseTransitionTimestamp": format_time(seen.now)}
    return {
        "phase": phase,
        "phaseTransitionTimestamps": [*(old.get("phaseTransitionTimestamps") or ()), stamp],
    }


def _conditions(seen: Seen, guest: qemu_plan.Seen) -> list[Condition]:
    found = sizing.told(seen.vmi, seen.pod, guest, seen.progress, seen.now)
    wanted = {
        "AgentConnected": _true("AgentConnected") if seen.view.agent else None,
        "Paused": _paused(seen.view.standing),
        "LiveMigratable": _migratable(seen),
        "StorageLiveMigratable": _true("StorageLiveMigratable"),
    }
    for type_, condition in wanted.items():
        old = conditions.find(found, type_)
        if condition is None:
            found = conditions.without_condition(found, type_)
        elif old is None or any(old.get(key) != condition.get(key) for key in ("status", "reason")):
            found = conditions.with_condition(found, condition, seen.now)
    return found or []


def _true(type_: str) -> Condition:
    return {"type": type_, "status": "True"}


def is_paused(standing: Standing | None) -> bool:
    """Whether the guest's CPUs stand still and could go on."""
    return standing is not None and standing.condition in ("paused", "io-error", "starting")


def _paused(standing: Standing | None) -> Condition | None:
    if standing is None or not is_paused(standing):
        return None
    if standing.condition == "io-error":
        return _true("Paused") | {
            "reason": "PausedIOError",
            "message": "VMI was paused, low-level IO error detected",
        }
    return _true("Paused") | {"reason": "PausedByUser", "message": "VMI was paused by user"}


def _migratable(seen: Seen) -> Condition:
    for volume, claim in seen.claims.items():
        modes = claim["spec"].get("accessModes") or ()
        if not any(mode in _SHARED for mode in modes):
            name = claim["metadata"]["name"]
            return {
                "type": "LiveMigratable",
                "status": "False",
                "reason": "DisksNotLiveMigratable",
                "message": f"cannot migrate VMI: PVC {name} of volume {volume} is not shared,"
                " its access modes lack ReadWriteMany",
            }
    return _true("LiveMigratable")


def _has_local_disks(seen: Seen) -> bool:
    kinds = {kind for volume in seen.vmi["spec"].get("volumes") or () for kind in volume}
    return not kinds <= {"name", "persistentVolumeClaim", "dataVolume"}


def _bytes(amount: int) -> str:
    return str(Quantity.from_int(amount, Format.BINARY_SI))


def os_info(agent: AgentView) -> Object:
    """Return what the guest runs, as KubeVirt words it."""
    found = {
        "id": agent.os.id,
        "name": agent.os.name,
        "prettyName": agent.os.pretty_name,
        "version": agent.os.version,
        "versionId": agent.os.version_id,
        "kernelRelease": agent.os.kernel_release,
        "kernelVersion": agent.os.kernel_version,
        "machine": agent.os.machine,
    }
    return {name: value for name, value in found.items() if value}


# ---------------------------------------------------------------- interfaces


def _interfaces(seen: Seen) -> list[Object]:
    agent = seen.view.agent
    cards = {card.hardware_address.lower(): card for card in agent.interfaces} if agent else {}
    found = []
    for nic in seen.machine.nics:
        shown: Object = {
            "name": nic.id.removeprefix(NIC_PREFIX),
            "mac": nic.mac,
            "infoSource": "domain",
            "linkState": "up",
            "queueCount": 1,
        }
        if nic.mac in cards:
            shown |= _from_guest(cards[nic.mac])
        found.append(shown)
    return found


def _from_guest(card: Interface) -> Object:
    # A link-local address is always there and never the one to connect to.
    addresses = sorted(
        (address.ip_address for address in card.ip_addresses),
        key=lambda address: (":" in address, address.startswith("fe80:")),
    )
    shown: Object = {"infoSource": "domain, guest-agent", "interfaceName": card.name}
    if addresses:
        shown |= {"ipAddress": addresses[0], "ipAddresses": addresses}
    return shown


# ---------------------------------------------------------------- volumes


def _volumes(seen: Seen) -> Iterator[Object]:
    old = {each["name"]: each for each in (seen.vmi.get("status") or {}).get("volumeStatus") or ()}
    names = targets(seen.machine, {name: each.get("target", "") for name, each in old.items()})
    volumes = {volume["name"]: volume for volume in seen.vmi["spec"].get("volumes") or ()}
    kept = {name: each for name, each in old.items() if "hotplugVolume" in each}
    mine = {}
    for name, target in names.items():
        if name not in volumes or name in kept:
            continue  # an empty drive, or told by who attaches volumes
        entry = {**old.get(name, {}), "name": name, "target": target}
        drive = seen.view.observed.drive(DISK_PREFIX + name) if seen.view.observed else None
        if drive is not None and any(kind in volumes[name] for kind in _DISCS):
            entry["size"] = drive.size
        if name in seen.claims:
            entry["persistentVolumeClaimInfo"] = _claim_info(seen.claims[name])
        mine[name] = entry
    yield from (entry for _, entry in sorted((kept | mine).items()))


def targets(machine: Machine, recorded: Mapping[str, str]) -> dict[str, str]:
    """Name every disk as KubeVirt does: as recorded, or by the lowest letter that is free."""
    found: dict[str, str] = {}
    taken = {target for target in recorded.values() if target}
    for disk in machine.disks:
        name = disk.id.removeprefix(DISK_PREFIX)
        prefix = "vd" if disk.bus == "virtio" else "sd"
        target = recorded.get(name, "")
        if not target.startswith(prefix):
            target = next(each for each in _letters(prefix) if each not in taken)
        taken.add(target)
        found[name] = target
    return found


def _letters(prefix: str) -> Iterator[str]:
    for first in ("", *ascii_lowercase):
        for last in ascii_lowercase:
            yield f"{prefix}{first}{last}"


def _claim_info(claim: Object) -> Object:
    spec, status = claim["spec"], claim.get("status") or {}
    info = {
        "claimName": claim["metadata"]["name"],
        "accessModes": spec.get("accessModes"),
        "volumeMode": spec.get("volumeMode"),
        "capacity": status.get("capacity"),
        "requests": (spec.get("resources") or {}).get("requests"),
        "filesystemOverhead": "0" if spec.get("volumeMode") == "Block" else "0.055",
    }
    return {name: value for name, value in info.items() if value}
