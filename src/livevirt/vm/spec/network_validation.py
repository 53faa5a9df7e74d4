"""Network interfaces of an instance: each belongs to a network, and the other way round."""

from __future__ import annotations

import re
from collections.abc import Iterator

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object
from livevirt.vm.spec.networks import BINDINGS
from livevirt.vm.volumes.disk_admission import same_names, wrong

_MAC = re.compile(r"[0-9a-fA-F]{2}([:-])[0-9a-fA-F]{2}(\1[0-9a-fA-F]{2}){4}")
_MODELS = ("virtio", "e1000", "e1000e", "rtl8139", "ne2k_pci", "pcnet")
_SOURCES = ("pod", "multus", "resourceClaim")


def network_errors(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the interfaces and networks of a spec."""
    interfaces = (spec["domain"].get("devices") or {}).get("interfaces") or []
    networks = spec.get("networks") or []
    at, other = f"{path}.domain.devices.interfaces", f"{path}.networks"
    yield from same_names(at, interfaces)
    yield from same_names(other, networks)
    attached, known = ({each["name"] for each in items} for items in (interfaces, networks))
    for number, interface in enumerate(interfaces):
        here, name = f"{at}[{number}]", interface["name"]
        if name not in known:
            yield wrong(f"{here}.name", f"{here}.name '{name}' not found.")
        yield from _interface_errors(here, interface)
    for number, network in enumerate(networks):
        here, name = f"{other}[{number}]", network["name"]
        if name not in attached:
            yield wrong(f"{here}.name", f"{here}.name '{name}' not found.")
        if sum(network.get(each) is not None for each in _SOURCES) != 1:
            yield wrong(here, f"{here} must have exactly one network type")
    if sum(network.get("pod") is not None for network in networks) > 1:
        yield wrong(other, f"more than one interface is connected to a pod network in {other}")


def _interface_errors(here: str, interface: Object) -> Iterator[FieldError]:
    if sum(interface.get(each) is not None for each in BINDINGS) > 1:
        yield wrong(here, f"{here} must have only one binding")
    if (mac := interface.get("macAddress")) and not _is_unicast(mac):
        yield wrong(f"{here}.macAddress", f"interface {here} has malformed MAC address ({mac}).")
    if (model := interface.get("model")) and model not in _MODELS:
        message = f"interface {here} uses model {model} that is not supported."
        yield wrong(f"{here}.model", message)


def _is_unicast(mac: str) -> bool:
    return bool(_MAC.fullmatch(mac)) and not int(mac[:2], 16) & 1
