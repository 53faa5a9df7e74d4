"""What a preference puts into a template: values for what the VM leaves open.

Two fields are KubeVirt's exceptions and overrule the VM: `disableHotplug` and `acpi`.
"""

from __future__ import annotations

from collections.abc import Mapping

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules import device_preferences

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
    device_preferences.apply(spec, preference.get("devices") or {})
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
