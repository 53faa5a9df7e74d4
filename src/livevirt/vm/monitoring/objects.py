"""Samples of VirtualMachines, instances, migrations and nodes: pure functions of the objects.

Names and labels are KubeVirt's. An instance type has its own name, whatever its publisher;
KubeVirt writes `<other>` for types that do not come from a few vendors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from livevirt.kube.control.metrics import Family, Sample
from livevirt.kube.objects import conditions, quantity, times
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.sizing import hot_change
from livevirt.vm.spec.defaults import BINDINGS
from livevirt.vm.verdict.summary import RESTART_REQUIRED

_VM = ("name", "namespace")
_VMI = ("node", "namespace", "name")
_SYSTEM = ("os", "workload", "flavor")  # annotations `vm.kubevirt.io/…`
_SIZED_BY = ("instance_type", "preference")
_GUEST_OS = {  # label: field of `status.guestOSInfo`
    "guest_os_kernel_release": "kernelRelease",
    "guest_os_arch": "machine",
    "guest_os_name": "name",
    "guest_os_version_id": "versionId",
}
_COUNTED_BY = (
    "node", "phase", *_SYSTEM, *_SIZED_BY, "guest_os_kernel_release", "guest_os_machine",
    "guest_os_arch", "guest_os_name", "guest_os_version_id",
)  # fmt: skip

NUMBER_OF_VMS = Family(
    "kubevirt_number_of_vms", "gauge", "VirtualMachines in a namespace.", ("namespace",)
)
VM_INFO = Family(
    "kubevirt_vm_info", "gauge",
    "Always 1; the labels describe a VirtualMachine, `status` is its printable status.",
    (*_VM, *_SYSTEM, "machine_type", *_SIZED_BY, "status", "status_group"),
)  # fmt: skip
VM_CREATED = Family(
    "kubevirt_vm_create_date_timestamp_seconds", "gauge",
    "When a VirtualMachine was created.", _VM,
)  # fmt: skip
VM_REQUESTS = Family(
    "kubevirt_vm_resource_requests", "gauge",
    "CPUs and memory that a VirtualMachine asks for, by where they are set (`source`).",
    (*_VM, "resource", "unit", "source"),
)  # fmt: skip
VM_LIMITS = Family(
    "kubevirt_vm_resource_limits", "gauge",
    "CPU and memory limits of a VirtualMachine that sets any.", (*_VM, "resource", "unit"),
)  # fmt: skip
VM_DISK = Family(
    "kubevirt_vm_disk_allocated_size_bytes", "gauge",
    "Size of the PersistentVolumeClaim behind a disk of a VirtualMachine.",
    (*_VM, "persistentvolumeclaim", "volume_mode", "device"),
)  # fmt: skip
VM_VNIC = Family(
    "kubevirt_vm_vnic_info", "gauge",
    "Always 1; the labels describe a network interface in a VirtualMachine's template.",
    (*_VM, "vnic_name", "binding_type", "network", "binding_name"),
)  # fmt: skip
RESTART = Family(
    "livevirt_vm_restart_required_timestamp_seconds", "gauge",
    "Since when a VirtualMachine has edits that need a restart; absent without such edits.", _VM,
)  # fmt: skip

_STATUS_GROUPS = {
    "starting": ("Provisioning", "Starting", "WaitingForVolumeBinding"),
    "running": ("Running",),
    "migrating": ("Migrating",),
    "non_running": ("Stopped", "Paused", "Stopping", "Terminating"),
    "error": (
        "CrashLoopBackOff", "Unknown", "ErrorUnschedulable", "ErrImagePull", "ImagePullBackOff",
        "ErrorPvcNotFound", "DataVolumeError",
    ),
}  # fmt: skip
TRANSITIONS = {
    group: Family(
        f"kubevirt_vm_{group}_status_last_transition_timestamp_seconds", "counter",
        f"When the VirtualMachine entered {what}; 0 while it is in another status.", _VM,
    )
    for group, what in {
        "starting": "a status of starting",
        "running": "status Running",
        "migrating": "status Migrating",
        "non_running": "a status of being paused, stopping or stopped",
        "error": "a status of error",
    }.items()
}  # fmt: skip

VMI_INFO = Family(
    "kubevirt_vmi_info", "gauge",
    "Always 1; the labels describe an instance and, as reported by its agent, its guest.",
    (
        *_VMI, "phase", *_SYSTEM, *_SIZED_BY, "guest_os_kernel_release", "guest_os_machine",
        "guest_os_arch", "guest_os_name", "guest_os_version_id", "evictable", "outdated", "vmi_pod",
    ),
)  # fmt: skip
PHASES = Family(
    "kubevirt_vmi_phase_count", "gauge",
    "Instances by phase, node, size and guest operating system.", _COUNTED_BY,
)  # fmt: skip
NON_EVICTABLE = Family(
    "kubevirt_vmi_non_evictable", "gauge",
    "1 if an instance is to migrate when its node is drained, and cannot.", _VMI,
)  # fmt: skip
ADDRESSES = Family(
    "kubevirt_vmi_status_addresses", "gauge",
    "Always 1; the labels give the address of a network interface of an instance.",
    (*_VMI, "vnic_name", "interface_name", "address", "type"),
)  # fmt: skip
VMI_VNIC = Family(
    "kubevirt_vmi_vnic_info", "gauge",
    "Always 1; the labels describe a network interface of an instance.",
    (*_VM, "vnic_name", "binding_type", "network", "binding_name", "model"),
)  # fmt: skip
MIGRATION_START = Family(
    "kubevirt_vmi_migration_start_time_seconds", "gauge",
    "When the last migration of an instance began.", (*_VMI, "migration_name"),
)  # fmt: skip
MIGRATION_END = Family(
    "kubevirt_vmi_migration_end_time_seconds", "gauge",
    "When the last migration of an instance ended.", (*_VMI, "migration_name", "status"),
)  # fmt: skip
LIVE_CHANGE = Family(
    "livevirt_vmi_live_change_timestamp_seconds", "gauge",
    "Since when a live change of an instance is under way; `reason` is its condition's reason.",
    ("namespace", "name", "resource", "reason"),
)  # fmt: skip
PAUSED = Family(
    "livevirt_vmi_paused_timestamp_seconds", "gauge",
    "Since when an instance is paused; reason PausedIOError means that a disk failed or is full.",
    ("namespace", "name", "reason"),
)  # fmt: skip

IN_PHASE = {
    phase: Family(
        f"kubevirt_vmi_migrations_in_{phase}_phase", "gauge", f"Migrations that are {what}."
    )
    for phase, what in {
        "unset": "new, and not looked at yet",
        "pending": "waiting for their turn",
        "scheduling": "waiting for a node",
        "running": "under way, from the preparation of the target on",
    }.items()
}
_VMIM = ("vmi", "vmim", "namespace")
SUCCEEDED = Family(
    "kubevirt_vmi_migration_succeeded", "gauge", "1 for a migration that succeeded.", _VMIM
)
FAILED = Family("kubevirt_vmi_migration_failed", "gauge", "1 for a migration that failed.", _VMIM)

NODE_READY = Family(
    "livevirt_node_ready", "gauge", "Whether a node's condition Ready is True.", ("node",)
)
HEARTBEAT = Family(
    "livevirt_node_heartbeat_timestamp_seconds", "gauge",
    "When a node agent last renewed its lease; it does so every ten seconds.", ("node",),
)  # fmt: skip

FAMILIES = (
    NUMBER_OF_VMS, VM_INFO, VM_CREATED, VM_REQUESTS, VM_LIMITS, VM_DISK, VM_VNIC,
    *TRANSITIONS.values(), VMI_INFO, PHASES, NON_EVICTABLE, ADDRESSES, VMI_VNIC, MIGRATION_START,
    MIGRATION_END, *IN_PHASE.values(), SUCCEEDED, FAILED, RESTART, LIVE_CHANGE, PAUSED,
    NODE_READY, HEARTBEAT,
)  # fmt: skip

_CHANGES = {
    "cpu": hot_change.CPU, "memory": hot_change.MEMORY_TYPE, "volume": hot_change.VOLUME
}  # fmt: skip
_SAID_LAST = ("Ready", "Failure", "Paused")  # by which KubeVirt dates a status


# ---------------------------------------------------------------- VirtualMachines


def of_machines(vms: Iterable[Object], vmis: Mapping[tuple[str, str], Object]) -> Iterator[Sample]:
    """Yield the samples of VirtualMachines; instances are by namespace and name."""
    count: Counter[str] = Counter()
    for vm in vms:
        meta = vm["metadata"]
        named = (meta["name"], meta["namespace"])
        count[meta["namespace"]] += 1
        status = status_of(vm)
        group = status_group(status.get("printableStatus", ""))
        yield Sample(VM_INFO, (*named, *_described(vm, status, group)), 1)
        yield Sample(VM_CREATED, named, _seconds(meta["creationTimestamp"]))
        changed = _last_change(status.get("conditions"))
        for each, family in TRANSITIONS.items():
            yield Sample(family, named, changed if each == group else 0)
        found = conditions.find(status.get("conditions"), RESTART_REQUIRED)
        if found is not None and found.get("status") == "True":
            yield Sample(RESTART, named, _seconds(found.get("lastTransitionTime")))
        yield from _sizes(vm, vmis.get((meta["namespace"], meta["name"])), named)
        for described in _vnics(_spec(vm)):
            yield Sample(VM_VNIC, (*named, *described[:-1]), 1)
    for namespace, number in count.items():
        yield Sample(NUMBER_OF_VMS, (namespace,), number)


def status_group(status: str) -> str:
    """Return KubeVirt's group of a printable status; an unknown one is an error."""
    return next((group for group, known in _STATUS_GROUPS.items() if status in known), "error")


