"""KubeVirt's example manifests, rebuilt from their kinds and fields, and what becomes of each here.

The table at the end is the source of docs/examples.md: `python -m tests.api.examples` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from livevirt.vm import kinds

from .example_manifests import (
    DATA_VOLUME,
    DEVICE,
    GPU,
    GPU_CLAIM,
    GPU_REQUEST,
    ISOLATED,
    KERNEL,
    MASQUERADED,
    POLICY,
    SECURE_BOOT,
    SIDECARS,
    WINDOWS,
    WINDOWS_PREFERENCE,
    a_claim,
    a_disk,
    a_named_vm,
    a_preference,
    a_size,
    a_spec,
    a_vm,
    a_vmi,
    multus,
    unserved,
    without_disks,
)
from .manifests import Object, a_priority_class, an_object

PAGE = Path(__file__).resolve().parents[2] / "docs" / "examples.md"

Outcome = Literal["boots", "accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Example:
    """One of KubeVirt's examples: its manifest, what becomes of it, and why or with what limits."""

    manifest: Object
    outcome: Outcome
    why: str = ""
    needs: tuple[str, ...] = ()  # other examples that are applied before
    ignored: tuple[str, ...] = ()  # fields of the spec that are kept, warned of and not acted on
    fields: tuple[str, ...] = ()  # that a refusal names; none for a kind that is not served


_NO_CLAIM = "waits for its claim; the status names it"
_NO_SIDECARS = "no container runs beside a guest"
_SIDECAR = {SIDECARS: '[{"args": ["--version", "v1alpha2"], "image": "hook"}]'}
_SIDECARS_OF_VM = (f"spec.template.metadata.annotations[{SIDECARS}]",)
_SIDECARS_OF_VMI = (f"metadata.annotations[{SIDECARS}]",)
_FIRST = "accepted with a warning while that is missing, and started once it is there"
_BIOS = "by BIOS: EFI and secure boot are ignored with a warning"
_NO_DEVICE = "without the device, which is ignored with a warning"
_USER_NETWORK = (
    "interfaces on other networks than the pod's are on a user network of their own, with a warning"
)
_NOT_SERVED = "the kind is not served"
_DEVICES = "domain.devices"
_EFI = "domain.firmware.bootloader.efi"
_HOST_DISK = {"hostDisk": {"capacity": "1Gi", "path": "/data/disk.img", "type": "DiskOrCreate"}}
_WINDOWS_IGNORED = (
    "domain.clock.timer", "domain.devices.tpm", "domain.features.apic",
    "domain.features.hyperv", "domain.features.smm", _EFI,
)  # fmt: skip

