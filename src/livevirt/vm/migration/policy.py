"""How a guest is migrated: the cluster's settings, and the policy that fits it best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from livevirt.kube.objects.request import Object
from livevirt.vm.migration.turn import Limits

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
    return _over(dict(DEFAULTS), given)


def limits(kubevirt: Object | None) -> Limits:
    """Return how many migrations may go on at a time."""
    found = settings(kubevirt)
    return Limits(found["parallelMigrationsPerCluster"], found["parallelOutboundMigrationsPerNode"])


def best(policies: Iterable[Object], vmi: Object, namespace: Object | None) -> Object | None:
    """Return the policy for an instance, if any fits.

    The one that selects by the most labels, then by the most labels of the instance, then the
    first by name.
    """
    own = vmi["metadata"].get("labels") or {}
    around = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    fitting = []
    for policy in policies:
        selectors = policy["spec"].get("selectors") or {}
        of_vmi = selectors.get("virtualMachineInstanceSelector") or {}
        of_namespace = selectors.get("namespaceSelector") or {}
        if of_vmi.items() <= own.items() and of_namespace.items() <= around.items():
            rank = (-len(of_vmi) - len(of_namespace), -len(of_vmi), policy["metadata"]["name"])
            fitting.append((rank, policy))
    return min(fitting, key=lambda each: each[0])[1] if fitting else None


def effective(kubevirt: Object | None, policy: Object | None) -> Object:
    """Return the settings of one migration: the cluster's, and over them a policy's."""
    given = (policy or {"spec": {}})["spec"]
    return _over(settings(kubevirt), {name: given.get(name) for name in _BY_POLICY})


def _over(settings: Object, given: Mapping[str, Any]) -> Object:
    """Return settings with others over them; who allows post-copy allows disruption, if silent."""
    said = {name: value for name, value in given.items() if value is not None}
    if "allowPostCopy" in said:
        said.setdefault("allowWorkloadDisruption", said["allowPostCopy"])
    return {**settings, **said}