def _described(vm: Object, status: Object, group: str) -> tuple[str, ...]:
    spec = vm["spec"]
    template = (spec.get("template") or {}).get("metadata") or {}
    machine = ((_spec(vm).get("domain") or {}).get("machine") or {}).get("type", "")
    sized = [(spec.get(field) or {}).get("name", "") for field in ("instancetype", "preference")]
    said = status.get("printableStatus", "").lower()
    return (*_system(template), machine, *sized, said, group)


def _sizes(vm: Object, vmi: Object | None, named: tuple[str, str]) -> Iterator[Sample]:
    """Yield what a VM asks for; what an instance type gives it is read from its instance."""
    domain = _spec(vm).get("domain") or {}
    expanded = (vmi["spec"].get("domain") or {}) if vmi is not None else {}
    cpu = domain.get("cpu") or expanded.get("cpu") or {}
    memory = domain.get("memory") or expanded.get("memory") or {}
    for field in ("cores", "sockets", "threads"):
        if cpu.get(field):
            yield Sample(VM_REQUESTS, (*named, "cpu", field, "domain"), cpu[field])
    if memory.get("guest"):
        yield Sample(VM_REQUESTS, (*named, "memory", "bytes", "guest"), _amount(memory["guest"]))
    resources = domain.get("resources") or {}
    for field, family, source in (
        ("requests", VM_REQUESTS, {"memory": ("domain",), "cpu": ("requests",)}),
        ("limits", VM_LIMITS, {}),
    ):
        for resource, unit in (("memory", "bytes"), ("cpu", "cores")):
            amount = (resources.get(field) or {}).get(resource)
            if amount:
                labels = (*named, resource, unit, *source.get(resource, ()))
                yield Sample(family, labels, _amount(amount))


