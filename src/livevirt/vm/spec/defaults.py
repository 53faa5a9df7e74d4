"""An instance's spec made complete: everything that a start of its guest depends on."""

from __future__ import annotations

import functools
import hashlib
import uuid

from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import disks, sizes
from livevirt.vm.spec.instance import Instance, read

_FIRMWARE = uuid.UUID("5d3d3c0e-0d2b-5f7e-9c55-6b1f3a2f7a10")  # the namespace of our UUIDs


@functools.lru_cache(maxsize=4096)  # asked for again at every look at a running guest
def firmware_uuid(uid: str) -> str:
    """Return the SMBIOS UUID of the guest of a VM, or of an instance without one."""
    return str(uuid.uuid5(_FIRMWARE, uid))


@functools.lru_cache(maxsize=4096)
def mac_address(uid: str, interface: str) -> str:
    """Return a locally administered unicast address for an interface."""
    digest = hashlib.sha256(f"{uid}/{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


ALIAS = "q35"  # the newest type of whichever QEMU runs the guest


def kept(spec: Object, machine: Object | None) -> Object:
    """Return a spec with the type of an earlier start, or as it is if it names one itself."""
    earlier = (machine or {}).get("type")
    domain = spec.get("domain") or {}
    named = domain.get("machine") or {}
    if not earlier or named.get("type") not in (None, "", ALIAS):
        return spec
    return {**spec, "domain": {**domain, "machine": {**named, "type": earlier}}}


RUN_STRATEGIES = ("Always", "Halted", "Manual", "RerunOnFailure", "Once")


def run_strategy(spec: Object) -> str:
    """Return the run strategy a spec stands for, also by the deprecated `running`."""
    if strategy := spec.get("runStrategy"):
        return str(strategy)
    return "Always" if spec.get("running") else "Halted"


DEFAULT = "default"
BINDINGS = (
    "bridge", "masquerade", "sriov", "slirp", "passt", "passtBinding", "macvtap", "binding",
)  # fmt: skip


def attach_default(spec: Object, binding: str) -> None:
    """Connect a guest without networks to the pod's, in place."""
    devices = spec["domain"].setdefault("devices", {})
    if spec.get("networks") or devices.get("interfaces"):
        return
    if devices.get("autoattachPodInterface") is False:
        return
    devices["interfaces"] = [{"name": DEFAULT, binding: {}}]
    spec["networks"] = [{"name": DEFAULT, "pod": {}}]


def complete(interfaces: list[Object], uid: str, binding: str) -> None:
    """Give each interface a binding, a model and an address, in place."""
    for interface in interfaces:
        if not any(interface.get(each) is not None for each in BINDINGS):
            interface[binding] = {}
        interface.setdefault("model", "virtio")
        interface.setdefault("macAddress", mac_address(uid, interface["name"]))


ARCHITECTURE = "amd64"
GRACE_SECONDS = 30


def fill(spec: Object, uid: str, config: Config) -> None:
    """Fill in what a spec leaves out, in place; what it sets is never changed.

    `uid` is that of the VM, or of the instance where no VM owns it.
    """
    spec.setdefault("architecture", ARCHITECTURE)
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("evictionStrategy", config.eviction_strategy)
    domain = spec["domain"]
    _part(domain, "machine").setdefault("type", config.defaults.machine_type)
    _part(domain, "firmware").setdefault("uuid", firmware_uuid(uid))
    _part(_part(domain, "features"), "acpi").setdefault("enabled", True)
    fill_size(domain, read(spec), config)
    attach_default(spec, config.network_binding)
    complete(domain["devices"].get("interfaces") or [], uid, config.network_binding)
    disks.set_buses(spec)


def fill_size(domain: Object, instance: Instance, config: Config) -> None:
    """Fill in the size of a machine, in place: its `cpu`, `memory` and `resources`, and by them."""
    written, defaults = instance.domain, config.defaults
    alone = written.cpu.dedicated_cpu_placement  # then its vCPUs set how many CPUs it has
    asked = alone or written.resources.request("cpu") is not None
    if defaults.cpu_request is not None and not asked:
        requests = _part(_part(domain, "resources"), "requests")
        requests["cpu"] = str(defaults.cpu_request)
    chosen = sizes.topology(written.cpu, written.resources)
    part = _part(domain, "cpu")
    part.update(sockets=chosen.sockets, cores=chosen.cores, threads=chosen.threads)
    part.setdefault("model", defaults.cpu_model)
    boot = sizes.guest(instance)
    if boot is not None:
        _part(domain, "memory").setdefault("guest", str(boot))
    if config.reserves_maxima:
        part["maxSockets"] = sizes.max_sockets(written.cpu.max_sockets, chosen, defaults)
        most = sizes.max_guest(instance, boot, defaults)
        if most is not None:
            _part(domain, "memory").setdefault("maxGuest", str(most))


def _part(parent: Object, name: str) -> Object:
    """Return a part of an object, made if it is not there."""
    if parent.get(name) is None:
        parent[name] = {}
    found: Object = parent[name]
    return found
