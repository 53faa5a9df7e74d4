"""What is wrong with the spec of an instance, in a VMI or in a VM's template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from livevirt.kube.objects import names
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import Quantity, parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import instance as instances
from livevirt.vm.spec import sizes
from livevirt.vm.spec.defaults import BINDINGS
from livevirt.vm.spec.device_validation import device_errors
from livevirt.vm.spec.instance import Instance
from livevirt.vm.spec.placement_validation import placement_errors, scheduling_errors
from livevirt.vm.spec.refused_fields import refused_fields
from livevirt.vm.spec.resources import compute
from livevirt.vm.volumes.admission import (
    boot_order_errors,
    disk_errors,
    same_names,
    volume_errors,
    wrong,
)
from livevirt.vm.volumes.claims import claim_errors

POLICIES = ("shared", "auto", "supplementalPool")
MOST_THREADS = 256
MOST_ELEMENTS = 256  # of a list of devices, volumes or networks, as in KubeVirt


def io_thread_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    """Yield what is wrong with the IO threads of a domain, found `at` a path."""
    domain = instance.domain
    policy, count = domain.io_threads_policy, domain.io_threads.supplemental_pool_thread_count
    if policy and policy not in POLICIES:
        yield wrong(f"{at}.ioThreadsPolicy", f"Invalid IOThreadsPolicy ({policy})")
    elif policy == "supplementalPool" and not 1 <= count <= MOST_THREADS:
        here = f"{at}.ioThreads.supplementalPoolThreadCount"
        message = f"{here} must be between 1 and {MOST_THREADS} with policy supplementalPool"
        yield wrong(here, message)


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


_MOST = Quantity.from_int(2**63 - 1)  # Kubernetes knows no larger amount
_MOST_CPUS = 2**32 - 1
MACHINES = ("q35*", "pc-q35*")
_PROBES = ("exec", "guestAgentPing", "httpGet", "tcpSocket")
_PROBE_NUMBERS = (
    "initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold",
    "failureThreshold",
)  # fmt: skip
_EVICTION = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
_PAGE_SIZES = ("2Mi", "1Gi")
_FEATURE_POLICIES = ("", "force", "require", "optional", "disable", "forbid")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NO_UTILITY_VOLUMES = (
    "cannot create VMI with utility volumes in spec, utility volumes can only be added via hotplug"
)


@dataclass(frozen=True, slots=True)
class Exemptions:
    """What a spec may keep although the rules would refuse it in a new one."""

    empty_drives: frozenset[str] = frozenset()  # CD-ROM drives without a medium
    shared_claims: frozenset[str] = frozenset()  # claims that several disks use


NO_EXEMPTIONS = Exemptions()


def length_errors(path: str, spec: Object) -> list[FieldError]:
    """List the lists of a spec that are longer than KubeVirt allows."""
    devices = spec["domain"].get("devices") or {}
    lists = {
        f"{path}.domain.devices.disks": devices.get("disks"),
        f"{path}.domain.devices.interfaces": devices.get("interfaces"),
        f"{path}.networks": spec.get("networks"),
        f"{path}.volumes": spec.get("volumes"),
    }
    return [
        wrong(at, f"{at} has {len(items)} elements, the limit is {MOST_ELEMENTS}")
        for at, items in lists.items()
        if items and len(items) > MOST_ELEMENTS
    ]


def spec_errors(
    path: str,
    spec: Object,
    config: Config,
    *,
    explicit_maximum: bool,
    sized: bool = True,
    exempt: Exemptions = NO_EXEMPTIONS,
) -> list[FieldError]:
    """List what is wrong with a spec whose defaults are filled in.

    `explicit_maximum`: the owner wrote `maxGuest`, so it must be one that works. `sized`: the spec
    sets the size of the guest, which it need not when an instance type does.
    """
    if long := length_errors(path, spec):
        return long  # the checks below look at each element, and at some of them together
    instance = instances.read(spec)
    found = [
        *_cpu_errors(f"{path}.domain.cpu", instance),
        *_feature_errors(f"{path}.domain.cpu.features", spec["domain"]),
        *placement_errors(f"{path}.domain", instance),
        *io_thread_errors(f"{path}.domain", instance),
        *_memory_errors(path, instance, config, explicit_maximum, sized),
        *_resource_errors(f"{path}.domain.resources", instance),
        *_machine_errors(f"{path}.domain", spec["domain"]),
        *device_errors(f"{path}.domain.devices", spec["domain"]),
        *_placement_errors(path, spec),
        *_probe_errors(path, spec),
        *scheduling_errors(path, spec),
        *refused_fields(path, spec),
        *disk_errors(path, spec, config, exempt.empty_drives),
        *volume_errors(path, spec),
        *claim_errors(path, spec, exempt.shared_claims),
        *network_errors(path, spec),
        *boot_order_errors(path, spec),
    ]
    return found or list(_pod_errors(f"{path}.domain.resources.limits", instance, config))


def size_warnings(path: str, spec: Object, config: Config) -> list[str]:
    """List which sizes of a valid spec, written or filled in, few nodes can start."""
    instance = instances.read(spec)
    cpu, defaults = instance.domain.cpu, config.defaults
    chosen = sizes.topology(cpu, instance.domain.resources)
    sockets, boot = chosen.sockets, sizes.guest(instance)
    most = boot
    if config.reserves_maxima:
        sockets = max(sizes.max_sockets(cpu.max_sockets, chosen, defaults), sockets)
        most = sizes.max_guest(instance, boot, defaults) or boot
    found = []
    if sockets > (all_start := sizes.most_sockets(chosen)):
        found.append(
            f"{path}.domain.cpu: a maximum of {sockets} sockets of {chosen.cores}x{chosen.threads}"
            f" CPUs needs a node with KVM and a QEMU for that many; every node starts {all_start}"
        )
    if most is not None and most > sizes.MOST_EMULATED:
        found.append(
            f"{path}.domain.memory: a maximum of {most} needs a node with KVM; every node starts"
            f" {sizes.MOST_EMULATED}"
        )
    return found


def _cpu_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    cpu = instance.domain.cpu
    for name in ("sockets", "cores", "threads", "max_sockets"):
        field = "maxSockets" if name == "max_sockets" else name
        if getattr(cpu, name) < 0:
            yield wrong(f"{at}.{field}", f"{at}.{field} must be greater than or equal to 0.")
        elif getattr(cpu, name) > _MOST_CPUS:
            message = f"{at}.{field} must be equal to or less than {_MOST_CPUS}."
            yield wrong(f"{at}.{field}", message)
    if cpu.max_sockets and cpu.sockets > cpu.max_sockets:
        message = "Number of sockets in CPU topology is greater than the maximum sockets allowed"
        yield wrong(f"{at}.sockets", message)


def _feature_errors(at: str, domain: Object) -> Iterator[FieldError]:
    for number, feature in enumerate((domain.get("cpu") or {}).get("features") or ()):
        policy = feature.get("policy") or ""
        if policy not in _FEATURE_POLICIES:
            message = f"CPU feature {feature['name']} uses policy {policy} that is not supported."
            yield wrong(f"{at}[{number}].policy", message)


def _memory_errors(
    path: str, instance: Instance, config: Config, explicit_maximum: bool, sized: bool
) -> Iterator[FieldError]:
    at, resources = f"{path}.domain.memory", instance.domain.resources
    guest, limit = instance.guest, resources.limit("memory")
    pages = instance.domain.memory.hugepages
    if pages is not None and pages.page_size not in _PAGE_SIZES:
        message = f"{at}.hugepages.pageSize '{pages.page_size}' must be one of: 2Mi, 1Gi"
        yield wrong(f"{at}.hugepages.pageSize", message)
    if guest is None:
        if sized:
            message = (
                f"no memory requested, at least one of {at}.guest, {at}.hugepages.size or"
                f" {path}.domain.resources.requests.memory must be set"
            )
            yield wrong(f"{at}.guest", message, "FieldValueRequired")
        return
    if guest.nano <= 0:
        yield wrong(f"{at}.guest", f"{at}.guest '{guest}' must be greater than 0.")
    elif guest > _MOST:
        yield wrong(f"{at}.guest", f"{at}.guest must be equal to or less than {_MOST.value()}.")
    elif limit is not None and guest > limit and not config.reserves_maxima:
        limited = f"{path}.domain.resources.limits.memory"
        message = (
            f"{at}.guest '{guest}' must be equal to or less than the memory limit"
            f" {limited} '{limit}'"
        )
        yield wrong(f"{at}.guest", message)
    if explicit_maximum and config.reserves_maxima:
        problem = sizes.hotplug_problem(instance, guest, instance.max_guest)
        if problem:
            yield wrong(f"{at}.guest", problem)
    if pages is not None and pages.page_size in _PAGE_SIZES and instance.page is not None:
        asked = (
            (f"{at}.guest", guest),
            (f"{path}.domain.resources.requests.memory", resources.request("memory")),
        )
        for here, amount in asked:
            if amount is not None and amount.nano % instance.page.nano:
                message = f"{here} '{amount}' must be a multiple of the page size '{instance.page}'"
                yield wrong(here, message)


def _resource_errors(at: str, instance: Instance) -> Iterator[FieldError]:
    resources = instance.domain.resources
    for side, read in (("requests", resources.request), ("limits", resources.limit)):
        for name in getattr(resources, side):
            amount = read(name)
            here = f"{at}.{side}.{name}"
            if amount is not None and amount.nano < 0:
                yield wrong(here, f"{here} '{amount}': must be greater than or equal to 0.")
            elif amount is not None and amount > _MOST:
                yield wrong(here, f"{here} must be equal to or less than {_MOST.value()}.")
    for name in ("cpu", "memory"):
        asked, limit = resources.request(name), resources.limit(name)
        if asked is not None and limit is not None and asked > limit:
            here = f"{at}.requests.{name}"
            message = f"{here} '{asked}' is greater than {at}.limits.{name} '{limit}'"
            yield wrong(here, message)


def _pod_errors(at: str, instance: Instance, config: Config) -> Iterator[FieldError]:
    """Yield limits below what the guest's pod asks for."""
    asked = compute(instance, config.defaults)
    for name, limit in asked.limits.items():
        wanted = asked.requests.get(name)
        if wanted is not None and parse(wanted) > parse(limit):
            here = f"{at}.{name}"
            yield wrong(here, f"{here} leaves the pod {limit}, and it asks for {wanted}")