def of_disks(vms: Iterable[Object], claims: Mapping[tuple[str, str], Object]) -> Iterator[Sample]:
    """Yield the sizes of the claims of VirtualMachines; claims are by namespace and name."""
    for vm in vms:
        meta = vm["metadata"]
        for volume in _spec(vm).get("volumes") or ():
            source = volume.get("persistentVolumeClaim") or volume.get("dataVolume") or {}
            name = source.get("claimName") or source.get("name") or ""
            claim = claims.get((meta["namespace"], name))
            if claim is None:
                continue
            size = (status_of(claim).get("capacity") or {}).get("storage")
            size = size or claim["spec"]["resources"]["requests"]["storage"]
            mode = claim["spec"].get("volumeMode", "Filesystem")
            labels = (meta["name"], meta["namespace"], name, mode, volume["name"])
            yield Sample(VM_DISK, labels, _amount(size))


# ---------------------------------------------------------------- instances


def of_instances(
    vmis: Iterable[Object], pods: Mapping[str, str], migrations: Mapping[str, str]
) -> Iterator[Sample]:
    """Yield the samples of instances, with names of pods and migrations by uid.

    A pod is found under the uid of its instance.
    """
    count: Counter[tuple[str, ...]] = Counter()
    for vmi in vmis:
        meta, status = vmi["metadata"], status_of(vmi)
        where = (status.get("nodeName", ""), meta["namespace"], meta["name"])
        listed = status.get("conditions")
        described = (status.get("phase", "").lower(), *_guest(vmi, status))
        count[where[0], *described] += 1
        stays = _must_stay(vmi, listed)
        rest = ("false" if stays else "true", "false", pods.get(meta["uid"], ""))
        yield Sample(VMI_INFO, (*where, *described, *rest), 1)
        yield Sample(NON_EVICTABLE, where, stays)
        for card in status.get("interfaces") or ():
            address = card.get("ipAddress", "")
            kind = "ExternalInterface" if address else "SystemInterface"
            names = (card.get("name", ""), card.get("interfaceName", ""), address, kind)
            yield Sample(ADDRESSES, (*where, *names), 1)
        for vnic in _vnics(vmi["spec"]):
            yield Sample(VMI_VNIC, (meta["name"], meta["namespace"], *vnic), 1)
        yield from _last_migration(status.get("migrationState"), where, migrations)
        yield from _under_way(listed, (meta["namespace"], meta["name"]))
    for labels, number in count.items():
        yield Sample(PHASES, labels, number)


