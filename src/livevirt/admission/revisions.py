"""ControllerRevisions: what is recorded stays as it was."""

from __future__ import annotations

from livevirt.admission.checks import immutable, not_negative
from livevirt.admission.review import Review, Rules
from livevirt.api.field_error import FieldError, required


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