def _machine_errors(at: str, domain: Object) -> Iterator[FieldError]:
    machine = (domain.get("machine") or {}).get("type") or ""
    if machine and not any(fnmatchcase(machine, each) for each in MACHINES):
        allowed = " ".join(MACHINES)
        message = f"{at}.machine.type is not supported: {machine} (allowed values: [{allowed}])"
        yield wrong(f"{at}.machine.type", message)
    uuid = (domain.get("firmware") or {}).get("uuid") or ""
    if uuid and not _UUID.fullmatch(uuid):
        yield wrong(f"{at}.firmware.uuid", f"{at}.firmware.uuid '{uuid}' is not a UUID")


def _probe_errors(path: str, spec: Object) -> Iterator[FieldError]:
    for name in ("readinessProbe", "livenessProbe"):
        if (probe := spec.get(name)) is None:
            continue
        at = f"{path}.{name}"
        handlers = [each for each in _PROBES if probe.get(each) is not None]
        if len(handlers) != 1:
            yield wrong(at, f"{at} must have exactly one of {', '.join(_PROBES)}")
        if "exec" in handlers and not probe["exec"].get("command"):
            yield wrong(f"{at}.exec.command", f"{at}.exec.command must not be empty")
        if name == "livenessProbe" and probe.get("successThreshold", 1) not in (0, 1):
            yield wrong(f"{at}.successThreshold", f"{at}.successThreshold must be 1")
        for number in _PROBE_NUMBERS:
            if (probe.get(number) or 0) < 0:
                message = f"{at}.{number} must be greater than or equal to 0"
                yield wrong(f"{at}.{number}", message)


def _placement_errors(path: str, spec: Object) -> Iterator[FieldError]:
    for field in ("hostname", "subdomain"):
        for why in names.validate_dns1123_label(spec[field]) if spec.get(field) else ():
            yield wrong(f"{path}.{field}", f"{path}.{field} does not conform to the rules: {why}")
    if (grace := spec.get("terminationGracePeriodSeconds")) is not None and grace < 0:
        at = f"{path}.terminationGracePeriodSeconds"
        yield wrong(at, f"{at} must be greater than or equal to 0")
    strategy = spec.get("evictionStrategy") or "None"
    if strategy not in _EVICTION:
        at = f"{path}.evictionStrategy"
        yield wrong(at, f"{at} is set with an unrecognized option: {strategy}")
    start = spec.get("startStrategy") or "Paused"
    if start != "Paused":
        at = f"{path}.startStrategy"
        yield wrong(at, f"{at} is set with an unrecognized option: {start}")
    if spec.get("utilityVolumes"):
        yield wrong(f"{path}.utilityVolumes", _NO_UTILITY_VOLUMES)
