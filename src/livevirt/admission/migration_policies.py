"""MigrationPolicies: labels that can match, and settings that can be followed."""

from __future__ import annotations

from livevirt.admission.checks import not_negative, quantity
from livevirt.admission.review import Review, Rules
from livevirt.api import metadata
from livevirt.api.field_error import FieldError, invalid

_NOT_ACTED_ON = ("allowPostCopy", "experimental")
LONGEST_DOWNTIME = 2_000_000  # milliseconds, the most QEMU takes


class MigrationPolicyRules(Rules):
    """What a MigrationPolicy must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the policy."""
        if review.subresource:
            return []
        spec = review.new["spec"]
        for name in _NOT_ACTED_ON:
            if spec.get(name):
                review.warnings.append(f"spec.{name}: kept, but livevirt does not act on it")
        selectors = spec.get("selectors") or {}
        found: list[FieldError] = []
        for name in ("namespaceSelector", "virtualMachineInstanceSelector"):
            found += metadata.validate_labels(selectors.get(name), f"spec.selectors.{name}")
        at = "spec.completionTimeoutPerGiB"
        found += not_negative(at, spec.get("completionTimeoutPerGiB"))
        if (bandwidth := spec.get("bandwidthPerMigration")) is not None:
            found += quantity("spec.bandwidthPerMigration", "bandwidth", str(bandwidth))
        downtime = spec.get("maxDowntimeMs")
        if downtime is not None and not 1 <= downtime <= LONGEST_DOWNTIME:
            why = f"must be between 1 and {LONGEST_DOWNTIME}"
            found.append(invalid("spec.maxDowntimeMs", downtime, why))
        return found
