"""MigrationPolicies: their admission, and the settings a migration is run with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from livevirt.kube.objects import metadata
from livevirt.kube.objects.field_checks import not_negative, quantity
from livevirt.kube.objects.field_error import FieldError, invalid
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules
from livevirt.vm.migration.queue import Limits

#: KubeVirt's defaults. `maxDowntimeMs` is left to QEMU, whose own limit is the stricter one.
DEFAULTS: Mapping[str, Any] = {
    "allowAutoConverge": False,
    "allowPostCopy": False,
    "allowWorkloadDisruption": False,
    "bandwidthPerMigration": "0",  # unlimited
    "completionTimeoutPerGiB": 150,
    "disableTLS": False,
    "nodeDrainTaintKey": "kubevirt.io/drain",
    "parallelMigrationsPerCluster": 5,
    "parallelOutboundMigrationsPerNode": 2,
    "progressTimeout": 150,
    "unsafeMigrationOverride": False,
    "utilityVolumesTimeout": 150,
}
_BY_POLICY = (
    "allowAutoConverge", "allowPostCopy", "allowWorkloadDisruption", "bandwidthPerMigration",
    "completionTimeoutPerGiB", "experimental", "maxDowntimeMs",
)  # fmt: skip


def settings(kubevirt: Object | None) -> Object:
    """Return the cluster's settings, complete with defaults."""
    spec = (kubevirt or {}).get("spec") or {}
    given = (spec.get("configuration") or {}).get("migrations") or {}
    return _overridden(dict(DEFAULTS), given)


def limits(kubevirt: Object | None) -> Limits:
    """Return how many migrations may run in parallel."""
    found = settings(kubevirt)
    return Limits(found["parallelMigrationsPerCluster"], found["parallelOutboundMigrationsPerNode"])


def best(policies: Iterable[Object], vmi: Object, namespace: Object | None) -> Object | None:
    """Return the MigrationPolicy for an instance, if any matches.

    The one that selects by the most labels, then by the most labels of the instance, then the
    first by name.
    """
    own = vmi["metadata"].get("labels") or {}
    namespace_labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    matching = []
    for policy in policies:
        selectors = policy["spec"].get("selectors") or {}
        of_vmi = selectors.get("virtualMachineInstanceSelector") or {}
        of_namespace = selectors.get("namespaceSelector") or {}
        if of_vmi.items() <= own.items() and of_namespace.items() <= namespace_labels.items():
            rank = (-len(of_vmi) - len(of_namespace), -len(of_vmi), policy["metadata"]["name"])
            matching.append((rank, policy))
    return min(matching, key=lambda each: each[0])[1] if matching else None


def effective(kubevirt: Object | None, policy: Object | None) -> Object:
    """Return the settings of one migration: the cluster's, overridden by a policy's."""
    given = (policy or {"spec": {}})["spec"]
    return _overridden(settings(kubevirt), {name: given.get(name) for name in _BY_POLICY})


def _overridden(settings: Object, given: Mapping[str, Any]) -> Object:
    """Return settings overridden by others; `allowPostCopy` implies `allowWorkloadDisruption`."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if "allowPostCopy" in chosen:
        chosen.setdefault("allowWorkloadDisruption", chosen["allowPostCopy"])
    return {**settings, **chosen}


_IDLE = "stored but ignored by livevirt"
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
    """Return the warning on fields of a policy that have no effect."""
    found = []
    if spec.get("allowPostCopy"):
        stops = spec.get("allowWorkloadDisruption") in (None, True)
        found.append(f"spec.allowPostCopy: {_STOPS if stops else _IDLE}")
    if spec.get("experimental"):
        found.append(f"spec.experimental: {_IDLE}")
    return found
