"""An instance's spec made complete: all that the guest's start depends on is then written in it."""

from __future__ import annotations

from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.spec import cpu, disks, identity, memory, networks
from livevirt.vm.spec.instance import Instance, read

ARCHITECTURE = "amd64"
GRACE_SECONDS = 30


def fill(spec: Object, uid: str, config: Config) -> None:
    """Fill in what a spec leaves out, in place; what it says is never changed.

    `uid` is that of the VM, or of the instance where no VM owns it.
    """
    spec.setdefault("architecture", ARCHITECTURE)
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("evictionStrategy", config.eviction_strategy)
    domain = spec["domain"]
    _part(domain, "machine").setdefault("type", config.defaults.machine_type)
    _part(domain, "firmware").setdefault("uuid", identity.firmware_uuid(uid))
    _part(_part(domain, "features"), "acpi").setdefault("enabled", True)
    fill_size(domain, read(spec), config)
    networks.attach_default(spec, config.network_binding)
    networks.complete(domain["devices"].get("interfaces") or [], uid, config.network_binding)
    disks.set_buses(spec)


def fill_size(domain: Object, instance: Instance, config: Config) -> None:
    """Fill in the size of a machine, in place: its `cpu`, `memory` and `resources`, and by them."""
    written, defaults = instance.domain, config.defaults
    alone = written.cpu.dedicated_cpu_placement  # then its vCPUs tell how many CPUs it has
    asked = alone or written.resources.request("cpu") is not None
    if defaults.cpu_request is not None and not asked:
        requests = _part(_part(domain, "resources"), "requests")
        requests["cpu"] = str(defaults.cpu_request)
    chosen = cpu.topology(written.cpu, written.resources)
    part = _part(domain, "cpu")
    part.update(sockets=chosen.sockets, cores=chosen.cores, threads=chosen.threads)
    part.setdefault("model", defaults.cpu_model)
    boot = memory.guest(instance)
    if boot is not None:
        _part(domain, "memory").setdefault("guest", str(boot))
    if config.live_update:
        part["maxSockets"] = cpu.max_sockets(written.cpu.max_sockets, chosen, defaults)
        most = memory.max_guest(instance, boot, defaults)
        if most is not None:
            _part(domain, "memory").setdefault("maxGuest", str(most))


def _part(parent: Object, name: str) -> Object:
    """Return a part of an object, made if it is not there."""
    if parent.get(name) is None:
        parent[name] = {}
    found: Object = parent[name]
    return found
