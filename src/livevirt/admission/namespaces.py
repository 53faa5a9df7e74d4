"""Namespaces: the label with their name, the `kubernetes` finalizer, and how they end."""

from __future__ import annotations

import copy
from datetime import datetime

from livevirt.admission.doors import keep_other_half, stay
from livevirt.admission.refusal import forbidden
from livevirt.admission.review import Review, Rules
from livevirt.api import names
from livevirt.api.field_error import FieldError, invalid
from livevirt.api.kind import Kind
from livevirt.api.registry import NAMESPACE
from livevirt.api.request import Object
from livevirt.api.times import format_time
from livevirt.errors import Forbidden

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
        """Set finalizer, phase and label; refuse to delete a protected namespace."""
        new, old = review.new, review.old
        if review.verb == "delete":
            check_deletion(new["metadata"]["name"])
            return
        _label(new)  # a generated name is known only now
        if old is None:
            finalizers = new.setdefault("spec", {}).setdefault("finalizers", [])
            if FINALIZER not in finalizers:
                finalizers.append(FINALIZER)
            new["status"] = {"phase": "Active"}
        elif review.subresource == "finalize":
            stay(new, old, "status")
        else:
            keep_other_half(review)
            stay(new, old, "spec")

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


def check_deletion(name: str) -> None:
    """Refuse to delete a namespace the system cannot do without."""
    if name in PROTECTED:
        raise forbidden(NAMESPACE, name, "this namespace may not be deleted")


def deletion(namespace: Object, now: datetime) -> Object:
    """Return the namespace marked as going; emptying it is a controller's work."""
    marked = copy.deepcopy(namespace)
    marked["metadata"].setdefault("deletionTimestamp", format_time(now))
    marked.setdefault("status", {})["phase"] = "Terminating"
    return marked


def is_finished(namespace: Object) -> bool:
    """Whether nothing holds a deleted namespace any more, so that it can be removed."""
    meta = namespace["metadata"]
    held = meta.get("finalizers") or namespace.get("spec", {}).get("finalizers")
    return "deletionTimestamp" in meta and not held


def terminating(kind: Kind, name: str, namespace: str) -> Forbidden:
    """Return the refusal of new content in a namespace that is being deleted."""
    return forbidden(
        kind,
        name,
        f"unable to create new content in namespace {namespace} because it is being terminated",
        [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ],
    )


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
