"""Fact sheet 4.5: what a preference makes of a template."""

from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import preferences
from livevirt.vm.instancetypes.rules.expansion import Sizing, expand


def applied(spec: Object, preference: Object) -> Object:
    found = expand({"spec": spec}, Sizing(None, preference))
    assert found.errors == ()
    made: Object = found.template["spec"]
    return made


def devices(**given: Any) -> Object:
    return {"domain": {"devices": given}}


def domain(**given: Any) -> Object:
    return {"domain": {"devices": {}, **given}}


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if value is None:
            return None
        value = value[int(part)] if part.isdigit() else value.get(part)
    return value


BOUND = {"name": "default", "bridge": {}}
POD = {"name": "default", "pod": {}}
OTHER = {"name": "default", "multus": {"networkName": "n"}}
HV = "domain.features.hyperv"
LOADER = "domain.firmware.bootloader"
FEATURE = {"name": "vmx", "policy": "require"}
TIMER = {"hpet": {"present": False}}

#: What the preference says, the spec, where to look, and what is there then.
RULES: dict[str, tuple[Object, Object, str, Any]] = {
    "10.5 CPU features of a VM without a cpu": (
        {"cpu": {"preferredCPUFeatures": [FEATURE]}}, domain(), "domain.cpu.features", [FEATURE],
    ),
    "CPU features, those of the VM first": (
        {"cpu": {"preferredCPUFeatures": [FEATURE, {"name": "a"}]}},
        domain(cpu={"features": [{"name": "vmx", "policy": "disable"}]}),
        "domain.cpu.features", [{"name": "vmx", "policy": "disable"}, {"name": "a"}],
    ),
    "disableHotplug overrules": (
        {"devices": {"preferredDisableHotplug": True}}, devices(disableHotplug=False),
        "domain.devices.disableHotplug", True,
    ),
    "sound model": (
        {"devices": {"preferredSoundModel": "ich9"}}, devices(sound={"name": "s"}),
        "domain.devices.sound.model", "ich9",
    ),
    "sound model of the VM": (
        {"devices": {"preferredSoundModel": "ich9"}}, devices(sound={"name": "s", "model": "ac97"}),
        "domain.devices.sound.model", "ac97",
    ),
    "no sound device for a model": (
        {"devices": {"preferredSoundModel": "ich9"}}, devices(), "domain.devices.sound", None,
    ),
    "video type": (
        {"devices": {"preferredVideoType": "virtio"}}, devices(), "domain.devices.video",
        {"type": "virtio"},
    ),
    "video type of the VM": (
        {"devices": {"preferredVideoType": "virtio"}}, devices(video={"type": "vga"}),
        "domain.devices.video", {"type": "vga"},
    ),
    "10.10 vGPU options": (
        {"devices": {"preferredVirtualGPUOptions": {"display": {"enabled": True}}}},
        devices(gpus=[{"name": "g"}]), "domain.devices.gpus.0.virtualGPUOptions",
        {"display": {"enabled": True}},
    ),
    "a disk without a target": (
        {"devices": {"preferredDiskBus": "virtio"}}, devices(disks=[{"name": "d"}]),
        "domain.devices.disks.0.disk.bus", "virtio",
    ),
    "a volume without a disk": (
        {"devices": {"preferredDiskBus": "virtio"}}, {**devices(), "volumes": [{"name": "v"}]},
        "domain.devices.disks.0", {"name": "v", "disk": {"bus": "virtio"}},
    ),
    "a disk with a bus": (
        {"devices": {"preferredDiskBus": "virtio"}},
        devices(disks=[{"name": "d", "disk": {"bus": "scsi"}}]),
        "domain.devices.disks.0.disk.bus", "scsi",
    ),
    "a CD-ROM has a bus of its own": (
        {"devices": {"preferredDiskBus": "virtio", "preferredCdromBus": "scsi"}},
        devices(disks=[{"name": "d", "cdrom": {}}]), "domain.devices.disks.0",
        {"name": "d", "cdrom": {"bus": "scsi"}},
    ),
    "a LUN has a bus of its own": (
        {"devices": {"preferredDiskBus": "virtio", "preferredLunBus": "scsi"}},
        devices(disks=[{"name": "d", "lun": {}}]), "domain.devices.disks.0",
        {"name": "d", "lun": {"bus": "scsi"}},
    ),
    "cache, io and block size of a disk": (
        {"devices": {"preferredDiskCache": "none", "preferredDiskIO": "native",
                     "preferredDiskBlockSize": {"matchVolume": {}}}},
        devices(disks=[{"name": "d", "disk": {}}]), "domain.devices.disks.0",
        {"name": "d", "disk": {}, "cache": "none", "io": "native",
         "blockSize": {"matchVolume": {}}},
    ),
    "none of that for a CD-ROM": (
        {"devices": {"preferredDiskCache": "none"}}, devices(disks=[{"name": "d", "cdrom": {}}]),
        "domain.devices.disks.0", {"name": "d", "cdrom": {}},
    ),
    "an I/O thread for a virtio disk": (
        {"devices": {"preferredDiskBus": "virtio", "preferredDiskDedicatedIoThread": True}},
        devices(disks=[{"name": "d", "disk": {}}]),
        "domain.devices.disks.0.dedicatedIOThread", True,
    ),
    "no I/O thread on another bus": (
        {"devices": {"preferredDiskDedicatedIoThread": True}},
        devices(disks=[{"name": "d", "disk": {"bus": "sata"}}]),
        "domain.devices.disks.0.dedicatedIOThread", None,
    ),
    "interface model": (
        {"devices": {"preferredInterfaceModel": "e1000e"}}, devices(interfaces=[BOUND]),
        "domain.devices.interfaces.0", {**BOUND, "model": "e1000e"},
    ),
    "interface model of the VM": (
        {"devices": {"preferredInterfaceModel": "e1000e"}},
        devices(interfaces=[{**BOUND, "model": "virtio"}]),
        "domain.devices.interfaces.0.model", "virtio",
    ),
    "the interface a VM gets by itself has the model": (
        {"devices": {"preferredInterfaceModel": "e1000e"}}, devices(), "domain.devices.interfaces",
        [{"name": "default", "model": "e1000e"}],
    ),
    "the interface a VM gets by itself has the binding": (
        {"devices": {"preferredInterfaceMasquerade": {}}}, devices(), "domain.devices.interfaces",
        [{"name": "default", "masquerade": {}}],
    ),
    "no interface where the VM wants none": (
        {"devices": {"preferredInterfaceModel": "e1000e"}}, devices(autoattachPodInterface=False),
        "domain.devices.interfaces", None,
    ),
    "no interface where the preference wants none": (
        {"devices": {"preferredInterfaceModel": "e1000e",
                     "preferredAutoattachPodInterface": False}},
        devices(), "domain.devices.interfaces", None,
    ),
    "masquerade on the pod network": (
        {"devices": {"preferredInterfaceMasquerade": {}}},
        {**devices(interfaces=[{"name": "default"}]), "networks": [POD]},
        "domain.devices.interfaces.0", {"name": "default", "masquerade": {}},
    ),
    "no masquerade beside another binding": (
        {"devices": {"preferredInterfaceMasquerade": {}}},
        {**devices(interfaces=[BOUND]), "networks": [POD]}, "domain.devices.interfaces.0", BOUND,
    ),
    "no masquerade on another network": (
        {"devices": {"preferredInterfaceMasquerade": {}}},
        {**devices(interfaces=[{"name": "default"}]), "networks": [OTHER]},
        "domain.devices.interfaces.0", {"name": "default"},
    ),
    "inputs": (
        {"devices": {"preferredInputBus": "virtio", "preferredInputType": "keyboard"}},
        devices(inputs=[{"name": "i", "type": "tablet"}]), "domain.devices.inputs.0",
        {"name": "i", "type": "tablet", "bus": "virtio"},
    ),
    "4.1 an input device by itself": (
        {"devices": {"preferredAutoattachInputDevice": True, "preferredInputBus": "virtio"}},
        devices(), "domain.devices.inputs",
        [{"name": "default-0", "bus": "virtio", "type": "tablet"}],
    ),
    "a panic device": (
        {"devices": {"preferredPanicDeviceModel": "isa"}}, devices(), "domain.devices.panicDevices",
        [{"model": "isa"}],
    ),
    "panic devices without a model": (
        {"devices": {"preferredPanicDeviceModel": "isa"}},
        devices(panicDevices=[{}, {"model": "hyperv"}]), "domain.devices.panicDevices",
        [{"model": "isa"}, {"model": "hyperv"}],
    ),
    "acpi overrules": (
        {"features": {"preferredAcpi": {"enabled": True}}},
        domain(features={"acpi": {"enabled": False}}), "domain.features.acpi", {"enabled": True},
    ),
    "hyperv is merged": (
        {"features": {"preferredHyperv": {"relaxed": {}, "vapic": {"enabled": True}}}},
        domain(features={"hyperv": {"vapic": {"enabled": False}, "ipi": {}}}), HV,
        {"relaxed": {}, "vapic": {"enabled": False}, "ipi": {}},
    ),
    "bios": ({"firmware": {"preferredUseBios": True}}, domain(), LOADER, {"bios": {}}),
    "bios beside efi of the VM": (
        {"firmware": {"preferredUseBios": True}}, domain(firmware={"bootloader": {"efi": {}}}),
        LOADER, {"efi": {}},
    ),
    "bios on the serial console": (
        {"firmware": {"preferredUseBios": True, "preferredUseBiosSerial": True}}, domain(), LOADER,
        {"bios": {"useSerial": True}},
    ),
    "bios on the serial console, as the VM says": (
        {"firmware": {"preferredUseBiosSerial": True}},
        domain(firmware={"bootloader": {"bios": {"useSerial": False}}}), LOADER,
        {"bios": {"useSerial": False}},
    ),
    "efi": (
        {"firmware": {"preferredEfi": {"persistent": True}, "preferredUseSecureBoot": True}},
        domain(), LOADER, {"efi": {"persistent": True}},
    ),
    "efi by its older name": (
        {"firmware": {"preferredUseEfi": True, "preferredUseSecureBoot": True}}, domain(), LOADER,
        {"efi": {"secureBoot": True}},
    ),
    "secure boot as the VM says": (
        {"firmware": {"preferredUseSecureBoot": True}},
        domain(firmware={"bootloader": {"efi": {"secureBoot": False}}}), LOADER,
        {"efi": {"secureBoot": False}},
    ),
    "other firmware stays": (
        {"firmware": {"preferredUseEfi": True}}, domain(firmware={"uuid": "u"}), "domain.firmware",
        {"uuid": "u", "bootloader": {"efi": {}}},
    ),
    "machine type": (
        {"machine": {"preferredMachineType": "q35"}}, domain(machine={}), "domain.machine.type",
        "q35",
    ),
    "machine type of the VM": (
        {"machine": {"preferredMachineType": "q35"}}, domain(machine={"type": "pc-q35-7.2"}),
        "domain.machine.type", "pc-q35-7.2",
    ),
    "clock": (
        {"clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": TIMER}}, domain(),
        "domain.clock", {"utc": {}, "timer": TIMER},
    ),
    "clock offset of the VM": (
        {"clock": {"preferredClockOffset": {"utc": {}}}},
        domain(clock={"timezone": "Europe/Prague"}),
        "domain.clock", {"timezone": "Europe/Prague"},
    ),
    "timers of the VM": (
        {"clock": {"preferredTimer": TIMER}}, domain(clock={"timer": {}}), "domain.clock",
        {"timer": {}},
    ),
    "subdomain": ({"preferredSubdomain": "s"}, domain(), "subdomain", "s"),
    "grace period of zero": (
        {"preferredTerminationGracePeriodSeconds": 0}, domain(), "terminationGracePeriodSeconds", 0,
    ),
    "grace period of the VM": (
        {"preferredTerminationGracePeriodSeconds": 5},
        {**domain(), "terminationGracePeriodSeconds": 0}, "terminationGracePeriodSeconds", 0,
    ),
    "architecture": ({"preferredArchitecture": "arm64"}, domain(), "architecture", "arm64"),
    "launch security": (
        {"preferredLaunchSecurity": {"tdx": {}}}, domain(), "domain.launchSecurity", {"tdx": {}},
    ),
    "launch security of the VM": (
        {"preferredLaunchSecurity": {"tdx": {}}}, domain(launchSecurity={"sev": {}}),
        "domain.launchSecurity", {"sev": {}},
    ),
}  # fmt: skip

