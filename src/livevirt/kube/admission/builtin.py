"""The rules of every built-in kind, by the name of its resource, and those of namespaces."""

from __future__ import annotations

from livevirt.kube.admission.claims import ClaimRules
from livevirt.kube.admission.limit_ranges import LimitRangeRules
from livevirt.kube.admission.pods import PodRules
from livevirt.kube.admission.priority_classes import PriorityClassRules
from livevirt.kube.admission.quotas import QuotaRules
from livevirt.kube.admission.secrets import ConfigMapRules, SecretRules
from livevirt.kube.admission.services import ServiceRules
from livevirt.kube.admission.simple_kinds import (
    BindingRules,
    EndpointSliceRules,
    EventRules,
    LeaseRules,
    NodeRules,
    RevisionRules,
    RoleRules,
    ServiceAccountRules,
)
from livevirt.kube.admission.volumes import StorageClassRules, VolumeRules
from livevirt.kube.objects import core, names
from livevirt.kube.objects.core import NAMESPACE
from livevirt.kube.objects.field_error import FieldError, invalid
from livevirt.kube.objects.refusals import forbidden
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules, keep

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"
PROTECTED = frozenset({"default", "kube-system", "kube-public"})


class NamespaceRules(Rules):
    """What a Namespace must be."""

    name_rule = staticmethod(names.validate_dns1123_label)

    def default(self, obj: Object) -> None:
        """Label the namespace with its name, so that selectors can choose it."""
        _label(obj)

    def prepare(self, review: Review) -> None:
        """Set finalizer, phase and label; only `finalize` may change the finalizers later."""
        new, old = review.new, review.old
        _label(new)
        if old is None:
            finalizers = new.setdefault("spec", {}).setdefault("finalizers", [])
            if FINALIZER not in finalizers:
                finalizers.append(FINALIZER)
            new["status"] = {"phase": "Active"}
        elif review.subresource != "finalize":
            keep(new, old, "spec")

    def validate(self, review: Review) -> list[FieldError]:
        """List bad finalizers and a phase that does not fit the deletion timestamp."""
        new = review.new
        found = [
            invalid(f"spec.finalizers[{at}]", finalizer, why)
            for at, finalizer in enumerate(new.get("spec", {}).get("finalizers") or [])
            for why in names.validate_qualified_name(finalizer)
        ]
        if review.subresource == "status":
            found += _phase_errors(new)
        return found

    def through(self, subresource: str, review: Review) -> None:
        """Keep in `review.new` only what a write to this subresource may change, in place."""
        if subresource == "finalize" and review.old is not None:
            keep(review.new, review.old, "status")
        else:
            super().through(subresource, review)

    def held(self, obj: Object) -> bool:
        """Return whether the namespace still has its finalizer."""
        return bool((obj.get("spec") or {}).get("finalizers"))

    def check_delete(self, review: Review) -> None:
        """Refuse to delete a namespace the system cannot do without."""
        name = review.new["metadata"]["name"]
        if name in PROTECTED:
            raise forbidden(NAMESPACE, name, "this namespace may not be deleted")

    def on_marked(self, obj: Object) -> None:
        """Show that the namespace is going; its controller needs no period of grace."""
        obj.setdefault("status", {})["phase"] = "Terminating"
        obj["metadata"].pop("deletionGracePeriodSeconds", None)


def _label(namespace: Object) -> None:
    meta = namespace.setdefault("metadata", {})
    if name := meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name}


def _phase_errors(namespace: Object) -> list[FieldError]:
    going = "deletionTimestamp" in namespace["metadata"]
    phase = namespace.get("status", {}).get("phase", "")
    if phase == ("Terminating" if going else "Active"):
        return []
    rule = (
        "may only be 'Terminating' if `deletionTimestamp` is not empty"
        if going
        else "may only be 'Active' if `deletionTimestamp` is empty"
    )
    return [invalid("status.phase", phase, rule)]


_EVENTS = EventRules()

RULES: dict[str, Rules] = {
    core.NAMESPACE.resource: NamespaceRules(),
    core.NODE.resource: NodeRules(),
    core.POD.resource: PodRules(),
    core.CLAIM.resource: ClaimRules(),
    core.VOLUME.resource: VolumeRules(),
    core.SERVICE.resource: ServiceRules(),
    core.SECRET.resource: SecretRules(),
    core.CONFIG_MAP.resource: ConfigMapRules(),
    core.SERVICE_ACCOUNT.resource: ServiceAccountRules(),
    core.EVENT.resource: _EVENTS,
    core.EVENT_VIEW.resource: _EVENTS,  # given the event in its core form
    core.QUOTA.resource: QuotaRules(),
    core.LIMIT_RANGE.resource: LimitRangeRules(),
    core.REVISION.resource: RevisionRules(),
    core.LEASE.resource: LeaseRules(),
    core.ENDPOINT_SLICE.resource: EndpointSliceRules(),
    core.STORAGE_CLASS.resource: StorageClassRules(),
    core.PRIORITY_CLASS.resource: PriorityClassRules(),
    core.ROLE.resource: RoleRules(namespaced=True),
    core.CLUSTER_ROLE.resource: RoleRules(namespaced=False),
    core.ROLE_BINDING.resource: BindingRules(namespaced=True),
    core.CLUSTER_ROLE_BINDING.resource: BindingRules(namespaced=False),
}
