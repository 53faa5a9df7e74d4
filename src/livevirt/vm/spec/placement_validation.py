"""What a spec asks of its node: labels, dedicated CPUs, affinity, tolerations and the like."""

from __future__ import annotations

from collections.abc import Iterator

from livevirt.kube.objects import names, priority
from livevirt.kube.objects.field_checks import named, optional_one_of
from livevirt.kube.objects.field_error import FieldError, invalid
from livevirt.kube.objects.pod_resources import CPU_MANAGER, YES
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Get
from livevirt.kube.objects.scheduling_validation import DNS_POLICIES, validate_scheduling
from livevirt.vm.spec.instance import Instance
from livevirt.vm.spec.sizes import topology
from livevirt.vm.volumes.admission import wrong

#: KubeVirt's prefixes; the name of the model, feature or type follows.
CPU_MODEL = "cpu-model.node.kubevirt.io/"
CPU_FEATURE = "cpu-feature.node.kubevirt.io/"
MACHINE_TYPE = "machine-type.node.kubevirt.io/"

NO = "false"
_ANY_NODE_HAS = ("", "host-model", "host-passthrough")
_DEMANDS = ("", "require")  # policies of a feature; every other one can do without


def needed(spec: Object) -> dict[str, str]:
    """Return the labels of nodes that have what an instance's spec names."""
    domain = spec.get("domain") or {}
    cpu, machine = domain.get("cpu") or {}, domain.get("machine") or {}
    found = []
    if (cpu.get("model") or "") not in _ANY_NODE_HAS:
        found.append(CPU_MODEL + cpu["model"])
    for feature in cpu.get("features") or ():
        if (feature.get("policy") or "") in _DEMANDS:
            found.append(CPU_FEATURE + feature["name"])
    if machine.get("type"):
        found.append(MACHINE_TYPE + machine["type"])
    if cpu.get("dedicatedCpuPlacement"):
        found.append(CPU_MANAGER)
    return dict.fromkeys(found, YES)


_ISOLATED_ALONE = (
    "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"
)


def placement_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    """Yield what is wrong with how a domain, found `at` a path, wants its CPUs placed."""
    cpu = instance.domain.cpu
    if cpu.dedicated_cpu_placement:
        yield from _cpu_errors(at, instance)
        yield from _memory_errors(at, instance)
    elif cpu.isolate_emulator_thread:
        yield wrong(f"{at}.cpu.isolateEmulatorThread", _ISOLATED_ALONE)
    if cpu.numa is not None and cpu.numa.guest_mapping_passthrough is not None:
        yield from _numa_errors(at, instance)


def _cpu_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    resources = instance.domain.resources
    asked, limit = resources.request("cpu"), resources.limit("cpu")
    vcpus = topology(instance.domain.cpu, resources).vcpus
    for side, amount in (("requests", asked), ("limits", limit)):
        here = f"{at}.resources.{side}.cpu"
        if amount is None:
            continue
        if amount.milli() % 1000:
            message = f"{here} '{amount}' must be an integer when DedicatedCPUPlacement is true"
            yield wrong(here, message)
        elif amount.value() != vcpus:
            message = (
                f"{here} '{amount}' must be equal to the number of vCPUs '{vcpus}' when"
                " DedicatedCPUPlacement is true"
            )
            yield wrong(here, message)


def _memory_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    resources = instance.domain.resources
    asked, limit = resources.request("memory"), resources.limit("memory")
    if asked is not None and limit is not None and asked != limit:
        here = f"{at}.resources.limits.memory"
        message = (
            f"{here} '{limit}' must be equal to {at}.resources.requests.memory '{asked}' when"
            " DedicatedCPUPlacement is true"
        )
        yield wrong(here, message)


def _numa_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    here = f"{at}.cpu.numa.guestMappingPassthrough"
    if not instance.domain.cpu.dedicated_cpu_placement:
        needed = f"{at}.cpu.dedicatedCpuPlacement must be set to true"
        yield wrong(here, f"{needed} when NUMA topology strategy is set in {here}")
    if instance.domain.memory.hugepages is None:
        needed = f"{at}.memory.hugepages must be requested"
        yield wrong(here, f"{needed} when NUMA topology strategy is set in {here}")


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


def priority_errors(path: str, spec: Object, before: Object, get: Get) -> Iterator[FieldError]:
    """Yield a PriorityClass that a spec names, did not name before, and that does not exist."""
    name = spec.get("priorityClassName") or ""
    known = name in ("", before.get("priorityClassName"))
    if not known and priority.find(get, name) is None:
        at = f"{path}.priorityClassName"
        message = f"no PriorityClass with name {name} was found; create it first"
        yield wrong(at, message, "FieldValueNotFound")


def _labelled(path: str, domain: Object) -> Iterator[tuple[str, str, str]]:
    """Yield what a node has a label for: where it stands, the label's prefix, and its name."""
    cpu, machine = domain.get("cpu") or {}, domain.get("machine") or {}
    if model := cpu.get("model"):
        yield f"{path}.cpu.model", CPU_MODEL, model
    for number, feature in enumerate(cpu.get("features") or ()):
        yield f"{path}.cpu.features[{number}].name", CPU_FEATURE, feature["name"]
    if kind := machine.get("type"):
        yield f"{path}.machine.type", MACHINE_TYPE, kind
