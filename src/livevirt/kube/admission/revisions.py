"""ControllerRevisions: what is recorded stays as it was."""

from __future__ import annotations

from livevirt.kube.objects.field_checks import immutable, not_negative
from livevirt.kube.objects.field_error import FieldError, required
from livevirt.kube.objects.review import Review, Rules


class RevisionRules(Rules):
    """What a ControllerRevision must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List missing or changed data and a number below zero."""
        new, old = review.new, review.old
        found = [] if new.get("data") is not None else [required("data", "data is mandatory")]
        found += not_negative("revision", new.get("revision"))
        if old is not None:
            found += immutable("data", new.get("data"), old.get("data"))
        return found
