"""The rules of the kinds that virtual machines are made of, by the name of the resource."""

from __future__ import annotations

from livevirt.admission.datavolumes import DataVolumeRules
from livevirt.admission.instancetypes import InstancetypeRules
from livevirt.admission.kubevirt import KubeVirtRules
from livevirt.admission.migration_policies import MigrationPolicyRules
from livevirt.admission.migrations import MigrationRules
from livevirt.admission.preferences import PreferenceRules
from livevirt.admission.review import Rules
from livevirt.admission.vm import VirtualMachineRules
from livevirt.admission.vmi import InstanceRules
from livevirt.api import registry

RULES: dict[str, Rules] = {
    registry.VM.resource: VirtualMachineRules(),
    registry.VMI.resource: InstanceRules(),
    registry.MIGRATION.resource: MigrationRules(),
    registry.MIGRATION_POLICY.resource: MigrationPolicyRules(),
    registry.KUBEVIRT.resource: KubeVirtRules(),
    registry.DATA_VOLUME.resource: DataVolumeRules(),
    registry.INSTANCETYPE.resource: InstancetypeRules(),
    registry.CLUSTER_INSTANCETYPE.resource: InstancetypeRules(),
    registry.PREFERENCE.resource: PreferenceRules(),
    registry.CLUSTER_PREFERENCE.resource: PreferenceRules(),
}
