"""Specs in canonical form: two manifests of the same machine become the same tree.

A default that is left out equals one that is written, `1Gi` equals `1024Mi`, and the order of named
items does not matter. Types come from the schema, so unknown fields are compared correctly too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from livevirt.kube.objects.quantity import Quantity, QuantityError, parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import Field, Type, definitions
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import defaults, disks, instance

SPEC = "kubevirt.VirtualMachineInstanceSpec"


class ByName(dict[str, Any]):
    """A list whose items have names, by name."""


_NONE = object()  # equal to no value: every value that is written is significant
_EMPTY: Object = {}  # a part that is insignificant while it is empty

#: The default of a field that is left out, if it is not the zero of its type. An object that is
#: present is significant even when it is empty (`rng: {}`), unless it is listed here.
DEFAULTS: Mapping[str, Any] = {
    "Affinity.nodeAffinity": _EMPTY,
    "Affinity.podAffinity": _EMPTY,
    "Affinity.podAntiAffinity": _EMPTY,
    "Bootloader.bios": _EMPTY,
    "CDRomTarget.readonly": True,
    "CDRomTarget.tray": "closed",
    "CPUFeature.policy": "require",
    "Clock.timer": _EMPTY,
    "ClockOffsetUTC.offsetSeconds": _NONE,
    "Devices.autoattachGraphicsDevice": True,
    "Devices.autoattachMemBalloon": True,
    "Devices.autoattachPodInterface": True,
    "Devices.autoattachSerialConsole": True,
    "Devices.logSerialConsole": _NONE,  # left out, it follows the cluster
    "Disk.errorPolicy": "stop",
    "DomainSpec.chassis": _EMPTY,
    "DomainSpec.cpu": _EMPTY,
    "DomainSpec.devices": _EMPTY,
    "DomainSpec.features": _EMPTY,
    "DomainSpec.firmware": _EMPTY,
    "DomainSpec.machine": _EMPTY,
    "DomainSpec.memory": _EMPTY,
    "DomainSpec.rebootPolicy": "Reboot",
    "DomainSpec.resources": _EMPTY,
    "EFI.secureBoot": True,
    "FeatureAPIC.enabled": True,
    "FeatureSpinlocks.enabled": True,
    "FeatureState.enabled": True,
    "FeatureVendorID.enabled": True,
    "Firmware.bootloader": _EMPTY,
    "HPETTimer.present": True,
    "HypervTimer.present": True,
    "KVMTimer.present": True,
    "PITTimer.present": True,
    "Probe.failureThreshold": 3,
    "Probe.periodSeconds": 10,
    "Probe.successThreshold": 1,
    "Probe.timeoutSeconds": 1,
    "RTCTimer.present": True,
    "TPMDevice.enabled": True,
    "Toleration.operator": "Equal",
    "VirtualMachineInstanceSpec.affinity": _EMPTY,
    "VirtualMachineInstanceSpec.dnsConfig": _EMPTY,
    "VirtualMachineInstanceSpec.dnsPolicy": "ClusterFirst",
    "VirtualMachineInstanceSpec.schedulerName": "default-scheduler",
    "VirtualMachineInstanceSpec.terminationGracePeriodSeconds": _NONE,
}
#: Strings that are equal in more than one spelling.
SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "Firmware.uuid": str.lower,
    "Interface.macAddress": lambda text: text.lower().replace("-", ":"),
}
#: Lists of these are sets: neither order nor repetition matters.
SETS = ("Toleration", "TopologySpreadConstraint")

_ZEROS: Mapping[str, Any] = {
    "string": "", "integer": 0, "number": 0, "boolean": False, "list": [], "map": {}, "bytes": "",
}  # fmt: skip
_SCALAR = frozenset({"string", "integer", "boolean", "number"})
_SIZES = ("cpu", "memory", "resources")  # the parts of a domain that define its size


def canonical(spec: Object) -> Object:
    """Return the canonical tree of a spec, without the values that are defaults.

    Amounts are `Quantity`, lists of named items `ByName`.
    """
    return _object(definitions()[SPEC], spec)


def filled(spec: Object, uid: str, config: Config) -> Object:
    """Return a copy with what the admission of an instance would fill in.

    For comparisons `config` must fill in no maxima: they are set when a guest starts and follow its
    size then, not the size wanted now.
    """
    found: Object = without_nulls(spec)
    if "domain" not in found:
        found["domain"] = {}
    disks.add_missing(found)
    defaults.fill(found, uid, config)
    return found


def refilled(spec: Object, uid: str, config: Config, *, twin: Object, as_filled: Object) -> Object:
    """Return the same as `filled`, given another spec and its filled copy.

    Most edits change the size and nothing else; then the rest is not filled in again.
    """
    if spec == twin:
        return as_filled
    if _sizeless(spec) != _sizeless(twin):
        return filled(spec, uid, config)
    sizes = {name: part for name, part in (spec.get("domain") or {}).items() if name in _SIZES}
    domain = {**_domain_but_sizes(as_filled), **without_nulls(sizes)}
    defaults.fill_size(domain, instance.read({"domain": domain}), config)
    return {**as_filled, "domain": domain}


def _sizeless(spec: Object) -> Object:
    return {**spec, "domain": _domain_but_sizes(spec)}


def _domain_but_sizes(spec: Object) -> Object:
    return {n: part for n, part in (spec.get("domain") or {}).items() if n not in _SIZES}


def plain(value: Any) -> Any:
    """Return a part of a tree as JSON."""
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, ByName):
        return [plain(item) for item in value.values()]
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def without_nulls(value: Any) -> Any:
    """Return a deep copy without the fields that are null."""
    text = msgspec.json.encode(value)  # by far the fastest way to copy what is JSON
    copied = msgspec.json.decode(text)
    return _stripped(copied) if b"null" in text else copied


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stripped(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    return value


class _Reading(NamedTuple):
    """How a field of a type is converted."""

    type: Type
    scalar: bool
    default: Any
    spelling: Callable[[str], str] | None


def _object(type_: Type, value: Object) -> Object:
    readings = _readings(type_)
    found: Object = {}
    for name, inner in value.items():
        if inner is None:
            continue
        reading = readings.get(name)
        if reading is None:
            found[name] = inner
            continue
        meaning = inner if reading.scalar else _value(reading.type, inner)
        if reading.spelling is not None:
            meaning = reading.spelling(meaning)
        if meaning != reading.default:
            found[name] = meaning
    return found


def _value(type_: Type, value: Any) -> Any:
    match type_.form:
        case "object" if isinstance(value, dict):
            return _object(type_, value)
        case "map" if isinstance(value, dict) and type_.element is not None:
            element = type_.element
            return {k: _value(element, v) for k, v in value.items() if v is not None}
        case "list" if isinstance(value, list) and type_.element is not None:
            element = type_.element
            return _list(element, [_value(element, item) for item in value])
        case "quantity":
            return _amount(value)
        case _:
            return value


def _list(element: Type, items: list[Any]) -> Any:
    if _short(element) in SETS:
        texts = {msgspec.json.encode(plain(item), order="deterministic"): item for item in items}
        return [texts[text] for text in sorted(texts)]
    named = {item["name"]: item for item in items if isinstance(item, dict) and "name" in item}
    return ByName(named) if items and len(named) == len(items) else items


def _amount(value: Any) -> Any:
    try:
        return parse(value)
    except QuantityError:
        return value  # admission lets no such thing pass


@functools.cache
def _readings(type_: Type) -> dict[str, _Reading]:
    found = {}
    for name, field in type_.fields.items():
        key = f"{_short(type_)}.{name}"
        default = DEFAULTS[key] if key in DEFAULTS else _schema_default(field)
        scalar = field.type.form in _SCALAR
        found[name] = _Reading(field.type, scalar, default, SPELLINGS.get(key))
    return found


def _schema_default(field: Field) -> Any:
    """Return the default of a field by the schema."""
    if field.default is not None:
        return field.default
    return _NONE if field.pointer else _ZEROS.get(field.type.form, _NONE)


def _short(type_: Type) -> str:
    return type_.name.rpartition(".")[2]
