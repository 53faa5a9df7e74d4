"""What an instance asks of its pod and of the node it goes to: all of it the pod can be given.

A pod is made again at every start and for every move, so what it cannot have is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import named, optional_one_of
from livevirt.kube.objects.field_error import FieldError, invalid
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.scheduling_validation import DNS_POLICIES, validate_scheduling
from livevirt.vm.spec.node_labels import CPU_FEATURE, CPU_MODEL, MACHINE_TYPE


def scheduling_errors(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the fields of a spec that its pod gets."""
    yield from validate_scheduling(path, spec)
    yield from optional_one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy") or None, DNS_POLICIES)
    for field in ("schedulerName", "priorityClassName"):
        name = spec.get(field) or ""
        yield from named(f"{path}.{field}", name, names.validate_dns1123_subdomain, needed=False)
    architecture = spec.get("architecture") or ""
    for why in names.validate_label_value(architecture):
        yield invalid(f"{path}.architecture", architecture, why)
    for at, prefix, name in _labelled(f"{path}.domain", spec["domain"]):
        for why in names.validate_label_key(prefix + name):
            yield invalid(at, name, why)


def _labelled(path: str, domain: Object) -> Iterator[tuple[str, str, str]]:
    """Yield what a node has a label for: where it stands, the label's prefix, and its name."""
    cpu, machine = domain.get("cpu") or {}, domain.get("machine") or {}
    if model := cpu.get("model"):
        yield f"{path}.cpu.model", CPU_MODEL, model
    for number, feature in enumerate(cpu.get("features") or ()):
        yield f"{path}.cpu.features[{number}].name", CPU_FEATURE, feature["name"]
    if kind := machine.get("type"):
        yield f"{path}.machine.type", MACHINE_TYPE, kind
