"""What a preference puts into a template: values for what the VM leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from livevirt.kube.objects.request import Object
from livevirt.vm.spec import defaults
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


def apply_devices(spec: Object, preferred: Object) -> None:
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
        devices["interfaces"] = [{"name": defaults.DEFAULT}]
        spec["networks"] = [{"name": defaults.DEFAULT, "pod": {}}]
    pod = {each["name"] for each in spec.get("networks") or () if each.get("pod") is not None}
    for interface in devices.get("interfaces") or ():
        if model and not interface.get("model"):
            interface["model"] = model
        bound = any(interface.get(each) is not None for each in defaults.BINDINGS)
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


_FEATURES: Mapping[str, str] = {
    "preferredApic": "apic",
    "preferredKvm": "kvm",
    "preferredPvspinlock": "pvspinlock",
    "preferredSmm": "smm",
}
_TOP: Mapping[str, str] = {
    "preferredSubdomain": "subdomain",
    "preferredTerminationGracePeriodSeconds": "terminationGracePeriodSeconds",
    "preferredArchitecture": "architecture",
}


def apply(spec: Object, preference: Object) -> None:
    """Fill in what a spec leaves open, in place."""
    domain = spec["domain"]
    _cpu_features(domain, (preference.get("cpu") or {}).get("preferredCPUFeatures") or ())
    apply_devices(spec, preference.get("devices") or {})
    for part, fill in _PARTS:
        if preference.get(part):
            fill(domain, preference[part])
    for preferred, name in _TOP.items():
        if preference.get(preferred) is not None and spec.get(name) in (None, ""):
            spec[name] = preference[preferred]
    security = preference.get("preferredLaunchSecurity")
    if security is not None and domain.get("launchSecurity") is None:
        domain["launchSecurity"] = security


def data_volume_templates(templates: list[Object], preference: Object | None) -> list[Object]:
    """Return DataVolume templates with the preferred storage class where they name none."""
    wanted = ((preference or {}).get("volumes") or {}).get("preferredStorageClassName")
    if not wanted:
        return templates
    return [_with_storage_class(template, wanted) for template in templates]


def _with_storage_class(template: Object, wanted: str) -> Object:
    spec = dict(template.get("spec") or {})
    for part in ("pvc", "storage"):
        if spec.get(part) is not None and spec[part].get("storageClassName") is None:
            spec[part] = {**spec[part], "storageClassName": wanted}
    return {**template, "spec": spec}


def _cpu_features(domain: Object, preferred: list[Object] | tuple[()]) -> None:
    if not preferred:
        return
    cpu = domain["cpu"] = dict(domain.get("cpu") or {})
    listed = cpu.get("features") or []
    names = {feature["name"] for feature in listed}
    cpu["features"] = [*listed, *(each for each in preferred if each["name"] not in names)]


def _features(domain: Object, preferred: Object) -> None:
    features = dict(domain.get("features") or {})
    if preferred.get("preferredAcpi") is not None:
        features["acpi"] = preferred["preferredAcpi"]
    for wanted, name in _FEATURES.items():
        if preferred.get(wanted) is not None and features.get(name) is None:
            features[name] = preferred[wanted]
    hyperv = preferred.get("preferredHyperv")
    if hyperv is not None:
        features["hyperv"] = {**hyperv, **(features.get("hyperv") or {})}
    if features:
        domain["features"] = features


def _firmware(domain: Object, preferred: Object) -> None:
    firmware = dict(domain.get("firmware") or {})
    loader = dict(firmware.get("bootloader") or {})
    open_ = loader.get("bios") is None and loader.get("efi") is None
    if open_ and preferred.get("preferredUseBios"):
        loader["bios"], open_ = {}, False
    serial = preferred.get("preferredUseBiosSerial")
    if serial is not None and loader.get("bios") is not None:
        loader["bios"] = {"useSerial": serial, **loader["bios"]}
    if open_ and preferred.get("preferredEfi") is not None:
        loader["efi"] = preferred["preferredEfi"]
    else:
        if open_ and preferred.get("preferredUseEfi"):
            loader["efi"] = {}
        secure = preferred.get("preferredUseSecureBoot")
        if secure is not None and loader.get("efi") is not None:
            loader["efi"] = {"secureBoot": secure, **loader["efi"]}
    if loader:
        domain["firmware"] = {**firmware, "bootloader": loader}


def _machine(domain: Object, preferred: Object) -> None:
    wanted = preferred.get("preferredMachineType")
    if wanted and not (domain.get("machine") or {}).get("type"):
        domain["machine"] = {**(domain.get("machine") or {}), "type": wanted}


def _clock(domain: Object, preferred: Object) -> None:
    clock = dict(domain.get("clock") or {})
    offset = preferred.get("preferredClockOffset")
    if offset and clock.get("utc") is None and not clock.get("timezone"):
        clock.update(offset)
    if preferred.get("preferredTimer") is not None and clock.get("timer") is None:
        clock["timer"] = preferred["preferredTimer"]
    if clock:
        domain["clock"] = clock


_PARTS = (
    ("features", _features),
    ("firmware", _firmware),
    ("machine", _machine),
    ("clock", _clock),
)
