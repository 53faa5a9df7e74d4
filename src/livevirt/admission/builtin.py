"""The rules of every built-in kind, by the name of its resource."""

from __future__ import annotations

from livevirt.admission.claims import ClaimRules
from livevirt.admission.configmaps import ConfigMapRules
from livevirt.admission.events import EventRules
from livevirt.admission.leases import LeaseRules
from livevirt.admission.limitranges import LimitRangeRules
from livevirt.admission.namespaces import NamespaceRules
from livevirt.admission.nodes import NodeRules
from livevirt.admission.pods import PodRules
from livevirt.admission.quotas import QuotaRules
from livevirt.admission.rbac import BindingRules, RoleRules
from livevirt.admission.review import Rules
from livevirt.admission.revisions import RevisionRules
from livevirt.admission.secrets import SecretRules
from livevirt.admission.serviceaccounts import ServiceAccountRules
from livevirt.admission.storageclasses import StorageClassRules
from livevirt.admission.volumes import VolumeRules
from livevirt.api import registry

_EVENTS = EventRules()

RULES: dict[str, Rules] = {
    registry.NAMESPACE.resource: NamespaceRules(),
    registry.NODE.resource: NodeRules(),
    registry.POD.resource: PodRules(),
    registry.CLAIM.resource: ClaimRules(),
    registry.VOLUME.resource: VolumeRules(),
    registry.SECRET.resource: SecretRules(),
    registry.CONFIG_MAP.resource: ConfigMapRules(),
    registry.SERVICE_ACCOUNT.resource: ServiceAccountRules(),
    registry.EVENT.resource: _EVENTS,
    registry.EVENT_VIEW.resource: _EVENTS,  # given the event in its core form
    registry.QUOTA.resource: QuotaRules(),
    registry.LIMIT_RANGE.resource: LimitRangeRules(),
    registry.REVISION.resource: RevisionRules(),
    registry.LEASE.resource: LeaseRules(),
    registry.STORAGE_CLASS.resource: StorageClassRules(),
    registry.ROLE.resource: RoleRules(namespaced=True),
    registry.CLUSTER_ROLE.resource: RoleRules(namespaced=False),
    registry.ROLE_BINDING.resource: BindingRules(namespaced=True),
    registry.CLUSTER_ROLE_BINDING.resource: BindingRules(namespaced=False),
}
