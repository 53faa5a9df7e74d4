"""What a preference says of devices: models, buses and switches for those that leave them open."""

from __future__ import annotations

from collections.abc import Mapping

from livevirt.kube.objects.request import Object
from livevirt.vm.spec import networks
from livevirt.vm.spec.disks import target

#: Settings of all devices together, each where the VM leaves it open.
_PLAIN: Mapping[str, str] = {
    "preferredUseVirtioTransitional": "useVirtioTransitional",
    "preferredBlockMultiQueue": "blockMultiQueue",
    "preferredNetworkInterfaceMultiQueue": "networkInterfaceMultiqueue",
    "preferredRng": "rng",
    "preferredTPM": "tpm",
    "preferredAutoattachGraphicsDevice": "autoattachGraphicsDevice",
    "preferredAutoattachMemBalloon": "autoattachMemBalloon",
    "preferredAutoattachPodInterface": "autoattachPodInterface",
    "preferredAutoattachSerialConsole": "autoattachSerialConsole",
    "preferredAutoattachInputDevice": "autoattachInputDevice",
}
#: Settings of a disk beside its bus.
_DISK: Mapping[str, str] = {
    "preferredDiskBlockSize": "blockSize",
    "preferredDiskCache": "cache",
    "preferredDiskIO": "io",
}
_BUSES: Mapping[str, str] = {
    "disk": "preferredDiskBus",
    "cdrom": "preferredCdromBus",
    "lun": "preferredLunBus",
}
_INPUT = "default-0"  # KubeVirt's name for the input device a guest gets by itself


def apply(spec: Object, preferred: Object) -> None:
    """Fill in what the devices of a spec leave open, in place."""
    devices = spec["domain"]["devices"]
    _fill(devices, _chosen(preferred, _PLAIN))
    if preferred.get("preferredDisableHotplug") is not None:
        devices["disableHotplug"] = preferred["preferredDisableHotplug"]
    _models(devices, preferred)
    settings = _chosen(preferred, _DISK)
    for disk in devices.get("disks") or ():
        _disk(disk, preferred, settings)
    _interfaces(spec, devices, preferred)
    _inputs(devices, preferred)
    _panic_devices(devices, preferred.get("preferredPanicDeviceModel"))


def _chosen(preferred: Object, table: Mapping[str, str]) -> Object:
    """Return what is preferred of the fields in a table, under their own names."""
    return {
        table[wanted]: value
        for wanted, value in preferred.items()
        if wanted in table and value is not None
    }


def _fill(part: Object, settings: Object) -> None:
    for name, value in settings.items():
        if part.get(name) is None:
            part[name] = value


def _models(devices: Object, preferred: Object) -> None:
    sound = devices.get("sound")
    if sound is not None and preferred.get("preferredSoundModel") and not sound.get("model"):
        sound["model"] = preferred["preferredSoundModel"]
    video = preferred.get("preferredVideoType")
    if video and not (devices.get("video") or {}).get("type"):
        devices["video"] = {**(devices.get("video") or {}), "type": video}
    options = preferred.get("preferredVirtualGPUOptions")
    for gpu in devices.get("gpus") or () if options is not None else ():
        if gpu.get("virtualGPUOptions") is None:
            gpu["virtualGPUOptions"] = options


def _disk(disk: Object, preferred: Object, settings: Object) -> None:
    shown_as = target(disk)
    if disk.get(shown_as) is None:
        disk[shown_as] = {}
    bus = preferred.get(_BUSES[shown_as])
    if bus and not disk[shown_as].get("bus"):
        disk[shown_as]["bus"] = bus
    if shown_as != "disk":
        return
    _fill(disk, settings)
    thread = preferred.get("preferredDiskDedicatedIoThread")
    if thread is not None and disk["disk"].get("bus") == "virtio":
        disk.setdefault("dedicatedIOThread", thread)


def _interfaces(spec: Object, devices: Object, preferred: Object) -> None:
    model = preferred.get("preferredInterfaceModel")
    masquerade = preferred.get("preferredInterfaceMasquerade")
    silent = not spec.get("networks") and not devices.get("interfaces")
    wanted = devices.get("autoattachPodInterface") is not False
    if silent and wanted and (model or masquerade is not None):
        # The one it would get by itself is preferred so, too.
        devices["interfaces"] = [{"name": networks.DEFAULT}]
        spec["networks"] = [{"name": networks.DEFAULT, "pod": {}}]
    pod = {each["name"] for each in spec.get("networks") or () if each.get("pod") is not None}
    for interface in devices.get("interfaces") or ():
        if model and not interface.get("model"):
            interface["model"] = model
        bound = any(interface.get(each) is not None for each in networks.BINDINGS)
        if masquerade is not None and not bound and interface["name"] in pod:
            interface["masquerade"] = masquerade


def _inputs(devices: Object, preferred: Object) -> None:
    alone = devices.get("autoattachInputDevice") and not devices.get("inputs")
    if alone:
        devices["inputs"] = [{"name": _INPUT}]
    for device in devices.get("inputs") or ():
        for wanted, name in (("preferredInputBus", "bus"), ("preferredInputType", "type")):
            if preferred.get(wanted) and not device.get(name):
                device[name] = preferred[wanted]
    if alone:
        devices["inputs"][0].setdefault("type", "tablet")
        devices["inputs"][0].setdefault("bus", "usb")


def _panic_devices(devices: Object, model: str | None) -> None:
    if not model:
        return
    listed = devices.get("panicDevices") or [{}]
    devices["panicDevices"] = [{**each, "model": each.get("model") or model} for each in listed]
