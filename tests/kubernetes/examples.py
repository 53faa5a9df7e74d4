"""Manifests of the shapes that KubeVirt's example manifests have: their kinds and fields."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

ROOT = {"name": "root", "containerDisk": {"image": "registry:5000/guest:latest"}}
CLOUD_INIT = {"name": "cloudinit", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}
CLAIM = {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}
BRIDGED = {"name": "red", "bridge": {}}
MULTUS = {"name": "red", "multus": {"networkName": "red-net"}}
TIMERS = {
    "hpet": {"present": False},
    "hyperv": {},
    "pit": {"tickPolicy": "delay"},
    "rtc": {"tickPolicy": "catchup"},
}
HYPERV = {"relaxed": {}, "vapic": {}, "spinlocks": {"spinlocks": 8191}}


def disk(name: str, **rest: Any) -> Object:
    return {"name": name, "disk": {"bus": "virtio"}, **rest}


def a_spec(
    volumes: tuple[Object, ...] = (ROOT,), domain: Object | None = None, **rest: Any
) -> Object:
    """Return the spec of a guest with a disk for every volume."""
    given = dict(domain or {})
    devices = {"disks": [disk(each["name"]) for each in volumes], **given.pop("devices", {})}
    whole = {"devices": devices, "memory": {"guest": "128Mi"}, "resources": {}, **given}
    return {"domain": whole, "volumes": list(volumes), **rest}


def a_vmi(name: str, spec: Object, **meta: Any) -> Object:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "labels": {"special": name}, **meta},
        "spec": {"terminationGracePeriodSeconds": 0, **spec},
    }


def a_vm(name: str, spec: Object, annotations: Object | None = None, **rest: Any) -> Object:
    meta: Object = {"labels": {"kubevirt.io/vm": name}}
    if annotations:
        meta["annotations"] = annotations
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": {"kubevirt.io/vm": name}},
        "spec": {"runStrategy": "Halted", "template": {"metadata": meta, "spec": spec}, **rest},
    }


def sized(name: str, **matchers: str) -> Object:
    """Return a VM that is sized by an instance type and follows a preference."""
    kinds = {"instancetype": "VirtualMachineInstancetype", "preference": "VirtualMachinePreference"}
    spec = a_spec(domain={"devices": {"disks": [{"name": "root", "disk": {}}]}})
    del spec["domain"]["memory"]
    named = {field: {"kind": kinds[field], "name": value} for field, value in matchers.items()}
    return a_vm(name, spec, **named)


def other(api: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


INSTANCETYPES = "instancetype.kubevirt.io/v1beta1"
DATA_VOLUME = {
    "metadata": {"name": "alpine-dv"},
    "spec": {
        "pvc": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
            "storageClassName": "local",
        },
        "source": {"registry": {"url": "docker://registry:5000/alpine"}},
    },
}
EFI = {"bootloader": {"efi": {"secureBoot": False}}}
HOOK = {"hooks.kubevirt.io/hookSidecars": '[{"args": ["--version", "v1alpha2"]}]'}
MANIFESTS: tuple[Object, ...] = (
    *(
        other(INSTANCETYPES, kind, name, {"cpu": {"guest": cpus}, "memory": {"guest": "128Mi"}})
        for kind, name, cpus in (
            ("VirtualMachineInstancetype", "clarge", 4),
            ("VirtualMachineInstancetype", "csmall", 1),
            ("VirtualMachineClusterInstancetype", "cluster-csmall", 1),
        )
    ),
    other(
        "migrations.kubevirt.io/v1alpha1", "MigrationPolicy", "example-migration-policy",
        {
            "allowAutoConverge": True, "allowPostCopy": False, "bandwidthPerMigration": "64Mi",
            "completionTimeoutPerGiB": 120,
            "selectors": {
                "namespaceSelector": {"namespace-key": "value"},
                "virtualMachineInstanceSelector": {"vmi-key": "value"},
            },
        },
    ),
    other(
        INSTANCETYPES, "VirtualMachinePreference", "virtio",
        {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"}},
    ),
    other(
        INSTANCETYPES, "VirtualMachinePreference", "windows",
        {
            "clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": TIMERS},
            "cpu": {"preferredCPUTopology": "preferSockets"},
            "devices": {
                "preferredDiskBus": "sata", "preferredInterfaceModel": "e1000", "preferredTPM": {},
            },
            "features": {"preferredAcpi": {}, "preferredApic": {}, "preferredHyperv": HYPERV},
        },
    ),
    a_vm("vm-alpine-datavolume",
         a_spec(({"name": "root", "dataVolume": {"name": "alpine-dv"}},)),
         dataVolumeTemplates=[DATA_VOLUME]),
    a_vm("vm-alpine-multipvc",
         a_spec((CLAIM, {"name": "b", "persistentVolumeClaim": {"claimName": "other"}}))),
    sized("vm-cirros-clarge-virtio", instancetype="clarge", preference="virtio"),
    sized("vm-cirros-clarge-windows", instancetype="clarge", preference="windows"),
    sized("vm-cirros-csmall", instancetype="csmall"),
    a_vm("vm-cirros-sata", a_spec(domain={"devices": {
        "disks": [{"name": "root", "disk": {"bus": "sata"}}]}})),
    a_vm("vm-cirros-with-sidecar-hook-configmap", a_spec(), HOOK),
    a_vm("vm-cirros", a_spec((ROOT, CLOUD_INIT))),
    a_vm("vm-priorityclass", a_spec(priorityClassName="non-preemtible")),
    a_vmi("vmi-alpine-efi", a_spec(domain={"firmware": EFI})),
    a_vmi("vmi-arm", a_spec((ROOT, {"name": "empty", "emptyDisk": {"capacity": "2Gi"}}))),
    a_vmi("vmi-dra-pgpu", a_spec(
        domain={"devices": {"gpus": [{"name": "gpu", "claimName": "gpu", "requestName": "one"}]}},
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "pgpu"}])),
    a_vmi("vmi-fedora-isolated", a_spec(domain={"cpu": {
        "cores": 1, "sockets": 1, "threads": 1, "dedicatedCpuPlacement": True,
        "isolateEmulatorThread": True}})),
    a_vmi("vmi-gpu", a_spec(domain={"devices": {"gpus": [
        {"name": "gpu1", "deviceName": "nvidia.com/GP102GL_Tesla_P40"}]}})),
    a_vmi("vmi-host-disk", a_spec(({"name": "host", "hostDisk": {
        "capacity": "1Gi", "path": "/data/disk.img", "type": "DiskOrCreate"}},))),
    a_vmi("vmi-kernel-boot", a_spec((), domain={"firmware": {"kernelBoot": {
        "container": {"image": "kernel", "initrdPath": "/initrd", "kernelPath": "/vmlinuz"},
        "kernelArgs": "console=ttyS0"}}})),
    a_vmi("vmi-masquerade", a_spec(
        domain={"devices": {"interfaces": [{"name": "default", "masquerade": {}, "ports": [
            {"name": "http", "port": 80, "protocol": "TCP"}]}]}},
        networks=[{"name": "default", "pod": {}}])),
    a_vmi("vmi-multus", a_spec(
        domain={"devices": {"interfaces": [BRIDGED]}}, networks=[MULTUS])),
    a_vmi("vmi-pvc", a_spec((CLAIM,))),
    a_vmi("vmi-secureboot", a_spec(domain={
        "features": {"acpi": {}, "smm": {"enabled": True}},
        "firmware": {"bootloader": {"efi": {"secureBoot": True}}}})),
    a_vmi("vmi-sriov", a_spec(
        domain={"devices": {"interfaces": [{"name": "red", "sriov": {}}]}}, networks=[MULTUS])),
    a_vmi("vmi-usb", a_spec(domain={"devices": {"hostDevices": [
        {"name": "stick", "deviceName": "kubevirt.io/storage"}]}})),
    a_vmi("vmi-windows", a_spec((CLAIM,), domain={
        "clock": {"utc": {}, "timer": TIMERS},
        "cpu": {"cores": 2},
        "devices": {"disks": [{"name": "root", "disk": {"bus": "sata"}}], "tpm": {}},
        "features": {"acpi": {}, "apic": {}, "hyperv": HYPERV, "smm": {}},
        "firmware": {"bootloader": {"efi": {"secureBoot": True}}}})),
    a_vmi("vmi-with-sidecar-hook", a_spec(), annotations=HOOK),
)  # fmt: skip

#: Those with fields that would be ignored at the guest's cost; our rules refuse them.
REFUSED = frozenset(
    (
        "vm-cirros-with-sidecar-hook-configmap",
        "vmi-host-disk",
        "vmi-kernel-boot",
        "vmi-with-sidecar-hook",
    )
)
