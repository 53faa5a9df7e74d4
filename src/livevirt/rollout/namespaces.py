"""What a namespace demands of the pods of its guests."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from livevirt.api.request import Object
from livevirt.api.selector import SelectorError, label_selector
from livevirt.rollout.resources import Namespace

MEMORY_RATIO = "alpha.kubevirt.io/auto-memory-limits-ratio"  # a label of the namespace
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
