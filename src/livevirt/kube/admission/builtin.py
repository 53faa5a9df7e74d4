"""The rules of every built-in kind, by the name of its resource."""

from __future__ import annotations

from livevirt.kube.admission.claims import ClaimRules
from livevirt.kube.admission.limit_ranges import LimitRangeRules
from livevirt.kube.admission.namespaces import NamespaceRules
from livevirt.kube.admission.pods import PodRules
from livevirt.kube.admission.quotas import QuotaRules
from livevirt.kube.admission.rbac import BindingRules, RoleRules
from livevirt.kube.admission.secrets import ConfigMapRules, SecretRules
from livevirt.kube.admission.simple_kinds import (
    EventRules,
    LeaseRules,
    NodeRules,
    RevisionRules,
    ServiceAccountRules,
)
from livevirt.kube.admission.volumes import StorageClassRules, VolumeRules
from livevirt.kube.objects import core
from livevirt.kube.objects.review import Rules

_EVENTS = EventRules()

RULES: dict[str, Rules] = {
    core.NAMESPACE.resource: NamespaceRules(),
    core.NODE.resource: NodeRules(),
    core.POD.resource: PodRules(),
    core.CLAIM.resource: ClaimRules(),
    core.VOLUME.resource: VolumeRules(),
    core.SECRET.resource: SecretRules(),
    core.CONFIG_MAP.resource: ConfigMapRules(),
    core.SERVICE_ACCOUNT.resource: ServiceAccountRules(),
    core.EVENT.resource: _EVENTS,
    core.EVENT_VIEW.resource: _EVENTS,  # given the event in its core form
    core.QUOTA.resource: QuotaRules(),
    core.LIMIT_RANGE.resource: LimitRangeRules(),
    core.REVISION.resource: RevisionRules(),
    core.LEASE.resource: LeaseRules(),
    core.STORAGE_CLASS.resource: StorageClassRules(),
    core.ROLE.resource: RoleRules(namespaced=True),
    core.CLUSTER_ROLE.resource: RoleRules(namespaced=False),
    core.ROLE_BINDING.resource: BindingRules(namespaced=True),
    core.CLUSTER_ROLE_BINDING.resource: BindingRules(namespaced=False),
}
