"""MigrationPolicies: labels that can match, and settings that can be followed."""

from __future__ import annotations

from livevirt.kube.objects import metadata
from livevirt.kube.objects.field_checks import not_negative, quantity
from livevirt.kube.objects.field_error import FieldError, invalid
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

_IDLE = "kept, but livevirt does not act on it"
_STOPS = "there is no post-copy; the guest is stopped when time is up"
LONGEST_DOWNTIME = 2_000_000  # milliseconds, the most QEMU takes


class MigrationPolicyRules(Rules):
    """What a MigrationPolicy must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the policy."""
        if review.subresource:
            return []
        spec = review.new["spec"]
        review.warnings += _warnings(spec)
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


def _warnings(spec: Object) -> list[str]:
    """Say what a policy asks for in vain, and what comes of it."""
    found = []
    if spec.get("allowPostCopy"):
        stops = spec.get("allowWorkloadDisruption") in (None, True)
        found.append(f"spec.allowPostCopy: {_STOPS if stops else _IDLE}")
    if spec.get("experimental"):
        found.append(f"spec.experimental: {_IDLE}")
    return found
