"""The status of each volume of an instance. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, product
from string import ascii_lowercase

from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object, status_of
from livevirt.node.attachments import Attachment, Attachments
from livevirt.node.domain import DISK_PREFIX, volume_of
from livevirt.qemu.machine import Machine
from livevirt.qemu.observe import Observed
from livevirt.vm.spec import disks
from livevirt.vm.spec.disks import hotpluggable
from livevirt.vm.volumes.volume_lists import claim_info, claim_of

_DISCS = ("cloudInitNoCloud", "cloudInitConfigDrive")


def volume_statuses(
    vmi: Object,
    machine: Machine,
    observed: Observed,
    claims: Mapping[str, Object],
    attachments: Attachments | None,
    moving: frozenset[str] = frozenset(),
) -> list[Object]:
    """Return `volumeStatus`: what was there from the start, and where the rest stands.

    Without attachments, the status of hotpluggable volumes stays. An empty drive has none.
    What is said of the claim of volumes that are `moving` to another one stays too.
    """
    old = {each["name"]: each for each in status_of(vmi).get("volumeStatus") or ()}
    volumes = {volume["name"]: volume for volume in vmi["spec"].get("volumes") or ()}
    recorded = {name: each.get("target", "") for name, each in old.items()}
    names = targets(_buses(vmi, machine, observed), recorded)
    found = {}
    for name, volume in volumes.items():
        if name in names and not hotpluggable(volume):
            found[name] = _fixed(old.get(name, {}), volume, names[name], observed)
            if name in claims and name not in moving:
                found[name]["persistentVolumeClaimInfo"] = claim_info(claims[name])
    if attachments is None:
        found |= {name: each for name, each in old.items() if "hotplugVolume" in each}
    else:
        for name, each in attachments.items():
            found[name] = _plugged(old.get(name, {}), name, each, observed)
            if each.phase != "Pending":
                found[name]["target"] = names.get(name, "")
    return [entry for _, entry in sorted(found.items())]


def targets(buses: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Name every disk as KubeVirt does: as recorded, or by the lowest letter that is free."""
    found: dict[str, str] = {}
    taken = {recorded[name] for name in buses if recorded.get(name)}
    for name, bus in buses.items():
        prefix = "vd" if bus == "virtio" else "sd"
        target = recorded.get(name, "")
        if not target.startswith(prefix):
            target = next(each for each in _letters(prefix) if each not in taken)
        taken.add(target)
        found[name] = target
    return found


def _buses(vmi: Object, machine: Machine, observed: Observed) -> dict[str, str]:
    """Return the bus of every disk the guest has, in the order in which they get their letters."""
    spec = vmi["spec"]
    listed = ((spec.get("domain") or {}).get("devices") or {}).get("disks") or ()
    written = {disk["name"]: disks.bus(disk) for disk in listed}
    volumes = {volume["name"] for volume in spec.get("volumes") or ()}
    plugged = {volume_of(drive.id) for drive in observed.drives}
    found: dict[str, str] = {}
    for disk in machine.disks:
        name = volume_of(disk.id)
        if name in plugged or name in volumes or name in written:
            found[name] = disk.bus
    for name in (*written, *sorted(plugged)):
        if name in plugged and name not in found:
            found[name] = written.get(name) or _bus(observed.devices.get(DISK_PREFIX + name, ""))
    return found


def _bus(driver: str) -> str:
    return "virtio" if driver.startswith("virtio") else "scsi"


def _letters(prefix: str) -> Iterator[str]:
    """Yield a, b, … z, aa, ab, … behind a prefix, endlessly."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            yield prefix + "".join(letters)


def _fixed(old: Object, volume: Object, target: str, observed: Observed) -> Object:
    entry = {**old, "name": volume["name"], "target": target}
    drive = observed.drive(DISK_PREFIX + volume["name"])
    if drive is not None and (any(kind in volume for kind in _DISCS) or claim_of(volume)):
        entry["size"] = drive.size
    return entry


def _plugged(old: Object, name: str, now: Attachment, observed: Observed) -> Object:
    entry: Object = {
        "name": name,
        "phase": now.phase,
        "reason": now.reason,
        "message": conditions.human_readable(now.message),
        "target": "",
        "hotplugVolume": {},
    }
    if now.mounted:
        entry["mounted"] = True
    claim = claim_info(now.claim) if now.claim is not None else None
    if now.phase != "Pending":
        claim = claim or old.get("persistentVolumeClaimInfo")  # of what the guest still has
        drive = observed.drive(DISK_PREFIX + name)
        if drive is not None and drive.size:
            entry["size"] = drive.size
    if claim is not None:
        entry["persistentVolumeClaimInfo"] = claim
    return entry
