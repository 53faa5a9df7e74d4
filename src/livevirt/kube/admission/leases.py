"""Leases: made by PUT, and from then on updated only with the version that was read."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import named, not_negative
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid
from livevirt.kube.objects.review import Review, Rules


class LeaseRules(Rules):
    """What a Lease must be."""

    put_creates = True
    unconditional_update = False  # a blind PUT would steal the lease

    def validate(self, review: Review) -> list[FieldError]:
        """List durations and counts that cannot be, and a holder preferred by no strategy."""
        spec = review.new.get("spec") or {}
        found = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            found.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        found += not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))
        strategy = spec.get("strategy") or ""
        found += named("spec.strategy", strategy, names.validate_qualified_name, needed=False)
        if spec.get("preferredHolder") and not strategy:
            found.append(
                forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")
            )
        return found
