"""What a namespace demands of its guests' pods."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.spec import resources
from livevirt.vm.spec.resources import MEMORY_RATIO, Namespace, namespace_of


def a_quota(*hard: str) -> Object:
    return {"metadata": {"name": "team"}, "spec": {"hard": dict.fromkeys(hard, "8")}}


QUOTAS = {
    "no quota": ([], Namespace()),
    "an empty quota": ([{"metadata": {"name": "team"}}], Namespace()),
    "a quota on requests": ([a_quota("requests.cpu", "memory")], Namespace()),
    "a quota on CPU limits": ([a_quota("limits.cpu")], Namespace(limits_cpu=True)),
    "a quota on memory limits": ([a_quota("limits.memory")], Namespace(limits_memory=True)),
    "one quota on each": ([a_quota("limits.cpu"), a_quota("limits.memory")], Namespace(True, True)),
}


@pytest.mark.parametrize(("quotas", "expected"), QUOTAS.values(), ids=QUOTAS)
def test_a_quota_on_limits_demands_limits(quotas: list[Object], expected: Namespace) -> None:
    assert namespace_of(quotas, None, None) == expected


@pytest.mark.parametrize(
    ("label", "ratio"),
    [
        ("", "2"),
        ("1.5", "1.5"),
        ("1", "1"),
        ("0.5", "2"),
        ("much", "2"),
        ("NaN", "2"),
        ("inf", "2"),
    ],
)
def test_its_label_tells_how_far_memory_limits_exceed_requests(label: str, ratio: str) -> None:
    labelled = {"metadata": {"labels": {MEMORY_RATIO: label}}}
    assert namespace_of([], labelled, None).memory_ratio == Decimal(ratio)


SELECTORS: dict[str, tuple[Any, bool]] = {
    "none": (None, False),
    "every namespace": ({}, True),
    "a label it has": ({"matchLabels": {"team": "a"}}, True),
    "a label it has not": ({"matchLabels": {"team": "b"}}, False),
    "an expression": ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
    "what is none": ({"matchExpressions": [{"key": "team", "operator": "Likes"}]}, False),
}


@pytest.mark.parametrize(("selector", "limited"), SELECTORS.values(), ids=SELECTORS)
def test_the_cluster_selects_namespaces_whose_guests_get_cpu_limits(
    selector: Any, limited: bool
) -> None:
    labelled = {"metadata": {"labels": {"team": "a"}}}
    settings = {"autoCPULimitNamespaceLabelSelector": selector}
    found = namespace_of([], labelled, {"spec": {"configuration": settings}})
    assert found == Namespace(limits_cpu=limited)


def test_limits_a_pod_was_made_with_go_on_following_the_guest() -> None:
    made = resources.demanded(Namespace(limits_cpu=True))
    pod = {"metadata": {"annotations": made}}
    assert resources.as_started(Namespace(), pod) == Namespace(limits_cpu=True)
    assert resources.as_started(Namespace(limits_memory=True), pod) == Namespace(
        limits_cpu=True, limits_memory=True
    )
    assert resources.demanded(Namespace()) == {}
    assert resources.as_started(Namespace(), {"metadata": {}}) == Namespace()
