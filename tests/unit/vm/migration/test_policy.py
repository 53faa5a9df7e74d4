from __future__ import annotations

from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.migration.policy import DEFAULTS, best, effective, limits, settings
from livevirt.vm.migration.queue import Limits


def a_kubevirt(**migrations: Any) -> Object:
    return {"spec": {"configuration": {"migrations": migrations}}}


def a_policy(
    name: str, vmi: Object | None = None, namespace: Object | None = None, **spec: Any
) -> Object:
    selectors: Object = {}
    if vmi is not None:
        selectors["virtualMachineInstanceSelector"] = vmi
    if namespace is not None:
        selectors["namespaceSelector"] = namespace
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


VMI: Object = {"metadata": {"labels": {"app": "db", "tier": "gold"}}}
SPACE: Object = {"metadata": {"labels": {"team": "a", "zone": "x"}}}

CHOICES = {
    "given none, then none": ([], None),
    "given another label, then it does not fit": ([a_policy("p", {"app": "web"})], None),
    "given a label too many, then it does not fit": (
        [a_policy("p", {"app": "db", "os": "linux"})], None,
    ),
    "given more labels, then that one": (
        [a_policy("few", {"app": "db"}), a_policy("many", {"app": "db", "tier": "gold"})], "many",
    ),
    "given as many, then the one with more of the instance": (
        [a_policy("a", {}, {"team": "a"}), a_policy("b", {"app": "db"})], "b",
    ),
    "given no difference, then the first by name": (
        [a_policy("b", {"app": "db"}), a_policy("a", {"tier": "gold"})], "a",
    ),
    "given both selectors, then both must match": (
        [a_policy("p", {"app": "db"}, {"team": "b"})], None,
    ),
    "given no labels at all, then it fits everybody": ([a_policy("all")], "all"),
}  # fmt: skip


@pytest.mark.parametrize(("policies", "name"), CHOICES.values(), ids=CHOICES)
def test_the_best_policy(policies: list[Object], name: str | None) -> None:
    found = best(policies, VMI, SPACE)
    assert (found and found["metadata"]["name"]) == name


def test_given_nothing_then_the_settings_are_complete() -> None:
    assert settings(None) == dict(DEFAULTS)
    assert limits(None) == Limits(5, 2)


def test_given_settings_then_they_are_in_force_at_once() -> None:
    found = a_kubevirt(parallelMigrationsPerCluster=1, progressTimeout=7, network="mig")
    assert limits(found) == Limits(1, 2)
    assert (settings(found)["progressTimeout"], settings(found)["network"]) == (7, "mig")
    assert settings(found)["completionTimeoutPerGiB"] == 150


def test_given_a_policy_then_it_overrides_what_it_says_and_nothing_else() -> None:
    cluster = a_kubevirt(bandwidthPerMigration="64Mi", allowAutoConverge=True)
    chosen = a_policy("p", bandwidthPerMigration="1Mi", maxDowntimeMs=100)
    found = effective(cluster, chosen)
    assert (found["bandwidthPerMigration"], found["maxDowntimeMs"]) == ("1Mi", 100)
    assert found["allowAutoConverge"] is True
    assert "selectors" not in found
    assert "maxDowntimeMs" not in effective(cluster, None)


DISRUPTION = {
    "given nothing": ({}, {}, False),
    "given post-copy in the cluster": ({"allowPostCopy": True}, {}, True),
    "given post-copy in the policy": ({}, {"allowPostCopy": True}, True),
    "given a word of its own": (
        {"allowPostCopy": True, "allowWorkloadDisruption": False}, {}, False,
    ),
    "given a policy that takes post-copy back": (
        {"allowPostCopy": True}, {"allowPostCopy": False}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cluster", "policy", "allowed"), DISRUPTION.values(), ids=DISRUPTION)
def test_disruption_follows_post_copy(cluster: Object, policy: Object, allowed: bool) -> None:
    found = effective(a_kubevirt(**cluster), a_policy("p", **policy))
    assert found["allowWorkloadDisruption"] is allowed
