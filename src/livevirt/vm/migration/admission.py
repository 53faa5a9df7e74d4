"""Migrations: of a guest that can be moved, one at a time, and never changed afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from livevirt.kube.objects import conditions, metadata
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.field_error import FieldError, not_supported, required
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Review, Rules, keep
from livevirt.vm.kinds import MIGRATION, VMI
from livevirt.vm.kinds.support import is_component
from livevirt.vm.volumes.admission import wrong

FINALIZER = "kubevirt.io/migrationJobFinalize"
VMI_NAME = "kubevirt.io/vmi-name"  # the label by which the migrations of an instance are found
#: Place in the queue by `spec.priority`; without one it is 0.
PRIORITIES = {"system-critical": 100, "user-triggered": 50, "system-maintenance": 20}
_AT = "spec.vmiName"
_LABEL_MAX, _KEPT_PREFIX = 63, 54
_NOT_SUPPORTED = "FieldValueNotSupported"
_OTHER_CLUSTER = "migration to or from another cluster is not supported"


class MigrationRules(Rules):
    """What a VirtualMachineInstanceMigration must be."""

    def prepare(self, review: Review) -> None:
        """Label and hold a new one; keep the status of an old one from others than ourselves."""
        new, old = review.new, review.old
        if old is not None:
            if not is_component(review.user):
                keep(new, old, "status")
            return
        meta = new["metadata"]
        if name := new["spec"].get("vmiName"):
            meta["labels"] = {**(meta.get("labels") or {}), VMI_NAME: label_of(name)}
        if FINALIZER not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), FINALIZER]

    def validate(self, review: Review) -> list[FieldError]:
        """List why a guest may not be migrated like this, or what may not be changed."""
        new, old = review.new, review.old
        if review.subresource:
            return []
        if old is None:
            return [*_spec_errors(review), *_instance_errors(review)]
        if new["spec"] != old["spec"]:
            return [wrong("spec", "update of Migration object's spec is restricted")]
        return _label_errors(review)


def label_of(name: str) -> str:
    """Return an instance's name as a label, which has room for 63 characters."""
    if len(name) <= _LABEL_MAX:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_KEPT_PREFIX]}-{digest[:8]}"


def unfinished(migration: Object) -> bool:
    """Return whether a migration has not ended."""
    return status_of(migration).get("phase") not in FINAL


def _spec_errors(review: Review) -> Iterator[FieldError]:
    spec = review.new["spec"]
    for field in ("sendTo", "receive"):
        if spec.get(field) is not None:
            yield wrong(f"spec.{field}", _OTHER_CLUSTER, _NOT_SUPPORTED)
    priority = spec.get("priority")
    if priority and priority not in PRIORITIES:
        yield not_supported("spec.priority", priority, PRIORITIES)
    elif priority and not is_component(review.user):
        message = "only the controllers of the cluster may set a priority"
        yield wrong("spec.priority", message, "FieldValueForbidden")
    yield from metadata.validate_labels(spec.get("addedNodeSelector"), "spec.addedNodeSelector")


def _instance_errors(review: Review) -> Iterator[FieldError]:
    """Yield why the instance cannot be migrated now, with KubeVirt's messages."""
    name, namespace = review.new["spec"].get("vmiName"), review.new["metadata"]["namespace"]
    if not name:
        yield required(_AT, "name of the instance to migrate")
        return
    vmi = review.read.get(VMI, name, namespace)
    if vmi is None:
        yield wrong(_AT, f'the VMI "{namespace}/{name}" does not exist', "FieldValueNotFound")
        return
    status = status_of(vmi)
    if status.get("phase") in FINAL:
        yield wrong(_AT, "Cannot migrate VMI in finalized state.")
    elif "deletionTimestamp" in vmi["metadata"]:
        yield wrong(_AT, "Cannot migrate VMI that is being deleted.")
    migratable = conditions.find(status.get("conditions"), "LiveMigratable") or {}
    if migratable.get("status") == "False":
        reason, message = migratable.get("reason", ""), migratable.get("message", "")
        yield wrong(_AT, f"Cannot migrate VMI, Reason: {reason}, Message: {message}")
    for other in review.read.list(MIGRATION, namespace):
        if other["spec"].get("vmiName") == name and unfinished(other):
            job = other["metadata"]["name"]
            message = (
                f"in-flight migration detected. Active migration job ({job}) is currently already"
                f" in progress for VMI {name}."
            )
            yield wrong(_AT, message)
            return


def _label_errors(review: Review) -> list[FieldError]:
    """List a label that is lost or changed while something may look for it."""
    assert review.old is not None
    old, new = (obj["metadata"].get("labels") or {} for obj in (review.old, review.new))
    if not unfinished(review.old) or old.get(VMI_NAME) == new.get(VMI_NAME):
        return []
    message = f"label {VMI_NAME} cannot be changed while the migration is in flight"
    return [wrong("metadata.labels", message)]
