"""Fact sheet 2.4: whether VMs keep naming what they were sized by."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.matchers import reference_policy, to_be_rewritten

from .instancetype_builders import a_type, a_vm, reference, taken

BOTH = {"instancetype": {"name": "small"}, "preference": {"name": "p"}}
HELD = {"instancetypeRef": reference(taken(a_type("small")))}
POLICIES: dict[str, tuple[Object, str, bool]] = {
    "2.4 reference": (a_vm(**BOTH), "reference", False),
    "2.4 expand": (a_vm(**BOTH), "expand", True),
    "2.4 expand, but a revision is held": (a_vm(status=HELD, **BOTH), "expand", False),
    "2.4 expandAll": (a_vm(**BOTH), "expandAll", True),
    "2.4 expandAll, and a revision is held": (a_vm(status=HELD, **BOTH), "expandAll", True),
    "2.4 nothing to expand": (a_vm(), "expandAll", False),
}


@pytest.mark.parametrize(("vm", "policy", "rewritten"), POLICIES.values(), ids=POLICIES)
def test_policy(vm: Object, policy: str, rewritten: bool) -> None:
    assert to_be_rewritten(vm, policy) is rewritten


def test_the_cluster_says_the_policy() -> None:
    settings = {"spec": {"configuration": {"instancetype": {"referencePolicy": "expand"}}}}
    assert reference_policy(settings) == "expand"
    assert reference_policy(None) == "reference"
