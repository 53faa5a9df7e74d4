"""What a change of size costs, and who has too little left for it."""

from __future__ import annotations

import pytest

from livevirt.api.quantity import parse
from livevirt.rollout.case import Bound
from livevirt.rollout.growth import amounts, growth, shortages
from livevirt.rollout.resources import Compute

SMALL = Compute({"cpu": "100m", "memory": "1Gi"}, {"memory": "2Gi"}, 0)
LARGE = Compute({"cpu": "300m", "memory": "1024Mi"}, {"memory": "3Gi"}, 0)


def test_amounts_are_named_as_quotas_name_them() -> None:
    assert {name: str(amount) for name, amount in amounts(SMALL).items()} == {
        "cpu": "100m",
        "requests.cpu": "100m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.memory": "2Gi",
    }


def test_growth_is_the_difference_either_way() -> None:
    def told(before: Compute, after: Compute) -> dict[str, str]:
        return {name: str(more) for name, more in growth(before, after).items()}

    assert told(SMALL, LARGE) == {"cpu": "200m", "requests.cpu": "200m", "limits.memory": "1Gi"}
    assert told(LARGE, SMALL) == {"cpu": "-200m", "requests.cpu": "-200m", "limits.memory": "-1Gi"}
    assert told(SMALL, SMALL) == {}


SHORT: dict[str, tuple[dict[str, str], str]] = {
    "enough": ({"cpu": "200m"}, ""),
    "a little too little": ({"cpu": "199m"}, "ResourceQuota team lacks 1m of cpu"),
    "something else": ({"limits.cpu": "0"}, ""),
    "two things": (
        {"cpu": "0", "limits.memory": "512Mi"},
        "ResourceQuota team lacks 200m of cpu, 512Mi of limits.memory",
    ),
    "less than nothing of what does not grow": (
        {"memory": "-64Mi"},
        "ResourceQuota team lacks 64Mi of memory",
    ),
}


@pytest.mark.parametrize(("left", "words"), SHORT.values(), ids=SHORT)
def test_what_is_missing_is_told(left: dict[str, str], words: str) -> None:
    bound = Bound("ResourceQuota", "team", {name: parse(text) for name, text in left.items()})
    found = shortages(growth(SMALL, LARGE), (bound,))
    assert [text for _, text in found] == ([words] if words else [])


def test_what_shrinks_needs_no_more_than_is_owed() -> None:
    shrinks = growth(LARGE, SMALL)
    assert not list(shortages(shrinks, (Bound("Node", "a", {"cpu": parse("-200m")}),)))
    assert list(shortages(shrinks, (Bound("Node", "a", {"cpu": parse("-201m")}),)))