EXAMPLES: dict[str, Example] = {
    "clarge": Example(a_size("clarge", cpus=2), "accepted"),
    "cluster-csmall": Example(
        a_size("cluster-csmall", kinds.CLUSTER_INSTANCETYPE), "accepted"
    ),
    "csmall": Example(a_size("csmall"), "accepted"),
    "example-migration-policy": Example(
        an_object(kinds.MIGRATION_POLICY, "policy", spec=POLICY),
        "accepted",
        "guests are stopped for the rest instead of switched to post-copy",
    ),
    "migration-job": Example(
        an_object(kinds.MIGRATION, "job", spec={"vmiName": "vmi-migratable"}),
        "refused",
        "while the instance does not exist or does not run",
        fields=("spec.vmiName",),
    ),
    "non-preemtible": Example(
        a_priority_class(
            "non-preemtible", 999999999, description="keeps others", preemptionPolicy="Never"
        ),
        "accepted",
    ),
    "pgpu-resource-claim-tmpl": Example(
        unserved(
            "resource.k8s.io/v1", "ResourceClaimTemplate",
            metadata={}, spec={"devices": {"requests": [GPU_REQUEST]}},
        ),
        "refused",
        _NOT_SERVED,
    ),
    "preemtible": Example(
        a_priority_class(
            "preemtible", 1000000, description="usual", preemptionPolicy="PreemptLowerPriority"
        ),
        "accepted",
        "orders the scheduling queue; nothing is preempted",
    ),
    "virtio": Example(
        a_preference(
            "virtio",
            {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"}},
        ),
        "accepted",
    ),
    "vm-alpine-datavolume": Example(
        a_vm(
            "vm-alpine-datavolume",
            a_spec(a_disk(dataVolume={"name": "alpine"})),
            dataVolumeTemplates=[DATA_VOLUME],
        ),
        "accepted",
        "boots once its storage class exists and the image is imported",
    ),
    "vm-alpine-multipvc": Example(
        a_vm(
            "vm-alpine-multipvc",
            a_spec(a_disk("a", **a_claim("a")), a_disk("b", **a_claim("b"))),
        ),
        "accepted",
        _NO_CLAIM,
    ),
    "vm-cirros-clarge-virtio": Example(
        a_named_vm("vm-cirros-clarge-virtio", "", "clarge", "virtio"),
        "boots", _FIRST, needs=("clarge", "virtio"),
    ),
    "vm-cirros-clarge-windows": Example(
        a_named_vm("vm-cirros-clarge-windows", "", "clarge", "windows"),
        "boots",
        f"{_FIRST}; what the preference sets and guests do not get is warned of",
        needs=("clarge", "windows"),
    ),
    "vm-cirros-clarge": Example(
        a_named_vm("vm-cirros-clarge", "", "clarge"), "boots", _FIRST, needs=("clarge",)
    ),
    "vm-cirros-cluster-csmall": Example(
        a_named_vm("vm-cirros-cluster-csmall", "cluster", "cluster-csmall"),
        "boots", _FIRST, needs=("cluster-csmall",),
    ),
    "vm-cirros-csmall": Example(
        a_named_vm("vm-cirros-csmall", "", "csmall"), "boots", _FIRST, needs=("csmall",)
    ),
    "vm-cirros-sata": Example(a_vm("vm-cirros-sata", without_disks()), "boots"),
    "vm-cirros-with-sidecar-hook-configmap": Example(
        a_vm("vm-cirros-with-sidecar-hook-configmap", metadata={"annotations": _SIDECAR}),
        "refused", _NO_SIDECARS, fields=_SIDECARS_OF_VM,
    ),
    "vm-cirros": Example(a_vm("vm-cirros"), "boots"),
    "vm-pool-cirros": Example(
        unserved(
            "pool.kubevirt.io/v1beta1", "VirtualMachinePool", replicas=3,
            selector={"matchLabels": {"kubevirt.io/vmpool": "pool"}},
            virtualMachineTemplate={"spec": a_vm("x")["spec"]},
        ),
        "refused", _NOT_SERVED,
    ),
    "vm-priorityclass": Example(
        a_vm("vm-priorityclass", a_spec(priorityClassName="non-preemtible")),
        "boots",
        "refused while the PriorityClass does not exist",
        needs=("non-preemtible",),
    ),
    "vm-windows-clarge-windows": Example(
        a_named_vm(
            "vm-windows-clarge-windows", "", "clarge", "windows", **a_claim("disk-windows")
        ),
        "accepted", _NO_CLAIM, needs=("clarge", "windows"),
    ),
    "vmi-alpine-efi": Example(
        a_vmi(
            "vmi-alpine-efi", a_spec(firmware={"bootloader": {"efi": {"secureBoot": False}}})
        ),
        "boots", _BIOS, ignored=(_EFI,),
    ),
    "vmi-arm": Example(
        a_vmi("vmi-arm", a_spec(a_disk(), a_disk("empty", emptyDisk={"capacity": "2Gi"}))), "boots"
    ),
    "vmi-dra-pgpu": Example(
        a_vmi("vmi-dra-pgpu", a_spec(gpus=[GPU], resourceClaims=[GPU_CLAIM])),
        "boots", _NO_DEVICE, ignored=(f"{_DEVICES}.gpus", "resourceClaims"),
    ),
    "vmi-ephemeral": Example(a_vmi("vmi-ephemeral"), "boots"),
    "vmi-fedora-isolated": Example(
        a_vmi("vmi-fedora-isolated", a_spec(cpu=ISOLATED)),
        "accepted",
        "boots on a node that has exclusive CPUs for it; waits for one; the status names it",
    ),
    "vmi-fedora": Example(a_vmi("vmi-fedora"), "boots"),
    "vmi-gpu": Example(
        a_vmi("vmi-gpu", a_spec(gpus=[DEVICE])),
        "boots", _NO_DEVICE, ignored=(f"{_DEVICES}.gpus",),
    ),
    "vmi-host-disk": Example(
        a_vmi("vmi-host-disk", a_spec(a_disk(**_HOST_DISK))),
        "refused", "guests get no files of their host", fields=("spec.volumes[0].hostDisk",),
    ),
    "vmi-kernel-boot": Example(
        a_vmi(
            "vmi-kernel-boot",
            {**a_spec(devices={}, firmware={"kernelBoot": KERNEL}), "volumes": []},
        ),
        "refused",
        "guests boot from a disk with a boot loader",
        fields=("spec.domain.firmware.kernelBoot",),
    ),
    "vmi-masquerade": Example(
        a_vmi(
            "vmi-masquerade",
            a_spec(interfaces=[MASQUERADED], networks=[{"name": "default", "pod": {}}]),
        ),
        "boots",
    ),
    "vmi-migratable": Example(a_vmi("vmi-migratable"), "boots"),
    "vmi-multus-multiple-net": Example(
        a_vmi("vmi-multus-multiple-net", a_spec(**multus("ptp", bridge={}))),
        "boots", _USER_NETWORK, ignored=("networks.multus",),
    ),
    "vmi-multus-ptp": Example(
        a_vmi("vmi-multus-ptp", a_spec(**multus("ptp", bridge={}))),
        "boots", _USER_NETWORK, ignored=("networks.multus",),
    ),
    "vmi-nocloud": Example(
        a_vmi("vmi-nocloud", a_spec(a_disk(), a_disk("empty", emptyDisk={"capacity": "2Gi"}))),
        "boots",
    ),
    "vmi-preset-small": Example(
        unserved(
            "kubevirt.io/v1alpha3", "VirtualMachineInstancePreset",
            domain={"devices": {}, "resources": {}},
            selector={"matchLabels": {"kubevirt.io/vmPreset": "small"}},
        ),
        "refused", _NOT_SERVED,
    ),
    "vmi-pvc": Example(
        a_vmi("vmi-pvc", a_spec(a_disk(**a_claim("disk-alpine")))), "accepted", _NO_CLAIM
    ),
    "vmi-replicaset-cirros": Example(
        unserved(
            "kubevirt.io/v1", "VirtualMachineInstanceReplicaSet", replicas=3,
            selector={"matchLabels": {"kubevirt.io/vmReplicaSet": "set"}},
            template={"spec": a_spec()},
        ),
        "refused", _NOT_SERVED,
    ),
    "vmi-sata": Example(a_vmi("vmi-sata", without_disks()), "boots"),
    "vmi-secureboot": Example(
        a_vmi(
            "vmi-secureboot",
            a_spec(features={"acpi": {}, "smm": {"enabled": True}}, firmware=SECURE_BOOT),
        ),
        "boots", _BIOS, ignored=("domain.features.smm", _EFI),
    ),
    "vmi-sriov": Example(
        a_vmi("vmi-sriov", a_spec(**multus("sriov", sriov={}))),
        "boots", _USER_NETWORK, ignored=(f"{_DEVICES}.interfaces.sriov", "networks.multus"),
    ),
    "vmi-usb": Example(
        a_vmi("vmi-usb", a_spec(hostDevices=[DEVICE])),
        "boots", _NO_DEVICE, ignored=(f"{_DEVICES}.hostDevices",),
    ),
    "vmi-windows": Example(
        a_vmi("vmi-windows", WINDOWS),
        "accepted",
        f"{_NO_CLAIM}; boots by BIOS, and what guests do not get is warned of",
        ignored=_WINDOWS_IGNORED,
    ),
    "vmi-with-sidecar-hook-configmap": Example(
        a_vmi("vmi-with-sidecar-hook-configmap", **_SIDECAR),
        "refused", _NO_SIDECARS, fields=_SIDECARS_OF_VMI,
    ),
    "vmi-with-sidecar-hook": Example(
        a_vmi(
            "vmi-with-sidecar-hook",
            **_SIDECAR, **{"smbios.vm.kubevirt.io/baseBoardManufacturer": "Example"},
        ),
        "refused", _NO_SIDECARS, fields=_SIDECARS_OF_VMI,
    ),
    "windows": Example(
        a_preference("windows", WINDOWS_PREFERENCE),
        "accepted",
        "a VM that names it is warned of what guests do not get",
    ),
}  # fmt: skip

# ---------------------------------------------------------------- the page

_PAGE = """# KubeVirt's examples

What becomes of KubeVirt's example manifests (the `examples` folder of its repository, August 2026).
Images are imported first, under the names that the manifests use. This page is generated by
`.venv/bin/python -m tests.api.examples`; `tests/api/test_examples.py` applies a manifest with the
kinds and fields of each and keeps the page current.

- **boots**: the guest starts.
- **accepted**: stored and used; or it waits for something that its status names.
- **refused**: with the reason and, where there is one, the field.

| example | kind | result | needs first | limits, or why |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the page docs/examples.md."""
    rows = (
        f"| {name} | {each.manifest['kind']} | {each.outcome} | {', '.join(each.needs) or '—'}"
        f" | {each.why or '—'} |\n"
        for name, each in EXAMPLES.items()
    )
    return _PAGE + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
