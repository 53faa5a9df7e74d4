"""The parts of KubeVirt's example manifests, rebuilt from the kinds and fields that they use."""

from __future__ import annotations

from typing import Any

from livevirt.kube.objects.kind import Kind
from livevirt.vm import kinds

from . import manifests
from .manifests import Object, an_object

IMAGE = "quay.io/kubevirt/demo"
UUID = "0f6e2f5c-8a1d-4c55-9c1e-3f6f6c1f7a10"
SIDECARS = "hooks.kubevirt.io/hookSidecars"


def a_disk(name: str = "root", **volume: Any) -> tuple[Object, Object]:
    """Return a volume and the virtio disk that shows it to the guest."""
    source = volume or {"containerDisk": {"image": IMAGE}}
    return {"name": name, **source}, {"name": name, "disk": {"bus": "virtio"}}


def a_spec(*disks: tuple[Object, Object], **rest: Any) -> Object:
    """Return the spec of an instance; parts of the domain and of its devices are given by name."""
    given = list(disks or [a_disk()])
    devices: Object = {"disks": [disk for _, disk in given]}
    domain: Object = {"resources": {"requests": {"memory": "128Mi"}}}
    for name in ("gpus", "hostDevices", "interfaces", "tpm"):
        if name in rest:
            devices[name] = rest.pop(name)
    for name in ("cpu", "clock", "features", "firmware", "devices"):
        if name in rest:
            domain[name] = rest.pop(name)
    domain.setdefault("devices", devices)
    return {"domain": domain, "volumes": [volume for volume, _ in given], **rest}


def without_disks(**volume: Any) -> Object:
    """Return a spec whose volume is shown by no disk."""
    return a_spec(a_disk(**volume), devices={})


def a_vmi(name: str, spec: Object | None = None, **annotations: str) -> Object:
    metadata = {"annotations": annotations} if annotations else {}
    return manifests.a_vmi(name, spec or a_spec(), **metadata)


def a_vm(name: str, spec: Object | None = None, **rest: Any) -> Object:
    metadata = rest.pop("metadata", {})
    vm = manifests.a_vm(name, instance=spec or a_spec(), **rest)
    vm["spec"]["template"]["metadata"] = metadata
    return vm


def a_named_vm(name: str, kind: str, size: str, preference: str = "", **volume: Any) -> Object:
    """Return a VM sized by the name of an instance type."""
    prefix = "VirtualMachineCluster" if kind == "cluster" else "VirtualMachine"
    matchers: Object = {"instancetype": {"kind": f"{prefix}Instancetype", "name": size}}
    if preference:
        matchers["preference"] = {"kind": "VirtualMachinePreference", "name": preference}
    shown, _ = a_disk(**volume)
    spec = a_spec((shown, {"name": "root", "disk": {}}), firmware={"uuid": UUID})
    spec["domain"]["resources"] = {}  # the instance type has them
    return a_vm(name, spec, **matchers)


def a_size(name: str, kind: Kind = kinds.INSTANCETYPE, cpus: int = 1) -> Object:
    spec = {"cpu": {"guest": cpus}, "memory": {"guest": "128Mi"}}
    return an_object(kind, name, "v1beta1", spec=spec)


def a_preference(name: str, spec: Object) -> Object:
    return an_object(kinds.PREFERENCE, name, "v1beta1", spec=spec)


def a_claim(name: str) -> Object:
    return {"persistentVolumeClaim": {"claimName": name}}


def multus(name: str, **binding: Any) -> Object:
    """Return the networks and interfaces of a guest on the pod's network and another one."""
    return {
        "interfaces": [{"name": "default", "masquerade": {}}, {"name": name, **binding}],
        "networks": [
            {"name": "default", "pod": {}},
            {"name": name, "multus": {"networkName": name}},
        ],
    }


WINDOWS_CLOCK: Object = {
    "utc": {},
    "timer": {
        "hpet": {"present": False},
        "hyperv": {},
        "pit": {"tickPolicy": "delay"},
        "rtc": {"tickPolicy": "catchup"},
    },
}
HYPERV: Object = {"relaxed": {}, "spinlocks": {"spinlocks": 8191}, "vapic": {}}
SECURE_BOOT: Object = {"bootloader": {"efi": {"secureBoot": True}}}
WINDOWS = a_spec(
    a_disk(**a_claim("disk-windows")),
    devices={"tpm": {}},
    clock=WINDOWS_CLOCK,
    cpu={"cores": 2},
    features={"acpi": {}, "apic": {}, "hyperv": HYPERV, "smm": {}},
    firmware={**SECURE_BOOT, "uuid": UUID},
)
WINDOWS_PREFERENCE: Object = {
    "clock": {
        "preferredClockOffset": {"utc": {}},
        "preferredTimer": WINDOWS_CLOCK["timer"],
    },
    "cpu": {"preferredCPUTopology": "sockets"},
    "devices": {
        "preferredDiskBus": "sata",
        "preferredInterfaceModel": "e1000",
        "preferredTPM": {},
    },
    "features": {
        "preferredAcpi": {},
        "preferredApic": {},
        "preferredHyperv": HYPERV,
        "preferredSmm": {},
    },
    "firmware": {"preferredEfi": {"secureBoot": True}},
}
ISOLATED = {
    "cores": 1, "sockets": 2, "threads": 1,
    "dedicatedCpuPlacement": True, "isolateEmulatorThread": True,
}  # fmt: skip
KERNEL = {
    "kernelArgs": "console=ttyS0",
    "container": {"image": IMAGE, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"},
}
GPU = {"name": "gpu", "claimName": "gpu", "requestName": "gpu"}
GPU_REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
GPU_CLAIM = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
DEVICE = {"deviceName": "example.com/device", "name": "device"}
HTTP = {"name": "http", "port": 80, "protocol": "TCP"}
MASQUERADED = {"name": "default", "masquerade": {}, "ports": [HTTP]}
POLICY = {
    "allowAutoConverge": True,
    "allowPostCopy": True,
    "bandwidthPerMigration": "64Mi",
    "completionTimeoutPerGiB": 60,
    "selectors": {
        "namespaceSelector": {"namespace-key": "a"},
        "virtualMachineInstanceSelector": {"vmi-key": "b"},
    },
}
DATA_VOLUME = {
    "metadata": {"name": "alpine"},
    "spec": {
        "pvc": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
            "storageClassName": "local",
        },
        "source": {"registry": {"url": f"docker://{IMAGE}"}},
    },
}


def unserved(api: str, kind: str, **spec: Any) -> Object:
    """Return an object of a kind that the server does not know."""
    return {"apiVersion": api, "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}