def _guest(vmi: Object, status: Object) -> tuple[str, ...]:
    annotations = vmi["metadata"].get("annotations") or {}
    sized = [
        annotations.get(f"kubevirt.io/{role}-name")
        or annotations.get(f"kubevirt.io/cluster-{role}-name", "")
        for role in ("instancetype", "preference")
    ]
    info = status.get("guestOSInfo") or {}
    release, *others = (info.get(field, "") for field in _GUEST_OS.values())
    machine = (status.get("machine") or {}).get("type", "")
    return (*_system(vmi["metadata"]), *sized, release, machine, *others)


def _must_stay(vmi: Object, listed: list[Object] | None) -> bool:
    """Return whether an instance would have to migrate and cannot, or it is not known yet."""
    asked = vmi["spec"].get("evictionStrategy") in ("LiveMigrate", "LiveMigrateIfPossible")
    return asked and not conditions.is_true(listed, "LiveMigratable")


def _last_migration(
    state: Object | None, where: tuple[str, str, str], names: Mapping[str, str]
) -> Iterator[Sample]:
    if not state:
        return
    name = names.get(state.get("migrationUid", ""), "")
    if state.get("startTimestamp"):
        yield Sample(MIGRATION_START, (*where, name), _seconds(state["startTimestamp"]))
    if state.get("endTimestamp"):
        result = "failed" if state.get("failed") else "succeeded"
        ended = result if state.get("completed") or state.get("failed") else ""
        yield Sample(MIGRATION_END, (*where, name, ended), _seconds(state["endTimestamp"]))


def _under_way(listed: list[Object] | None, named: tuple[str, str]) -> Iterator[Sample]:
    for resource, type_ in _CHANGES.items():
        found = conditions.find(listed, type_)
        if found is not None and found.get("status") == "True":
            labels = (*named, resource, found.get("reason", ""))
            yield Sample(LIVE_CHANGE, labels, _seconds(found.get("lastTransitionTime")))
    paused = conditions.find(listed, "Paused")
    if paused is not None and paused.get("status") == "True":
        since = _seconds(paused.get("lastTransitionTime"))
        yield Sample(PAUSED, (*named, paused.get("reason", "")), since)


# ---------------------------------------------------------------- migrations, nodes


def of_migrations(migrations: Iterable[Object]) -> Iterator[Sample]:
    """Yield how many migrations are where, and how each one ended."""
    count = dict.fromkeys(IN_PHASE, 0)
    for each in migrations:
        meta, phase = each["metadata"], status_of(each).get("phase") or "unset"
        labels = (each["spec"].get("vmiName", ""), meta["name"], meta["namespace"])
        if phase == "Succeeded":
            yield Sample(SUCCEEDED, labels, 1)
        elif phase == "Failed":
            yield Sample(FAILED, labels, 1)
        else:
            count[phase.lower() if phase.lower() in count else "running"] += 1
    for phase, number in count.items():
        yield Sample(IN_PHASE[phase], (), number)


def of_nodes(nodes: Iterable[Object], leases: Iterable[Object]) -> Iterator[Sample]:
    """Yield whether nodes are ready, and when their agents were last heard of."""
    for node in nodes:
        ready = conditions.is_true(status_of(node).get("conditions"), "Ready")
        yield Sample(NODE_READY, (node["metadata"]["name"],), ready)
    for lease in leases:
        renewed = (lease.get("spec") or {}).get("renewTime")
        if renewed:
            at = times.parse_micro_time(renewed).timestamp()
            yield Sample(HEARTBEAT, (lease["metadata"]["name"],), at)


# ---------------------------------------------------------------- reading objects


def _spec(vm: Object) -> Object:
    return (vm["spec"].get("template") or {}).get("spec") or {}


def _system(meta: Object) -> tuple[str, ...]:
    annotations = meta.get("annotations") or {}
    return tuple(annotations.get(f"vm.kubevirt.io/{name}", "") for name in _SYSTEM)


def _vnics(spec: Object) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, binding type, network, binding name and model of each interface."""
    networks = {each["name"]: each for each in spec.get("networks") or ()}
    devices = (spec.get("domain") or {}).get("devices") or {}
    for each in devices.get("interfaces") or ():
        network = networks.get(each["name"])
        if network is None:
            continue
        binding = next((name for name in BINDINGS if name in each), "")
        plugin = each.get("binding", {}).get("name", "") if binding == "binding" else binding
        kind = "plugin" if binding == "binding" else "core"
        name = (network.get("multus") or {}).get("networkName") or "pod networking"
        yield each["name"], kind, name, plugin, each.get("model") or "<none>"


def _last_change(listed: list[Object] | None) -> float:
    found = (conditions.find(listed, type_) for type_ in _SAID_LAST)
    return max((_seconds(each.get("lastTransitionTime")) for each in found if each), default=0.0)


def _seconds(moment: str | None) -> float:
    parsed: datetime | None = times.parse_time(moment) if moment else None
    return parsed.timestamp() if parsed is not None else 0.0


def _amount(text: str | int) -> float:
    return float(quantity.parse(text).milli()) / 1000
