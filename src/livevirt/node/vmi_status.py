"""The part of a VMI's status that the node writes, from what QEMU and the guest report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from livevirt.kube.objects import conditions
from livevirt.kube.objects.conditions import FINAL, Condition
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import format_time
from livevirt.node import attachments, copying, device_keeper, size_report, sizing, volume_status
from livevirt.node.attachments import Attachments
from livevirt.node.copying import Copies
from livevirt.node.device_keeper import DeviceReport
from livevirt.node.domain import NIC_PREFIX, volume_of
from livevirt.node.exit_record import ExitRecord
from livevirt.node.guest import NOTHING_YET, AgentView, View, snapshot
from livevirt.node.network.port import GuestPort
from livevirt.node.sizing import IDLE, Begun, Progress
from livevirt.qemu import plan as qemu_plan
from livevirt.qemu.agent import Interface
from livevirt.qemu.lifecycle import Standing
from livevirt.qemu.machine import Machine
from livevirt.qemu.observe import Drive
from livevirt.vm.sizing import guest_size, hot_change
from livevirt.vm.spec.disks import hotpluggable
from livevirt.vm.volumes import volume_migration
from livevirt.vm.volumes.volume_lists import claim_of

_SHARED = "ReadWriteMany"
_ALL_SHARED = f"live migration requires that all PVCs must be shared (using {_SHARED} access mode)"
_LONGEST_WORD, _MOST_ADDRESSES = 256, 64  # of the guest's own: it may say what it likes


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSnapshot:
    """Everything the status depends on."""

    vmi: Object
    now: datetime
    machine: Machine
    ports: Sequence[GuestPort] = ()  # of interfaces that are on the node network
    view: View = NOTHING_YET
    ending: ExitRecord | None = None
    claims: Mapping[str, Object] = field(default_factory=dict)  # by volume
    pod: Object | None = None
    progress: Progress = IDLE  # of a change of size
    brief: bool = False  # a change of size that began just now
    writes: bool = False  # the status is written anyway
    attachments: Attachments | None = None  # None: not observed yet
    copies: Copies = field(default_factory=dict)  # of volumes, as far as they were looked at
    devices: DeviceReport | None = None  # None: not looked at yet
    migrates: bool = True  # guests of this node can be sent to others


def patch(seen: GuestSnapshot) -> Object:
    """Return the fields of the status that must change; nothing if it is right as it is."""
    old = status_of(seen.vmi)
    if old.get("phase") in FINAL:
        return {}
    if seen.ending is not None:
        return _merge_patch(old, _ended(seen, seen.ending))
    found = _merge_patch(old, _running(seen))
    return _merge_patch(old, _running(replace(seen, writes=True))) if found else {}


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


def _ended(seen: GuestSnapshot, ending: ExitRecord) -> Object:
    found: list[Condition] | None = status_of(seen.vmi).get("conditions")
    gone = (
        *hot_change.TYPES,
        guest_size.CONFIRMED,
        hot_change.VOLUME,
        hot_change.DEVICE,
        volume_migration.VOLUMES_CHANGE,
    )
    for type_ in ("AgentConnected", "Paused", *gone):
        found = conditions.without_condition(found, type_)
    new: Object = {**_phase(seen, ending.phase), "conditions": found}
    if ending.phase == "Failed":
        new["reason"] = ending.reason
    return new


def _running(seen: GuestSnapshot) -> Object:
    view = seen.view
    if view.standing is None or view.observed is None:
        return {}
    old = status_of(seen.vmi)
    if old.get("phase") not in ("Scheduled", "Running"):
        return {}  # not handed over to the node yet
    new = _phase(seen, "Running")
    guest, unasked = snapshot(seen.machine, view.observed, view.agent), _unasked(seen)
    listed, observed = _sizes(seen, guest)
    volumes = volume_status.volume_statuses(
        seen.vmi, seen.machine, view.observed, _claims(seen), seen.attachments, _moving(seen)
    )
    new |= {
        "currentCPUTopology": old.get("currentCPUTopology")
        if unasked
        else size_report.topology(guest, view.agent),
        "memory": size_report.memory(guest, view.agent, old.get("memory") or {}, unasked=unasked),
        "machine": {"type": view.machine_type},
        "interfaces": old.get("interfaces") if unasked else _interfaces(seen),
        "volumeStatus": volumes,
        "migratedVolumes": copying.listed(seen.vmi, seen.copies) or None,
        "freePCIePorts": len(view.observed.free_ports),
        "devices": device_keeper.status(view.observed, seen.devices, old.get("devices") or {}),
        "guestOSInfo": (old.get("guestOSInfo") or {}) if unasked else _os_info(view.agent),
        "migrationMethod": "BlockMigration"
        if _has_local_disks(seen.vmi["spec"])
        else "LiveMigration",
        "conditions": _conditions(seen, _with_confirmation(seen, guest, listed, observed), volumes),
    }
    if observed:
        new[hot_change.OBSERVED] = observed
    return new


def _phase(seen: GuestSnapshot, phase: str) -> Object:
    old = status_of(seen.vmi)
    if old.get("phase") == phase:
        return {"phase": phase}
    stamp = {"phase": phase, "phaseTransitionTimestamp": format_time(seen.now)}
    return {
        "phase": phase,
        "phaseTransitionTimestamps": [*(old.get("phaseTransitionTimestamps") or ()), stamp],
    }


def _unasked(seen: GuestSnapshot) -> bool:
    """Return whether a guest was found with an agent at work that was not queried yet.

    What it reported to an earlier run holds until then.
    """
    observed = seen.view.observed
    if seen.view.agent is not None or observed is None or not observed.agent_open:
        return False
    if seen.view.agent_silent:
        return False
    listed = status_of(seen.vmi).get("conditions")
    return conditions.is_true(listed, "AgentConnected")


def _agent(seen: GuestSnapshot) -> Condition | None:
    there = seen.view.agent is not None or _unasked(seen)
    return _true("AgentConnected") if there else None


def _os_info(agent: AgentView | None) -> Object:
    return os_info(agent) if agent is not None else {}


def _sizes(
    seen: GuestSnapshot, guest: qemu_plan.MachineSnapshot
) -> tuple[list[Condition] | None, Object | None]:
    """Return conditions and `observedSizeRevision` with what is true of a change of size."""
    if _unasked(seen):
        status = status_of(seen.vmi)
        return status.get("conditions"), status.get(hot_change.OBSERVED)
    begun = Begun.UNREPORTED if seen.brief else Begun.IF_WAITING
    if seen.writes:
        begun = Begun.REPORTED
    return sizing.size_status(seen.vmi, seen.pod, guest, seen.progress, seen.now, begun)


def _with_confirmation(
    seen: GuestSnapshot,
    guest: qemu_plan.MachineSnapshot,
    listed: list[Condition] | None,
    observed: Object | None,
) -> list[Condition] | None:
    """Return the conditions with whether the guest has confirmed its size."""
    if _unasked(seen):
        return listed
    found = size_report.confirmation(guest, seen.view.agent, seen.vmi, observed)
    if found is None:
        return conditions.without_condition(listed, guest_size.CONFIRMED)
    return conditions.replaced(listed, found, seen.now)


def _conditions(
    seen: GuestSnapshot, listed: list[Condition] | None, volumes: list[Object]
) -> list[Condition]:
    found = listed
    wanted = {
        "AgentConnected": _agent(seen),
        "Paused": _paused(seen.view),
        "LiveMigratable": _migratable(_copying(seen) or _unshared(seen.vmi, volumes))
        if seen.migrates
        else _NO_MIGRATION,
        "StorageLiveMigratable": _true("StorageLiveMigratable"),
    }
    for type_, condition in wanted.items():
        if condition is None:
            found = conditions.without_condition(found, type_)
        else:
            found = conditions.replaced(found, condition, seen.now)
    found = _devices_changing(seen, _volumes_changing(seen, found or []))
    return copying.with_condition(seen.vmi, found, seen.copies, seen.now)


def _volumes_changing(seen: GuestSnapshot, found: list[Condition]) -> list[Condition]:
    """Return the conditions with the one of hotpluggable volumes."""
    if seen.attachments is None:
        return found
    changing = attachments.condition(seen.attachments)
    if changing is None:
        return conditions.without_condition(found, hot_change.VOLUME) or []
    return conditions.replaced(found, changing, seen.now)


def _devices_changing(seen: GuestSnapshot, found: list[Condition]) -> list[Condition]:
    """Return the conditions with the one of devices that are not as wanted."""
    if seen.devices is None:
        return found
    if not seen.devices.problem:
        return conditions.without_condition(found, hot_change.DEVICE) or []
    message = f"{seen.devices.problem}; it is retried"
    return conditions.replaced(
        found, _true(hot_change.DEVICE, hot_change.DEVICE_FAILED, message), seen.now
    )


def _moving(seen: GuestSnapshot) -> frozenset[str]:
    """Return the volumes that the guest has on the claim they are copied from."""
    return frozenset(each["volumeName"] for each in copying.listed(seen.vmi, seen.copies))


def _true(type_: str, reason: str = "", message: str = "") -> Condition:
    return conditions.condition(type_, True, reason, message)


def is_paused(standing: Standing | None) -> bool:
    """Whether the guest is paused and could resume."""
    return standing is not None and standing.condition in ("paused", "io-error", "starting")


def _paused(view: View) -> Condition | None:
    standing = view.standing
    if standing is None or not is_paused(standing):
        return None
    if standing.condition == "io-error":
        drives = view.observed.drives if view.observed is not None else ()
        failed = "".join(_failure(drive) for drive in drives if drive.io_status != "ok")
        message = f"VMI was paused, low-level IO error detected{failed}"
        return _true("Paused", "PausedIOError", message)
    return _true("Paused", "PausedByUser", "VMI was paused by user")


def _failure(drive: Drive) -> str:
    name = volume_of(drive.id)
    if drive.io_status == "nospace":
        return f"; no space is left for disk {name}: free some where its claim is, then unpause"
    return f"; disk {name} cannot be read or written: fix or remove it, then unpause"


_NO_MIGRATION = conditions.condition(
    "LiveMigratable",
    False,
    "MigrationNotSupported",
    "this release does not migrate guests between nodes of a cluster",
)


def _migratable(why_not: str) -> Condition:
    if not why_not:
        return _true("LiveMigratable")
    message = f"cannot migrate VMI: {why_not}"
    return conditions.condition("LiveMigratable", False, "DisksNotLiveMigratable", message)


def _copying(seen: GuestSnapshot) -> str:
    """Return which copies keep the guest here: a target would open what they are to fill."""
    moving = sorted(_moving(seen))
    stuck = {name for name, each in seen.copies.items() if each.problem is not None}
    if busy := [name for name in moving if name not in stuck]:
        return f"{', '.join(busy)} is being copied to another PVC"
    return f"{', '.join(moving)} is to be copied to another PVC first" if moving else ""


def _unshared(vmi: Object, volumes: list[Object]) -> str:
    """Return which claim another node cannot use, of those asked for and those the guest has."""
    asked = {each["name"]: claim_of(each) for each in vmi["spec"].get("volumes") or ()}
    known = {each["name"]: each.get("persistentVolumeClaimInfo") for each in volumes}
    for name in sorted({*asked, *known}):
        info, claim = known.get(name), asked.get(name)
        if info is None and claim:
            return f"Unable to determine if PVC {claim} is shared, {_ALL_SHARED}"
        if info is not None and _SHARED not in (info.get("accessModes") or ()):
            return f"PVC {info['claimName']} is not shared, {_ALL_SHARED}"
    return ""


def _claims(seen: GuestSnapshot) -> Mapping[str, Object]:
    """Return the claims the guest has, by volume; hotpluggable ones as they are by now."""
    if seen.attachments is None:
        return seen.claims
    volumes = seen.vmi["spec"].get("volumes") or ()
    fixed = {volume["name"] for volume in volumes if not hotpluggable(volume)}
    return {
        **{name: claim for name, claim in seen.claims.items() if name in fixed},
        **{
            name: claim
            for name, each in seen.attachments.items()
            if (claim := each.claim or seen.claims.get(name)) is not None
        },
    }


def _has_local_disks(spec: Object) -> bool:
    """Return whether a guest has disks of no claim, other than read-only images."""
    disks = ((spec.get("domain") or {}).get("devices") or {}).get("disks") or ()
    images = {
        disk["name"]
        for disk in disks
        if disk.get("cdrom") is not None and disk["cdrom"].get("readonly") in (None, True)
    }
    volumes = spec.get("volumes") or ()
    return any(not claim_of(each) and each["name"] not in images for each in volumes)


def os_info(agent: AgentView) -> Object:
    """Return what the guest runs, in KubeVirt's format."""
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
    return {name: value[:_LONGEST_WORD] for name, value in found.items() if value}


