"""StorageClasses: how volumes are made; what they do cannot be changed later."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import immutable, named, one_of
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

RECLAIM_POLICIES = frozenset({"Delete", "Retain"})
BINDING_MODES = frozenset({"Immediate", "WaitForFirstConsumer"})


class StorageClassRules(Rules):
    """What a StorageClass must be."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Delete volumes with their claims and make them at once, unless told otherwise."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the class, and changes of what it does."""
        new, old = review.new, review.old
        provisioner = new.get("provisioner", "")
        found = named(
            "provisioner", provisioner, lambda name: names.validate_qualified_name(name.lower())
        )
        found += [
            invalid(f"parameters[{key}]", key, "field can not be empty.")
            for key in new.get("parameters") or ()
            if not key
        ]
        found += one_of("reclaimPolicy", new.get("reclaimPolicy", ""), RECLAIM_POLICIES)
        found += one_of("volumeBindingMode", new.get("volumeBindingMode", ""), BINDING_MODES)
        if old is not None:
            found += [
                forbidden(field, f"updates to {field} are forbidden.")
                for field in ("parameters", "provisioner", "reclaimPolicy")
                if new.get(field) != old.get(field)
            ]
            found += immutable(
                "volumeBindingMode", new.get("volumeBindingMode"), old.get("volumeBindingMode")
            )
        return found