for _field, _wanted, _own in (
    ("UseVirtioTransitional", True, False), ("BlockMultiQueue", True, False), ("Rng", {}, {"a": 1}),
    ("TPM", {"persistent": True}, {}), ("AutoattachGraphicsDevice", False, True),
    ("AutoattachMemBalloon", False, True), ("AutoattachPodInterface", False, True),
    ("AutoattachSerialConsole", False, True), ("AutoattachInputDevice", False, True),
    ("NetworkInterfaceMultiQueue", True, False),
):  # fmt: skip
    _name = {"TPM": "tpm", "NetworkInterfaceMultiQueue": "networkInterfaceMultiqueue"}.get(
        _field, _field[0].lower() + _field[1:]
    )
    _preferred = {"devices": {f"preferred{_field}": _wanted}}
    _at = f"domain.devices.{_name}"
    RULES[f"{_name} if the VM leaves it open"] = (_preferred, devices(), _at, _wanted)
    RULES[f"{_name} of the VM"] = (_preferred, devices(**{_name: _own}), _at, _own)
for _feature in ("Apic", "Kvm", "Pvspinlock", "Smm"):
    _preferred = {"features": {f"preferred{_feature}": {"enabled": True}}}
    _name, _at = _feature.lower(), f"domain.features.{_feature.lower()}"
    RULES[f"{_name} if the VM leaves it open"] = (_preferred, domain(), _at, {"enabled": True})
    RULES[f"{_name} of the VM"] = (_preferred, domain(features={_name: {}}), _at, {})


