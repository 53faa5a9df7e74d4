"""Every edit of a running VM has one verdict: rows of the rules, ours and upstream's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.verdict.judgement import Judgement, Verdict
from livevirt.vm.verdict.kubevirt_differences import DIFFERENCES
from livevirt.vm.verdict.summary import plan_document
from livevirt.vm.verdict.verdict import judge, refuse
from livevirt.vm.verdict.verdict_inputs import Bound, VerdictInputs

from ..cases import (
    GATES,
    GONE,
    KVM,
    LIVE,
    STAGE,
    TCG,
    TEMPLATE,
    Around,
    a_claim,
    a_spec,
    condition,
    edited,
    judged,
    rulings,
    running,
    with_defaults,
)  # fmt: skip

SOCKETS, GUEST = "domain.cpu.sockets", "domain.memory.guest"
RESIZE = ("LiveAfterResize", "PodResize")
IN_PLACE, PLACED = ("Live", "InPlace"), ("Live", "NextPlacement")
UNSEEN, FOLLOWED = ("Live", "NoGuestChange"), ("Restart", "FollowsResources")
NOT_LIVE, HELD = ("Restart", "NotLiveUpdatable"), ("Restart", "HeldBack")
PLUGGED, MEDIUM = ("Live", "VolumeHotplug"), ("Live", "MediumChange")
IN_USE = ("Restart", "ClaimInUse")
DATA_VOLUME = {"name": "data", "dataVolume": {"name": "data", "hotpluggable": True}}
NOT_HOT, NOT_SERVED = ("Restart", "NotHotpluggable"), ("Restart", "NotAvailable")


@dataclass
class Row:
    edits: dict[str, Any]
    expected: dict[str, tuple[str, str]] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)
    config: Config = LIVE
    around: Around = field(default_factory=lambda: KVM)
    status: dict[str, Any] = field(default_factory=dict)
    differs: str = ""  # the key of the difference from KubeVirt that the row keeps


AGENT = {"conditions": [condition("AgentConnected")]}
FIXED = {"conditions": [condition("LiveMigratable", "False")]}
BALLOON = {"memory": {"guestAtBoot": "1Gi", "guestBallooned": "0", "balloonStatistics": True}}
MOVING = {"migrationState": {"startTimestamp": "2026-01-01T00:00:00Z"}}
BIG = {SOCKETS: 2}
TABLET = {"name": "pen", "type": "tablet", "bus": "usb"}
DEVICE = ("Live", "DeviceHotplug")

ROWS = {
    # live-update.md 2.3: the comparison
    "more sockets": Row({SOCKETS: 3}, {SOCKETS: RESIZE}),
    "as many sockets as the maximum": Row({SOCKETS: 4}, {SOCKETS: RESIZE}),
    "more sockets than the maximum": Row({SOCKETS: 5}, {SOCKETS: ("Restart", "AboveMaximum")}),
    "more sockets than the owner allows": Row(
        {SOCKETS: 3}, {SOCKETS: ("Refused", "AboveMaximum")}, {"domain.cpu.maxSockets": 2}
    ),
    "fewer sockets": Row({SOCKETS: 1}, {SOCKETS: IN_PLACE}, BIG, differs="fewer-sockets"),
    "fewer emulated sockets with an agent": Row(
        {SOCKETS: 1}, {SOCKETS: IN_PLACE}, BIG, around=TCG, status=AGENT, differs="fewer-sockets"
    ),
    "fewer emulated sockets without an agent": Row(
        {SOCKETS: 1}, {SOCKETS: ("Restart", "NoGuestAgent")}, BIG, around=TCG
    ),
    "fewer sockets on a node nobody knows": Row(
        {SOCKETS: 1}, {SOCKETS: ("Restart", "NoGuestAgent")}, BIG, around=Around()
    ),
    "fewer emulated sockets with an agent that does not report them": Row(
        {SOCKETS: 1}, {SOCKETS: ("Restart", "NoGuestAgent")}, BIG, around=TCG,
        status=AGENT | {"currentCPUTopology": {"sockets": 2, "confirmed": False}},
    ),
    "more sockets than the guest's kernel registers": Row(
        {SOCKETS: 3}, {SOCKETS: ("Restart", "GuestKernelLimit")},
        status={"currentCPUTopology": {"sockets": 1, "possible": 2}},
    ),
    "as many sockets as the guest's kernel registers": Row(
        {SOCKETS: 2}, {SOCKETS: RESIZE},
        status={"currentCPUTopology": {"sockets": 1, "possible": 2}},
    ),
    "more emulated sockets without an agent": Row({SOCKETS: 2}, {SOCKETS: RESIZE}, around=TCG),
    "sockets left out means one": Row(
        {SOCKETS: GONE}, {SOCKETS: IN_PLACE}, BIG, differs="fewer-sockets"
    ),
    "sockets of another architecture": Row(
        {SOCKETS: 2}, {SOCKETS: ("Restart", "Architecture")}, {"architecture": "arm64"}
    ),
    "sockets of a guest that cannot migrate": Row({SOCKETS: 2}, {SOCKETS: RESIZE}, status=FIXED),
    "sockets during a CPU change": Row(
        {SOCKETS: 3},
        {SOCKETS: RESIZE},
        status={"conditions": [condition("HotVCPUChange")]},
        differs="in-flight",
    ),
    "dedicated CPUs": Row(
        {SOCKETS: 2},
        {SOCKETS: ("LiveAfterMigration", "DedicatedCpus")},
        {"domain.cpu.dedicatedCpuPlacement": True},
    ),
    "a cpu block that says nothing": Row(
        {"domain.cpu": {"model": "host-model"}}, {}, {"domain.cpu": GONE}, differs="cpu-block"
    ),
    "no cpu block any more": Row(
        {"domain.cpu": GONE}, {}, {"domain.cpu": {"sockets": 1}}, differs="cpu-block"
    ),
    "more memory": Row({GUEST: "2Gi"}, {GUEST: RESIZE}),
    "memory up to the maximum": Row({GUEST: "4Gi"}, {GUEST: RESIZE}),
    "more memory than the maximum": Row({GUEST: "5Gi"}, {GUEST: ("Restart", "AboveMaximum")}),
    "more memory than the owner allows": Row(
        {GUEST: "3Gi"}, {GUEST: ("Refused", "AboveMaximum")}, {"domain.memory.maxGuest": "2Gi"}
    ),
    "less memory than at boot without a balloon": Row(
        {GUEST: "512Mi"}, {GUEST: ("Restart", "BelowBootSize")}
    ),
    "less memory than at boot": Row(
        {GUEST: "512Mi"}, {GUEST: IN_PLACE}, status=BALLOON, differs="below-boot"
    ),
    "as little memory as there can be": Row(
        {GUEST: "256Mi"}, {GUEST: IN_PLACE}, status=BALLOON, differs="below-boot"
    ),
    "less memory than there can be": Row(
        {GUEST: "254Mi"}, {GUEST: ("Restart", "BelowBootSize")}, status=BALLOON
    ),
    "less memory than at boot between blocks": Row(
        {GUEST: "511Mi"}, {GUEST: ("Restart", "Unaligned")}, status=BALLOON
    ),
    "less memory than at boot without statistics": Row(
        {GUEST: "512Mi"}, {GUEST: ("Restart", "NoBalloonStatistics")},
        status={"memory": {"guestAtBoot": "1Gi", "guestBallooned": "0"}},
    ),
    "less memory than at boot in huge pages": Row(
        {GUEST: "512Mi"}, {GUEST: ("Restart", "BelowBootSize")},
        {"domain.memory.hugepages": {"pageSize": "2Mi"}}, status=BALLOON,
    ),
    "memory between blocks": Row({GUEST: "1537Mi"}, {GUEST: ("Restart", "Unaligned")}),
    "memory of a guest under 1Gi": Row(
        {GUEST: "1Gi"}, {GUEST: RESIZE}, {GUEST: "512Mi"}, differs="small-guest"
    ),
    "memory of a guest that cannot migrate": Row(
        {GUEST: "2Gi"}, {GUEST: RESIZE}, status=FIXED, differs="non-migratable"
    ),
    "memory after a failed change": Row(
        {GUEST: "2Gi"},
        {GUEST: RESIZE},
        status={"conditions": [condition("HotMemoryChange", "False")]},
        differs="failed-memory",
    ),
    "memory during a memory change": Row(
        {GUEST: "2Gi"},
        {GUEST: RESIZE},
        status={"conditions": [condition("HotMemoryChange")]},
        differs="in-flight",
    ),
    "memory of a realtime guest": Row(
        {GUEST: "2Gi"}, {GUEST: ("Restart", "NotEligible")}, {"domain.cpu.realtime": {}}
    ),
    "memory of a guest with NUMA passed through": Row(
        {GUEST: "2Gi"},
        {GUEST: ("Restart", "NotEligible")},
        {"domain.cpu.numa": {"guestMappingPassthrough": {}}},
    ),
    "memory of an encrypted guest": Row(
        {GUEST: "2Gi"}, {GUEST: ("Restart", "NotEligible")}, {"domain.launchSecurity": {"sev": {}}}
    ),
    "memory of a guest of odd size": Row(
        {GUEST: "2Gi"}, {GUEST: ("Restart", "NotEligible")}, {GUEST: "1000M"}
    ),
    "memory of another architecture": Row(
        {GUEST: "2Gi"}, {GUEST: ("Restart", "NotEligible")}, {"architecture": "arm64"}
    ),
    "memory in huge pages of 2Mi": Row(
        {GUEST: "1026Mi"},
        {GUEST: ("LiveAfterMigration", "HugePages")},
        {"domain.memory.hugepages": {"pageSize": "2Mi"}},
    ),
    "memory between huge pages of 1Gi": Row(
        {GUEST: "1536Mi"},
        {GUEST: ("Restart", "Unaligned")},
        {"domain.memory.hugepages": {"pageSize": "1Gi"}},
    ),
    "memory told for the first time": Row(
        {GUEST: "2Gi"},
        {GUEST: RESIZE},
        {"domain.memory": {}, "domain.resources": {"requests": {"memory": "1Gi"}}},
    ),
    "memory no more told, as much as requested": Row(
        {GUEST: GONE}, {}, {"domain.resources": {"requests": {"memory": "1Gi"}}},
        differs="memory-block",
    ),
    "sockets and memory together": Row(
        {SOCKETS: 2, GUEST: "2Gi"}, {SOCKETS: RESIZE, GUEST: RESIZE}
    ),
    "fewer sockets and more memory": Row(
        {SOCKETS: 1, GUEST: "2Gi"}, {SOCKETS: IN_PLACE, GUEST: RESIZE}, BIG,
        differs="fewer-sockets",
    ),
    "node selector added": Row({"nodeSelector": {"zone": "a"}}, {"nodeSelector": PLACED}),
    "node selector removed": Row(
        {"nodeSelector": GONE}, {"nodeSelector": PLACED}, {"nodeSelector": {"zone": "a"}}
    ),
    "affinity": Row(
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {}}]}}},
        {"affinity": PLACED},
    ),
    "tolerations": Row({"tolerations": [{"operator": "Exists"}]}, {"tolerations": PLACED}),
    "cores": Row({"domain.cpu.cores": 4}, {"domain.cpu.cores": NOT_LIVE}),
    "threads": Row({"domain.cpu.threads": 2}, {"domain.cpu.threads": NOT_LIVE}),
    "CPU model": Row({"domain.cpu.model": "Haswell"}, {"domain.cpu.model": NOT_LIVE}),
    "maxSockets": Row({"domain.cpu.maxSockets": 8}, {"domain.cpu.maxSockets": NOT_LIVE}),
    "maxGuest": Row({"domain.memory.maxGuest": "8Gi"}, {"domain.memory.maxGuest": NOT_LIVE}),
    "huge pages": Row(
        {"domain.memory.hugepages": {"pageSize": "2Mi"}}, {"domain.memory.hugepages": NOT_LIVE}
    ),
    "requests": Row(
        {"domain.resources": {"requests": {"memory": "1Gi"}}},
        {"domain.resources.requests.memory": ("Live", "PodOnly")},
    ),
    "a limit removed": Row(
        {"domain.resources": {"requests": {"memory": "1Gi"}}},
        {"domain.resources.limits.memory": ("LiveAfterMigration", "LimitRemoved")},
        {"domain.resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
    ),
    "a pod that becomes Guaranteed": Row(
        {"domain.resources.limits": {"cpu": "1", "memory": "1Gi"}},
        {"domain.resources.limits.memory": ("LiveAfterMigration", "QosClass")},
        {"domain.resources": {"requests": {"cpu": "1", "memory": "1Gi"},
                              "limits": {"cpu": "1", "memory": "2Gi"}}},
    ),
    "a larger limit": Row(
        {"domain.resources.limits.cpu": "4"},
        {"domain.resources.limits.cpu": ("LiveAfterResize", "PodResize")},
        {"domain.resources": {"limits": {"cpu": "2"}}},
    ),
    "a smaller limit": Row(
        {"domain.resources.limits.cpu": "2"},
        {"domain.resources.limits.cpu": ("Live", "PodOnly")},
        {"domain.resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}},
    ),
    "limits that sockets follow": Row(
        {"domain.resources.limits.cpu": "2"},
        {SOCKETS: FOLLOWED, "domain.resources.limits.cpu": FOLLOWED},
        {"domain.cpu": {}, "domain.resources": {"limits": {"cpu": "1"}}},
    ),
    "requests that memory follows": Row(
        {"domain.resources.requests.memory": "2Gi"},
        {GUEST: FOLLOWED, "domain.resources.requests.memory": FOLLOWED},
        {"domain.memory": {}, "domain.resources": {"requests": {"memory": "1Gi"}}},
    ),
    "eviction strategy": Row(
        {"evictionStrategy": "LiveMigrate"}, {"evictionStrategy": UNSEEN}
    ),
    "grace period": Row(
        {"terminationGracePeriodSeconds": 0}, {"terminationGracePeriodSeconds": UNSEEN}
    ),
    "hostname": Row({"hostname": "web"}, {"hostname": NOT_LIVE}),
    "a probe": Row({"readinessProbe": {"guestAgentPing": {}}}, {"readinessProbe": UNSEEN}),
    "priority": Row({"priorityClassName": "high"}, {"priorityClassName": PLACED}),
    "scheduler": Row({"schedulerName": "other"}, {"schedulerName": PLACED}),
    "spread": Row(
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                                        "whenUnsatisfiable": "DoNotSchedule"}]},
        {"topologySpreadConstraints": PLACED},
    ),
    "a host device": Row(
        {"domain.devices.hostDevices": [{"name": "nic", "deviceName": "intel.com/nic"}]},
        {"domain.devices.hostDevices[nic]": NOT_LIVE},
    ),
    "another random number generator": Row(
        {"domain.devices.rng": {}}, {"domain.devices.rng": DEVICE}, differs="devices"
    ),
    "no balloon any more": Row(
        {"domain.devices.autoattachMemBalloon": False},
        {"domain.devices.autoattachMemBalloon": DEVICE}, status=BALLOON, differs="devices",
    ),
    "no balloon any more while it holds memory": Row(
        {"domain.devices.autoattachMemBalloon": False},
        {"domain.devices.autoattachMemBalloon": ("Restart", "BelowBootSize")},
        status={"memory": {"guestAtBoot": "1Gi", "guestBallooned": "256Mi"}},
    ),
    "a balloon without a port": Row(
        {"domain.devices.autoattachMemBalloon": GONE},
        {"domain.devices.autoattachMemBalloon": ("Live", "NoFreePort")},
        {"domain.devices.autoattachMemBalloon": False}, status={"freePCIePorts": 0},
        differs="devices",
    ),
    "a tablet": Row(
        {"domain.devices.inputs": [TABLET]}, {"domain.devices.inputs": DEVICE},
        status={"devices": {"usb": True}}, differs="devices",
    ),
    "a tablet without a controller": Row(
        {"domain.devices.inputs": [TABLET]},
        {"domain.devices.inputs": ("Restart", "BusNotHotpluggable")},
    ),
    "a tablet on virtio": Row(
        {"domain.devices.inputs": [TABLET | {"bus": "virtio"}]},
        {"domain.devices.inputs": ("Restart", "BusNotHotpluggable")},
        status={"devices": {"usb": True}},
    ),
    "another action of the watchdog": Row(
        {"domain.devices.watchdog.i6300esb.action": "poweroff"},
        {"domain.devices.watchdog": DEVICE},
        {"domain.devices.watchdog": {"name": "dog", "i6300esb": {"action": "reset"}}},
        status={"devices": {"watchdog": "reset"}}, differs="devices",
    ),
    "a watchdog": Row(
        {"domain.devices.watchdog": {"name": "dog", "i6300esb": {"action": "reset"}}},
        {"domain.devices.watchdog": ("Restart", "BusNotHotpluggable")},
    ),
    "another boot order": Row(
        {"domain.devices.disks.0.bootOrder": 1},
        {"domain.devices.disks[root].bootOrder": ("Live", "BootOrder")}, differs="devices",
    ),
    "another boot order under Stage": Row(
        {"domain.devices.disks.0.bootOrder": 1},
        {"domain.devices.disks[root].bootOrder": ("Restart", "StageStrategy")}, config=STAGE,
    ),
    "another boot order and another cache": Row(
        {"domain.devices.disks.0.bootOrder": 1, "domain.devices.disks.0.cache": "none"},
        {"domain.devices.disks[root].bootOrder": NOT_HOT,
         "domain.devices.disks[root].cache": NOT_HOT},
    ),
    "no graphics": Row({"domain.devices.autoattachGraphicsDevice": False},
                       {"domain.devices.autoattachGraphicsDevice": NOT_LIVE}),
    "another firmware uuid": Row(
        {"domain.firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}},
        {"domain.firmware.uuid": NOT_LIVE},
    ),
    "UEFI": Row({"domain.firmware": {"bootloader": {"efi": {}}}},
                {"domain.firmware.bootloader": NOT_LIVE}),
    # 2.4: volumes and disks
    "a hotpluggable volume and its disk": Row(
        {"volumes.+": a_claim("more"),
         "domain.devices.disks.+": {"name": "more", "disk": {"bus": "scsi"}}},
        {"domain.devices.disks[more]": PLUGGED, "volumes[more]": PLUGGED},
    ),
    "a hotpluggable DataVolume on a lun": Row(
        {"volumes.+": {"name": "more", "dataVolume": {"name": "more", "hotpluggable": True}},
         "domain.devices.disks.+": {"name": "more", "lun": {"bus": "scsi"}}},
        {"domain.devices.disks[more]": NOT_SERVED, "volumes[more]": NOT_SERVED},
        differs="lun",
    ),
    "a lun removed": Row(
        {"volumes.1": GONE, "domain.devices.disks.1": GONE},
        {"domain.devices.disks[data]": PLUGGED, "volumes[data]": PLUGGED},
        {"domain.devices.disks.1": {"name": "data", "lun": {"bus": "scsi"}}},
    ),
    "a hotpluggable volume whose disk is left out": Row(
        {"volumes.+": a_claim("more")},
        {"domain.devices.disks[more]": PLUGGED, "volumes[more]": PLUGGED},
        differs="hotplug-bus",
    ),
    "a hotpluggable volume on sata": Row(
        {"volumes.+": a_claim("more"),
         "domain.devices.disks.+": {"name": "more", "disk": {"bus": "sata"}}},
        {"domain.devices.disks[more]": ("Restart", "BusNotHotpluggable"),
         "volumes[more]": ("Restart", "BusNotHotpluggable")},
        differs="hotplug-bus",
    ),
    "a hotpluggable volume on usb": Row(
        {"volumes.+": a_claim("more"),
         "domain.devices.disks.+": {"name": "more", "disk": {"bus": "usb"}}},
        {"domain.devices.disks[more]": ("Restart", "BusNotHotpluggable"),
         "volumes[more]": ("Restart", "BusNotHotpluggable")},
        differs="hotplug-bus",
    ),
    "a volume that is not hotpluggable": Row(
        {"volumes.+": a_claim("more", hot=False),
         "domain.devices.disks.+": {"name": "more", "disk": {"bus": "scsi"}}},
        {"domain.devices.disks[more]": NOT_HOT, "volumes[more]": NOT_HOT},
    ),
    "one hotpluggable and one that is not": Row(
        {"volumes.+": a_claim("more", hot=False), "volumes.1": a_claim("data", "other")},
        {"domain.devices.disks[more]": NOT_HOT, "volumes[more]": NOT_HOT,
         "volumes[data].persistentVolumeClaim.claimName": PLUGGED},
    ),
    "a hotpluggable volume and its disk removed": Row(
        {"volumes.1": GONE, "domain.devices.disks.1": GONE},
        {"domain.devices.disks[data]": PLUGGED, "volumes[data]": PLUGGED},
    ),
    "a boot volume and its disk removed": Row(
        {"volumes.0": GONE, "domain.devices.disks.0": GONE},
        {"domain.devices.disks[root]": NOT_HOT, "volumes[root]": NOT_HOT},
    ),
    "another claim for a hotpluggable disk": Row(
        {"volumes.1": a_claim("data", "other")},
        {"volumes[data].persistentVolumeClaim.claimName": PLUGGED},
    ),
    "another image of a boot disk": Row(
        {"volumes.0.containerDisk.image": "other"},
        {"volumes[root].containerDisk.image": NOT_HOT},
    ),
    "another claim of a boot disk": Row(
        {"volumes.1": a_claim("data", "other", hot=False)},
        {"volumes[data].persistentVolumeClaim.claimName": NOT_HOT},
        {"volumes.1": a_claim("data", hot=False)},
    ),
    "only settings of a hotpluggable disk": Row(
        {"domain.devices.disks.1.serial": "abc"},
        {"domain.devices.disks[data].serial": ("Restart", "DiskSettingsOnly")},
        differs="disk-settings",
    ),
    "a hotpluggable volume made read-only": Row(
        {"volumes.1.persistentVolumeClaim.readOnly": True},
        {"volumes[data].persistentVolumeClaim.readOnly": PLUGGED},
    ),
    "a boot volume made read-only": Row(
        {"volumes.1.persistentVolumeClaim.readOnly": True},
        {"volumes[data].persistentVolumeClaim.readOnly": NOT_HOT},
        {"volumes.1": a_claim("data", hot=False)},
    ),
    "a hotpluggable volume made read-only on sata": Row(
        {"volumes.1.persistentVolumeClaim.readOnly": True},
        {"volumes[data].persistentVolumeClaim.readOnly": ("Restart", "BusNotHotpluggable")},
        {"domain.devices.disks.1.disk.bus": "sata"},
    ),
    "the same claim by another word": Row(
        {"volumes.1": DATA_VOLUME},
        {"volumes[data].persistentVolumeClaim": PLUGGED, "volumes[data].dataVolume": PLUGGED},
    ),
    "the same claim by another word, and settings of its disk": Row(
        {"volumes.1": DATA_VOLUME, "domain.devices.disks.1.serial": "abc"},
        {"volumes[data].persistentVolumeClaim": PLUGGED, "volumes[data].dataVolume": PLUGGED,
         "domain.devices.disks[data].serial": ("Restart", "DiskSettingsOnly")},
        differs="disk-settings",
    ),
    "another claim, and settings of its disk": Row(
        {"volumes.1": a_claim("data", "other"), "domain.devices.disks.1.serial": "abc"},
        {"volumes[data].persistentVolumeClaim.claimName": PLUGGED,
         "domain.devices.disks[data].serial": PLUGGED},
    ),
    "a claim passes from a disk that stays to one that comes": Row(
        {"volumes.1": a_claim("other", "data"),
         "domain.devices.disks.1": {"name": "other", "disk": {"bus": "scsi"}}},
        {"domain.devices.disks[data]": NOT_HOT, "volumes[data]": NOT_HOT,
         "domain.devices.disks[other]": IN_USE, "volumes[other]": IN_USE},
        {"volumes.1": a_claim("data", hot=False)},
    ),
    "a claim passes from a disk that stays to a drive": Row(
        {"volumes.1": a_claim("cd", "data"), "domain.devices.disks.1": GONE},
        {"domain.devices.disks[data]": NOT_HOT, "volumes[data]": NOT_HOT, "volumes[cd]": IN_USE},
        {"volumes.1": a_claim("data", hot=False)},
    ),
    "a claim passes from a disk that stays, and both only read it": Row(
        {"volumes.1": a_claim("cd", "data"), "domain.devices.disks.1": GONE},
        {"domain.devices.disks[data]": NOT_HOT, "volumes[data]": NOT_HOT, "volumes[cd]": MEDIUM},
        {"volumes.1": a_claim("data", hot=False),
         "domain.devices.disks.1.disk.readonly": True},
    ),
    "a claim passes from a disk that goes to one that comes": Row(
        {"volumes.1": a_claim("other", "data"),
         "domain.devices.disks.1": {"name": "other", "disk": {"bus": "scsi"}}},
        {"domain.devices.disks[data]": PLUGGED, "volumes[data]": PLUGGED,
         "domain.devices.disks[other]": PLUGGED, "volumes[other]": PLUGGED},
    ),
    "a boot volume made hotpluggable": Row(
        {"volumes.1": a_claim("data")},
        {"volumes[data].persistentVolumeClaim.hotpluggable": NOT_HOT},
        {"volumes.1": a_claim("data", hot=False)},
        differs="hotpluggable-flip",
    ),
    "a boot volume made hotpluggable with another claim": Row(
        {"volumes.1": a_claim("data", "other")},
        {"volumes[data].persistentVolumeClaim.hotpluggable": NOT_HOT,
         "volumes[data].persistentVolumeClaim.claimName": NOT_HOT},
        {"volumes.1": a_claim("data", hot=False)},
        differs="hotpluggable-flip",
    ),
    "a volume no more hotpluggable": Row(
        {"volumes.1": a_claim("data", hot=False)},
        {"volumes[data].persistentVolumeClaim.hotpluggable": NOT_HOT},
    ),
    "a medium injected": Row({"volumes.+": a_claim("cd", "iso")}, {"volumes[cd]": MEDIUM}),
    "a medium ejected": Row(
        {"volumes.2": GONE}, {"volumes[cd]": MEDIUM}, {"volumes.+": a_claim("cd", "iso")}
    ),
    "a medium swapped": Row(
        {"volumes.2": a_claim("cd", "b")},
        {"volumes[cd].persistentVolumeClaim.claimName": MEDIUM},
        {"volumes.+": a_claim("cd", "a")},
    ),
    "a medium that is not hotpluggable": Row(
        {"volumes.+": a_claim("cd", "iso", hot=False)}, {"volumes[cd]": NOT_HOT}
    ),
    "a medium of the start that is not hotpluggable": Row(
        {"volumes.2": GONE}, {"volumes[cd]": NOT_HOT}, {"volumes.+": a_claim("cd", hot=False)}
    ),
    "another medium of the start that is not hotpluggable": Row(
        {"volumes.2": a_claim("cd", "other", hot=False)},
        {"volumes[cd].persistentVolumeClaim.claimName": NOT_HOT},
        {"volumes.+": a_claim("cd", hot=False)},
    ),
    "an empty drive added": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {}}},
        {"domain.devices.disks[cd2]": ("Restart", "DriveNotHotpluggable")},
    ),
    "a drive with a medium added": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {}}, "volumes.+": a_claim("cd2")},
        {"domain.devices.disks[cd2]": ("Restart", "DriveNotHotpluggable"),
         "volumes[cd2]": ("Restart", "DriveNotHotpluggable")},
        differs="new-drive",
    ),
    "a drive removed": Row(
        {"domain.devices.disks.2": GONE},
        {"domain.devices.disks[cd]": ("Restart", "DriveNotHotpluggable")},
    ),
    "a drive removed with its medium": Row(
        {"domain.devices.disks.2": GONE, "volumes.2": GONE},
        {"domain.devices.disks[cd]": ("Restart", "DriveNotHotpluggable"), "volumes[cd]": MEDIUM},
        {"volumes.+": a_claim("cd", "iso")},
    ),
    "an empty drive added on scsi": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {"bus": "scsi"}}},
        {"domain.devices.disks[cd2]": PLUGGED},
        differs="new-drive",
    ),
    "a drive with a medium added on scsi": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {"bus": "scsi"}},
         "volumes.+": a_claim("cd2")},
        {"domain.devices.disks[cd2]": PLUGGED, "volumes[cd2]": PLUGGED},
        differs="new-drive",
    ),
    "a drive with a medium removed from scsi": Row(
        {"domain.devices.disks.2": GONE, "volumes.2": GONE},
        {"domain.devices.disks[cd]": PLUGGED, "volumes[cd]": PLUGGED},
        {"domain.devices.disks.2": {"name": "cd", "cdrom": {"bus": "scsi"}},
         "volumes.+": a_claim("cd", "iso")},
        differs="new-drive",
    ),
    "a drive added on usb": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {"bus": "usb"}}},
        {"domain.devices.disks[cd2]": PLUGGED},
        {"domain.devices.disks.2": {"name": "cd", "cdrom": {"bus": "usb"}}},
        differs="new-drive",
    ),
    "a drive added on usb where there is a controller": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {"bus": "usb"}}},
        {"domain.devices.disks[cd2]": PLUGGED},
        status={"devices": {"usb": True}},
        differs="new-drive",
    ),
    "a drive added on usb to a guest without a controller": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {"bus": "usb"}}},
        {"domain.devices.disks[cd2]": ("Restart", "DriveNotHotpluggable")},
    ),
    "a drive that changes its bus": Row(
        {"domain.devices.disks.2": {"name": "cd", "cdrom": {"bus": "scsi"}}},
        {"domain.devices.disks[cd].cdrom.bus": ("Restart", "DriveNotHotpluggable")},
    ),
    "a drive on scsi while the gate is closed": Row(
        {"domain.devices.disks.+": {"name": "cd2", "cdrom": {"bus": "scsi"}}},
        {"domain.devices.disks[cd2]": ("Restart", "FeatureGateMissing")},
        config=replace(LIVE, gates=GATES - {"HotplugVolumes"}),
        differs="volume-gates",
    ),
    "a hotpluggable volume while the gate is closed": Row(
        {"volumes.1": a_claim("data", "other")},
        {"volumes[data].persistentVolumeClaim.claimName": ("Restart", "FeatureGateMissing")},
        config=replace(LIVE, gates=GATES - {"HotplugVolumes"}),
        differs="volume-gates",
    ),
    "a medium while the gate is closed": Row(
        {"volumes.+": a_claim("cd", "iso")},
        {"volumes[cd]": ("Restart", "FeatureGateMissing")},
        config=replace(LIVE, gates=GATES - {"InjectEjectCDROM"}),
        differs="volume-gates",
    ),
    "KubeVirt's one name of both volume gates": Row(
        {"volumes.1": a_claim("data", "other")},
        {"volumes[data].persistentVolumeClaim.claimName": PLUGGED},
        config=replace(LIVE, gates=frozenset({"VMLiveUpdateFeatures",
                                              "DeclarativeHotplugVolumes"})),
    ),
    # 2.5: interfaces
    "an interface added": Row(
        {"domain.devices.interfaces.+": {"name": "two", "bridge": {}},
         "networks.+": {"name": "two", "multus": {"networkName": "lan"}}},
        {"domain.devices.interfaces[two]": NOT_LIVE, "networks[two]": NOT_LIVE},
        differs="interfaces",
    ),
    "the state of an interface": Row(
        {"domain.devices.interfaces.0.state": "down"},
        {"domain.devices.interfaces[default].state": NOT_LIVE},
        differs="interfaces",
    ),
    "an interface changed": Row(
        {"domain.devices.interfaces.0.model": "e1000"},
        {"domain.devices.interfaces[default].model": NOT_LIVE},
    ),
    "an interface removed": Row(
        {"domain.devices.interfaces.0": GONE, "networks.0": GONE,
         "domain.devices.autoattachPodInterface": False},
        {"domain.devices.interfaces[default]": NOT_LIVE, "networks[default]": NOT_LIVE,
         "domain.devices.autoattachPodInterface": NOT_LIVE},
    ),
    # 2.6 and the whole edit
    "one restart holds everything else back": Row(
        {"domain.cpu.cores": 4, GUEST: "2Gi", "nodeSelector": {"zone": "a"}},
        {"domain.cpu.cores": NOT_LIVE, GUEST: HELD, "nodeSelector": HELD},
    ),
    "sockets above the maximum hold memory back": Row(
        {SOCKETS: 5, GUEST: "2Gi"},
        {SOCKETS: ("Restart", "AboveMaximum"), GUEST: HELD},
        differs="held-back",
    ),
    "a volume that waits holds sizes back": Row(
        {"domain.devices.disks.1.serial": "abc", SOCKETS: 2},
        {"domain.devices.disks[data].serial": ("Restart", "DiskSettingsOnly"), SOCKETS: HELD},
    ),
    "volumes are not held back": Row(
        {"domain.cpu.cores": 4, "volumes.1": a_claim("data", "other"),
         "volumes.+": a_claim("cd", "iso")},
        {"domain.cpu.cores": NOT_LIVE, "volumes[cd]": MEDIUM,
         "volumes[data].persistentVolumeClaim.claimName": PLUGGED},
    ),
    "a live volume holds nothing back": Row(
        {SOCKETS: 2, "volumes.1": a_claim("data", "other")},
        {SOCKETS: RESIZE, "volumes[data].persistentVolumeClaim.claimName": PLUGGED},
    ),
    "gate PartialLiveUpdate lets through what can be live": Row(
        {"domain.cpu.cores": 4, GUEST: "2Gi", "nodeSelector": {"zone": "a"}},
        {"domain.cpu.cores": NOT_LIVE, GUEST: RESIZE, "nodeSelector": PLACED},
        config=replace(LIVE, gates=GATES | {"PartialLiveUpdate"}),
    ),
    "during a migration": Row(
        {SOCKETS: 2, "nodeSelector": {"zone": "a"}},
        {SOCKETS: ("Live", "Migrating"), "nodeSelector": ("Live", "Migrating")},
        status=MOVING,
    ),
    "a volume that comes, one that changes and a medium, during a migration": Row(
        {"volumes.1": a_claim("data", "other"), "volumes.+": a_claim("cd", "iso")},
        {"volumes[data].persistentVolumeClaim.claimName": ("Live", "Migrating"),
         "volumes[cd]": ("Live", "Migrating")},
        status=MOVING, differs="during-migration",
    ),
    "a volume that waits for a restart, during a migration": Row(
        {"volumes.1": a_claim("data", hot=False)},
        {"volumes[data].persistentVolumeClaim.hotpluggable": NOT_HOT},
        status=MOVING,
    ),
    # strategies and gates
    "Stage: sockets": Row({SOCKETS: 2}, {SOCKETS: ("Restart", "StageStrategy")}, config=STAGE),
    "Stage: placement": Row(
        {"tolerations": [{"operator": "Exists"}]},
        {"tolerations": ("Restart", "StageStrategy")},
        config=STAGE,
    ),
    "Stage: a hotpluggable volume": Row(
        {"volumes.1": a_claim("data", "other"), SOCKETS: 2},
        {"volumes[data].persistentVolumeClaim.claimName": PLUGGED,
         SOCKETS: ("Restart", "StageStrategy")},
        config=STAGE,
    ),
    "no strategy": Row(
        {SOCKETS: 2}, {SOCKETS: ("Restart", "StageStrategy")},
        config=replace(LIVE, strategy=""), differs="default-strategy",
    ),
    "no gate": Row(
        {SOCKETS: 2, GUEST: "2Gi"},
        {SOCKETS: ("Restart", "FeatureGateMissing"), GUEST: ("Restart", "FeatureGateMissing")},
        config=Config(strategy="LiveUpdate"), differs="gate",
    ),
    "in place switched off": Row(
        {SOCKETS: 2},
        {SOCKETS: ("LiveAfterMigration", "InPlaceHotplugDisabled")},
        config=replace(LIVE, disabled=frozenset({"InPlaceHotplug"})),
    ),
    # no change at all
    "a written default": Row(
        {"domain.cpu.threads": 1, "terminationGracePeriodSeconds": 30, "architecture": "amd64",
         "domain.machine": {"type": "q35"}, "evictionStrategy": "None",
         "domain.cpu.model": "host-model", "domain.cpu.maxSockets": 4,
         "domain.memory.maxGuest": "4Gi", "domain.devices.autoattachGraphicsDevice": True,
         "domain.features": {"acpi": {}}, "domain.rebootPolicy": "Reboot",
         "domain.firmware": {"bootloader": {"bios": {}}}, "domain.devices.rng": None,
         "nodeSelector": {}, "affinity": {}, "tolerations": []},
        differs="written-default",
    ),
    "another spelling of an amount": Row({GUEST: "1024Mi"}),
    "another order of everything": Row(
        {"volumes": list(reversed(a_spec()["volumes"])),
         "domain.devices.disks": list(reversed(a_spec()["domain"]["devices"]["disks"]))}
    ),
    "the firmware uuid that runs": Row(
        {"domain.firmware": {"uuid":
            running(a_spec())["spec"]["domain"]["firmware"]["uuid"].upper()}}
    ),
    "the MAC address that runs": Row(
        {"domain.devices.interfaces.0.macAddress":
            running(a_spec())["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"].upper()}
    ),
    "generated names no more written": Row(
        {"domain.firmware": GONE, "domain.devices.interfaces.0.macAddress": GONE},
        {},
        {"domain.firmware": {"uuid": running(a_spec())["spec"]["domain"]["firmware"]["uuid"]},
         "domain.devices.interfaces.0.macAddress":
             running(a_spec())["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"]},
    ),
    "interfaces written out": Row(
        {"domain.devices.interfaces": [{"name": "default", "masquerade": {}}],
         "networks": [{"name": "default", "pod": {}}]},
        {}, {"domain.devices.interfaces": GONE, "networks": GONE},
    ),
    "sockets written out": Row(
        {SOCKETS: 2}, {}, {"domain.cpu": {}, "domain.resources": {"limits": {"cpu": "1500m"}}}
    ),
    "tolerations in another order": Row(
        {"tolerations": [{"key": "b", "operator": "Equal"}, {"key": "a"}]},
        {}, {"tolerations": [{"key": "a"}, {"key": "b"}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_changed_field_has_its_verdict(row: Row) -> None:
    started = edited(a_spec(), row.start)
    found = judged(
        started,
        edited(started, row.edits),
        config=row.config,
        around=row.around,
        **row.status,
    )

    assert rulings(found) == row.expected


def test_every_difference_from_kubevirt_is_kept_by_a_row() -> None:
    kept = {row.differs for row in ROWS.values() if row.differs}

    elsewhere = {"halted", "volume-migration", "volume-migration-others"}  # test_volume_migration
    assert kept | elsewhere == {each.key for each in DIFFERENCES}


@pytest.mark.parametrize(
    ("start", "edits", "path", "nearest"),
    [
        ({}, {SOCKETS: 9}, SOCKETS, 4),
        ({SOCKETS: 4, "domain.cpu.maxSockets": 4}, {SOCKETS: 9}, SOCKETS, 4),
        ({}, {GUEST: "9Gi"}, GUEST, "4Gi"),
        ({}, {GUEST: "1Mi"}, GUEST, None),  # it runs with the least already
        ({}, {GUEST: "1537Mi"}, GUEST, "1536Mi"),
        ({}, {GUEST: "1025Mi"}, GUEST, "1026Mi"),  # one block down would be no change
        ({}, {"domain.cpu.cores": 3}, "domain.cpu.cores", None),
    ],
)
def test_the_nearest_live_value_is_told_where_there_is_one(
    start: dict[str, Any], edits: dict[str, Any], path: str, nearest: Any
) -> None:
    started = edited(a_spec(), start)
    change = judged(started, edited(started, edits)).change(TEMPLATE + path)

    assert change is not None
    assert change.nearest == nearest


def test_given_a_grown_guest_when_it_shrinks_below_boot_then_boot_is_the_nearest() -> None:
    started = a_spec()
    vmi = running(started, memory={"guestAtBoot": "1Gi"})
    vmi["spec"]["domain"]["memory"]["guest"] = "2Gi"

    change = judged(started, edited(started, {GUEST: "512Mi"}), vmi=vmi).changes[0]

    assert change.running == "2Gi"
    assert change.nearest == "1Gi"


def test_given_a_change_went_live_then_only_going_back_is_a_change() -> None:
    vmi = running(a_spec(), memory={"guestAtBoot": "1Gi"})
    vmi["spec"]["domain"]["cpu"]["sockets"] = 3
    vmi["spec"]["domain"]["memory"]["guest"] = "2Gi"
    vmi["spec"]["volumes"][1] = a_claim("data", "other")
    grown = edited(a_spec(), {SOCKETS: 3, GUEST: "2Gi", "volumes.1": a_claim("data", "other")})

    assert judged(a_spec(), grown, vmi=vmi).changes == ()
    assert rulings(judged(a_spec(), a_spec(), vmi=vmi)) == {
        SOCKETS: IN_PLACE,
        GUEST: IN_PLACE,
        "volumes[data].persistentVolumeClaim.claimName": PLUGGED,
    }


@pytest.mark.parametrize(
    "vmi",
    [
        None,
        {**running(a_spec()), "status": {"phase": "Succeeded"}},
        {**running(a_spec()), "status": {"phase": "Failed"}},
        edited(running(a_spec()), {"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
    ids=["none", "succeeded", "failed", "going"],
)
def test_given_no_guest_then_no_change_waits_for_a_restart(vmi: Object | None) -> None:
    found = judge(VerdictInputs(a_spec(), edited(a_spec(), {"domain.cpu.cores": 4}), vmi, LIVE))

    assert found == Judgement()


CHANGED_DEFAULTS = {
    "ratio": with_defaults(max_hotplug_ratio=2),
    "sockets": with_defaults(max_cpu_sockets=1),
    "memory": with_defaults(max_guest="1Gi"),
    "CPU model": with_defaults(cpu_model="Haswell"),
    "machine type": with_defaults(machine_type="pc-q35-7.2"),
    "CPU request": with_defaults(cpu_request="200m"),
    "eviction": replace(LIVE, eviction_strategy="LiveMigrate"),
    "binding": replace(LIVE, network_binding="bridge"),
}


@pytest.mark.parametrize("config", CHANGED_DEFAULTS.values(), ids=CHANGED_DEFAULTS)
@pytest.mark.parametrize("networks", [a_spec(), a_spec(domain__devices__interfaces=[])])
def test_given_cluster_defaults_change_then_running_guests_need_nothing(
    config: Config, networks: Object
) -> None:
    written = edited(networks, {"evictionStrategy": "None", "domain.machine": {"type": "q35"}})

    assert judged(networks, networks, config=config).changes == ()
    assert judged(networks, written, config=config).changes == ()
    assert rulings(judged(networks, edited(networks, {SOCKETS: 4}), config=config)) == {
        SOCKETS: RESIZE
    }


def test_given_a_guest_started_under_stage_when_live_update_comes_then_it_has_no_room() -> None:
    started = a_spec(domain__cpu__sockets=2)
    vmi = running(started, STAGE)

    def verdict(edits: dict[str, Any]) -> dict[str, tuple[str, str]]:
        return rulings(judged(started, edited(started, edits), vmi=vmi))

    assert verdict({SOCKETS: 3}) == {SOCKETS: ("Restart", "AboveMaximum")}
    assert verdict({SOCKETS: 1}) == {SOCKETS: IN_PLACE}
    assert verdict({GUEST: "2Gi"}) == {GUEST: ("Restart", "NotEligible")}
    assert verdict({"domain.cpu.maxSockets": 8}) == {"domain.cpu.maxSockets": NOT_LIVE}


def test_dropping_a_maximum_that_equals_the_default_is_no_change() -> None:
    started = a_spec(domain__cpu__maxSockets=4, domain__memory__maxGuest="4Gi")

    assert judged(started, a_spec()).changes == ()
    assert rulings(judged(a_spec(domain__cpu__maxSockets=6), a_spec())) == {
        "domain.cpu.maxSockets": NOT_LIVE
    }


def test_given_another_default_bus_since_the_start_then_disks_that_name_none_stay() -> None:
    started = a_spec()
    del started["domain"]["devices"]["disks"][1]["disk"]["bus"]
    vmi = running(started)
    vmi["spec"]["domain"]["devices"]["disks"][1]["disk"]["bus"] = "usb"

    assert judged(started, started, vmi=vmi).changes == ()


def bound(kind: str, **left: str) -> Around:
    amounts = {name.replace("_", "."): parse(text) for name, text in left.items()}
    return {**KVM, "bounds": (Bound(kind, "team", amounts),)}


ROOM = {
    "quota with room for the difference": (bound("ResourceQuota", requests_cpu="200m"), RESIZE, 0),
    "quota without": (bound("ResourceQuota", requests_cpu="199m"),
                      ("LiveAfterResize", "OverQuota"), 4),
    "limit range": (bound("LimitRange", cpu="100m"), ("LiveAfterResize", "OverLimitRange"), 4),
    "full node": (bound("Node", cpu="0"), ("LiveAfterResize", "NodeFull"), 4),
    "full node, migration allowed": ({**bound("Node", cpu="0"), "migration_obstacle": ""},
                                     ("LiveAfterMigration", "NodeFull"), 0),
    "quota of something else": (bound("ResourceQuota", limits_cpu="0"), RESIZE, 0),
}  # fmt: skip


@pytest.mark.parametrize(("around", "expected", "status"), ROOM.values(), ids=ROOM)
def test_growing_needs_room_for_the_difference(
    around: Around, expected: tuple[str, str], status: int
) -> None:
    found = judged(a_spec(), a_spec(domain__cpu__sockets=2), around=around)

    assert rulings(found) == {SOCKETS: expected}
    assert found.waits == (status == 4)


def test_what_is_missing_is_told() -> None:
    around = bound("ResourceQuota", requests_cpu="150m")
    change = judged(a_spec(), a_spec(domain__cpu__sockets=2), around=around).changes[0]

    assert "ResourceQuota team is missing 50m of requests.cpu" in change.message


def test_given_a_full_node_when_a_guest_shrinks_then_it_does_not_wait() -> None:
    around = bound("Node", cpu="0", memory="0")
    started = a_spec(domain__cpu__sockets=4)

    found = judged(started, a_spec(domain__cpu__sockets=1), around=around)

    assert rulings(found) == {SOCKETS: IN_PLACE}
    assert not found.waits


#: A growth from 1 to 3 sockets and from 1Gi to 3Gi has not reached the guest.
HELD_UP: Object = {
    "currentCPUTopology": {"sockets": 1, "cores": 2, "threads": 1},
    "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
    "conditions": [
        {"type": type_, "status": "True", "reason": "Deferred", "message": "full"}
        for type_ in ("HotVCPUChange", "HotMemoryChange")
    ],
}


@pytest.mark.parametrize(
    ("lower", "missing", "words"),
    [
        ({SOCKETS: 2, GUEST: "3Gi"}, {"cpu": "-201m"}, "whole sockets are plugged into"),
        ({SOCKETS: 3, GUEST: "2Gi"}, {"memory": "-2Gi"}, "memory is plugged into"),
    ],
    ids=["sockets", "memory"],
)
def test_given_a_growth_is_held_up_when_less_is_asked_for_then_that_needs_room_too(
    lower: dict[str, Any], missing: dict[str, str], words: str
) -> None:
    started, asked = a_spec(), a_spec(domain__cpu__sockets=3, domain__memory__guest="3Gi")
    vmi = {**running(started), "status": {"phase": "Running", **HELD_UP}}
    vmi["spec"] = edited(vmi["spec"], {SOCKETS: 3, GUEST: "3Gi"})
    wanted = edited(asked, lower)

    full = judged(started, wanted, vmi=vmi, around=bound("Node", **missing))
    free = judged(started, wanted, vmi=vmi, around=bound("Node", cpu="0", memory="0"))
    back = judged(started, started, vmi=vmi, around=bound("Node", **missing))

    assert list(rulings(full).values()) == [("LiveAfterResize", "NodeFull")]
    assert full.waits
    assert list(rulings(free).values()) == [RESIZE]
    assert words in free.changes[0].message
    assert rulings(back) == {SOCKETS: IN_PLACE, GUEST: IN_PLACE}  # what the guest has, it has


def test_what_admission_refuses_is_refused() -> None:
    found = judged(a_spec(), a_spec(domain__cpu__sockets=2, hostname="_"))
    errors = [
        FieldError(f"{TEMPLATE}hostname", "FieldValueInvalid", "no such name"),
        FieldError("spec.runStrategy", "FieldValueInvalid", "no such strategy"),
    ]

    refused = refuse(found, errors)

    assert refused.verdict is Verdict.REFUSED
    assert [change.path for change in refused.of(Verdict.REFUSED)] == [
        f"{TEMPLATE}hostname",
        "spec.runStrategy",
    ]


def test_a_size_that_nobody_in_the_guest_will_confirm_says_so() -> None:
    unsure = {"currentCPUTopology": {"sockets": 1, "confirmed": False}}
    judgement = judged(a_spec(), edited(a_spec(), {SOCKETS: 2, GUEST: "2Gi"}), **unsure)
    assert {c.path.rpartition(".")[2]: c.unconfirmed for c in judgement.changes} == {
        "sockets": "NoGuestAgent",
        "guest": "",
    }
    planned = {
        c["path"].rpartition(".")[2]: c for c in plan_document(judgement, "web", {})["changes"]
    }
    assert planned["sockets"]["confirmed"] is False
    assert "confirmed" not in planned["guest"]
