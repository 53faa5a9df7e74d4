"""Migration settings: the cluster's configuration and the MigrationPolicy that matches best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from livevirt.kube.objects.request import Object
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