@pytest.mark.parametrize(("preference", "spec", "path", "there"), RULES.values(), ids=RULES)
def test_a_preference_fills_in(preference: Object, spec: Object, path: str, there: Any) -> None:
    assert at(applied(spec, preference), path) == there


def test_annotations_of_a_preference_give_way_to_all_others() -> None:
    template = {"metadata": {"annotations": {"a": "vm"}}, "spec": domain()}
    owned = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "annotations": {"b": "type"}}
    preference = {"annotations": {"a": "p", "b": "p", "c": "p"}}
    found = expand(template, Sizing(owned, preference)).template["metadata"]["annotations"]
    assert found == {"a": "vm", "b": "type", "c": "p"}


def test_a_storage_class_is_preferred_where_a_template_names_none() -> None:
    preference = {"volumes": {"preferredStorageClassName": "fast"}}
    given = [
        {"metadata": {"name": "a"}, "spec": {"storage": {}}},
        {"metadata": {"name": "b"}, "spec": {"pvc": {"storageClassName": "slow"}}},
        {"metadata": {"name": "c"}, "spec": {"source": {"blank": {}}}},
        {"metadata": {"name": "d"}, "spec": {"pvc": {"storageClassName": None}}},
    ]
    found = preferences.data_volume_templates(given, preference)
    assert [each["spec"] for each in found] == [
        {"storage": {"storageClassName": "fast"}},
        {"pvc": {"storageClassName": "slow"}},
        {"source": {"blank": {}}},
        {"pvc": {"storageClassName": "fast"}},
    ]
    assert given[0]["spec"] == {"storage": {}}
    assert preferences.data_volume_templates(given, None) is given
