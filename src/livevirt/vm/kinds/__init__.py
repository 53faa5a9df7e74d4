"""KubeVirt's kinds: constants such as `VM` and `VMI`."""

from __future__ import annotations

from livevirt.kube.objects import core, schema
from livevirt.kube.objects.core import AGE, STATUS
from livevirt.kube.objects.kind import Column, Kind
from livevirt.kube.objects.registry import Registry
from livevirt.vm.kinds.conversion import convert
from livevirt.vm.kinds.subresources import ACTIONS

schema.add_tables("livevirt.vm.kinds")

_KV = "kubevirt.io"


def _condition(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


VM = Kind(
    _KV, "VirtualMachine", "virtualmachines", ("v1",), "kubevirt.VirtualMachine",
    short=("vm", "vms"), categories=("all",), custom=True, subresources=(STATUS,),
    selectable=("status.printableStatus",),
    columns=(
        AGE,
        Column("Status", ".status.printableStatus", description="what the VM is doing"),
        Column("Ready", _condition("Ready"), description="whether the guest runs and is ready"),
    ),
)  # fmt: skip
VMI = Kind(
    _KV, "VirtualMachineInstance", "virtualmachineinstances", ("v1",),
    "kubevirt.VirtualMachineInstance", short=("vmi", "vmis"), categories=("all",), custom=True,
    selectable=("status.nodeName", "status.phase"),
    columns=(
        AGE,
        Column("Phase", ".status.phase"),
        Column("IP", ".status.interfaces[0].ipAddress"),
        Column("NodeName", ".status.nodeName"),
        Column("Ready", _condition("Ready")),
        Column("Live-Migratable", _condition("LiveMigratable"), priority=1),
        Column("Paused", _condition("Paused"), priority=1),
    ),
)  # fmt: skip
MIGRATION = Kind(
    _KV, "VirtualMachineInstanceMigration", "virtualmachineinstancemigrations", ("v1",),
    "kubevirt.VirtualMachineInstanceMigration", short=("vmim", "vmims"), categories=("all",),
    custom=True, subresources=(STATUS,), selectable=("spec.vmiName", "status.phase"),
    columns=(
        Column("Phase", ".status.phase", description="how far it is"),
        Column("VMI", ".spec.vmiName", description="the instance that moves"),
    ),
)  # fmt: skip
KUBEVIRT = Kind(
    _KV, "KubeVirt", "kubevirts", ("v1",), "kubevirt.KubeVirt", short=("kv", "kvs"),
    categories=("all",), custom=True, subresources=(STATUS,),
    columns=(AGE, Column("Phase", ".status.phase")),
)  # fmt: skip


def _instancetype(kind: str, plural: str, short: tuple[str, ...], namespaced: bool) -> Kind:
    sizes = kind.endswith("Instancetype")
    return Kind(
        "instancetype.kubevirt.io", kind, plural, ("v1beta2", "v1beta1"), f"instancetype.{kind}",
        storage="v1beta2", short=short, categories=("all",) if namespaced else (),
        namespaced=namespaced, custom=True,
        tables={"v1beta1": f"instancetype.{kind}", "v1beta2": f"instancetype_v1beta2.{kind}"},
        conversion=convert if sizes else None,
    )  # fmt: skip


INSTANCETYPE = _instancetype(
    "VirtualMachineInstancetype", "virtualmachineinstancetypes",
    ("vminstancetype", "vminstancetypes", "vmf", "vmfs"), True,
)  # fmt: skip
CLUSTER_INSTANCETYPE = _instancetype(
    "VirtualMachineClusterInstancetype", "virtualmachineclusterinstancetypes",
    ("vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"), False,
)  # fmt: skip
PREFERENCE = _instancetype(
    "VirtualMachinePreference", "virtualmachinepreferences",
    ("vmpref", "vmprefs", "vmp", "vmps"), True,
)  # fmt: skip
CLUSTER_PREFERENCE = _instancetype(
    "VirtualMachineClusterPreference", "virtualmachineclusterpreferences", ("vmcp", "vmcps"), False
)
DATA_VOLUME = Kind(
    "cdi.kubevirt.io", "DataVolume", "datavolumes", ("v1beta1",), "cdi.DataVolume",
    short=("dv", "dvs"), categories=("all",), custom=True, subresources=(STATUS,),
    selectable=("status.phase",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Progress", ".status.progress"),
        Column("Restarts", ".status.restartCount", "integer"),
        AGE,
    ),
)  # fmt: skip
MIGRATION_POLICY = Kind(
    "migrations.kubevirt.io", "MigrationPolicy", "migrationpolicies", ("v1alpha1",),
    "migrations.MigrationPolicy", namespaced=False, categories=("all",), custom=True,
    subresources=(STATUS,),
)  # fmt: skip

KINDS: tuple[Kind, ...] = (
    VM, VMI, MIGRATION, KUBEVIRT, INSTANCETYPE, CLUSTER_INSTANCETYPE, PREFERENCE,
    CLUSTER_PREFERENCE, DATA_VOLUME, MIGRATION_POLICY,
)  # fmt: skip

#: Everything `livevirt up` serves.
REGISTRY = Registry((*core.KINDS, *KINDS), ACTIONS)
