"""The rules of the kinds that virtual machines are made of, by the name of the resource."""

from __future__ import annotations

from livevirt.kube.objects.review import Rules
from livevirt.vm import kinds
from livevirt.vm.config.admission import KubeVirtRules
from livevirt.vm.instancetypes.admission import InstancetypeRules, PreferenceRules
from livevirt.vm.lifecycle.vm_admission import VirtualMachineRules
from livevirt.vm.lifecycle.vmi_admission import InstanceRules
from livevirt.vm.migration.admission import MigrationRules
from livevirt.vm.migration.policy import MigrationPolicyRules
from livevirt.vm.volumes.datavolume_admission import DataVolumeRules

RULES: dict[str, Rules] = {
    kinds.VM.resource: VirtualMachineRules(),
    kinds.VMI.resource: InstanceRules(),
    kinds.MIGRATION.resource: MigrationRules(),
    kinds.MIGRATION_POLICY.resource: MigrationPolicyRules(),
    kinds.KUBEVIRT.resource: KubeVirtRules(),
    kinds.DATA_VOLUME.resource: DataVolumeRules(),
    kinds.INSTANCETYPE.resource: InstancetypeRules(),
    kinds.CLUSTER_INSTANCETYPE.resource: InstancetypeRules(),
    kinds.PREFERENCE.resource: PreferenceRules(),
    kinds.CLUSTER_PREFERENCE.resource: PreferenceRules(),
}