# ---------------------------------------------------------------- interfaces


def _interfaces(seen: GuestSnapshot) -> list[Object]:
    agent = seen.view.agent
    cards = {card.hardware_address.lower(): card for card in agent.interfaces} if agent else {}
    own = {port.nic: port.addresses for port in seen.ports}
    found = []
    for nic in seen.machine.nics:
        shown: Object = {
            "name": nic.id.removeprefix(NIC_PREFIX),
            "mac": nic.mac,
            "infoSource": "domain",
            "linkState": "up",
            "queueCount": 1,
        }
        if nic.id in own:
            shown |= {"podInterfaceName": "eth0"} | _addresses(own[nic.id])
        if nic.mac in cards:
            shown |= _from_guest(cards[nic.mac], own.get(nic.id, ()))
        found.append(shown)
    return found


def _from_guest(card: Interface, own: Sequence[str]) -> Object:
    """Return what the guest reports of a card, after the addresses that the network gave it."""
    # A link-local address is always there and never the one to connect to.
    reported = sorted(
        (each.ip_address for each in card.ip_addresses if len(each.ip_address) <= _LONGEST_WORD),
        key=lambda address: (":" in address, address.startswith("fe80:")),
    )[:_MOST_ADDRESSES]
    name = card.name[:_LONGEST_WORD]
    shown: Object = {"infoSource": "domain, guest-agent", "interfaceName": name}
    return shown | _addresses([*own, *(each for each in reported if each not in own)])


def _addresses(found: Sequence[str]) -> Object:
    return {"ipAddress": found[0], "ipAddresses": list(found)} if found else {}
