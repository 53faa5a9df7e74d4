"""What a namespace demands of the pods of its guests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from livevirt.kube.objects.request import Object
from livevirt.kube.objects.selector import SelectorError, label_selector
from livevirt.vm.spec.resources import Namespace

MEMORY_RATIO = "alpha.kubevirt.io/auto-memory-limits-ratio"  # a label of the namespace
#: The annotation of a pod that names the limits its namespace demanded when it was made.
DEMANDED = "livevirt.io/demanded-limits"
_USUAL_RATIO = Decimal(2)


def namespace_of(
    quotas: Iterable[Object], namespace: Object | None, kubevirt: Object | None
) -> Namespace:
    """Return what a namespace with these quotas and labels demands, by the cluster's settings."""
    hard = {name for quota in quotas for name in (quota.get("spec") or {}).get("hard") or ()}
    labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    return Namespace(
        limits_cpu="limits.cpu" in hard or _limited(labels, kubevirt),
        limits_memory="limits.memory" in hard,
        memory_ratio=_ratio(labels.get(MEMORY_RATIO, "")),
    )


def demanded(namespace: Namespace) -> dict[str, str]:
    """Return the annotation of a new pod, nothing if no limits are demanded of it."""
    asked = {"cpu": namespace.limits_cpu, "memory": namespace.limits_memory}
    names = ",".join(name for name, there in asked.items() if there)
    return {DEMANDED: names} if names else {}


def as_started(namespace: Namespace, pod: Object | None) -> Namespace:
    """Return what a namespace demands of a pod that is there.

    The limits it was made with stay, and must go on following the guest's size, also when nobody
    demands them any more.
    """
    if pod is None:
        return namespace
    names = (pod["metadata"].get("annotations") or {}).get(DEMANDED, "").split(",")
    return replace(
        namespace,
        limits_cpu=namespace.limits_cpu or "cpu" in names,
        limits_memory=namespace.limits_memory or "memory" in names,
    )


def _limited(labels: dict[str, str], kubevirt: Object | None) -> bool:
    """Tell whether the cluster gives guests of namespaces with such labels a CPU limit."""
    settings = ((kubevirt or {}).get("spec") or {}).get("configuration") or {}
    try:
        return label_selector(settings.get("autoCPULimitNamespaceLabelSelector")).matches(labels)
    except SelectorError:
        return False  # it selects nothing that could be named


def _ratio(text: str) -> Decimal:
    try:
        ratio = Decimal(text or _USUAL_RATIO)
    except InvalidOperation:
        return _USUAL_RATIO
    return ratio if ratio.is_finite() and ratio >= 1 else _USUAL_RATIO
