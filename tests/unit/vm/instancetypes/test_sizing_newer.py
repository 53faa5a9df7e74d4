"""What a VM says of an instance type that has changed since it took it."""

from __future__ import annotations

import pytest

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.resolution import Choice, Resolved
from livevirt.vm.instancetypes.sizing import NEWER, newer_condition
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE

VM = {"metadata": {"name": "web", "namespace": "default"}}
CURE = "`virtctl vm update-instance-type web virtualmachineclusterinstancetype/small`"


def a_type(uid: str, generation: int) -> Object:
    return {"metadata": {"name": "small", "uid": uid, "generation": generation}, "spec": {}}


class Live:
    def __init__(self, obj: Object | None) -> None:
        self._obj = obj

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self._obj


USED = Resolved(Choice(a_type("a", 1), CLUSTER_INSTANCETYPE, "r"))
CHANGED = {
    "edited": (a_type("a", 2), "is at generation 2, this VM has generation 1 of it"),
    "created again": (
        a_type("b", 1),
        "was deleted and created again, this VM has generation 1 of the deleted one",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("live", "_"), CHANGED.values(), ids=CHANGED)
def test_a_change_is_reported(live: Object, _: str) -> None:
    found = newer_condition(VM, USED, Live(live))
    assert found is not None
    assert (found["type"], found["status"]) == (NEWER, "True")
    assert found["reason"] == "InstancetypeChanged"


@pytest.mark.wording
@pytest.mark.parametrize(("live", "words"), CHANGED.values(), ids=CHANGED)
def test_a_change_is_reported_with_the_command_that_applies_it(live: Object, words: str) -> None:
    found = newer_condition(VM, USED, Live(live))
    assert found is not None
    assert found["message"] == f"instance type small {words}; {CURE} takes the newer one"


@pytest.mark.parametrize("live", [a_type("a", 1), None], ids=["the same", "gone"])
def test_without_a_change_there_is_nothing_to_tell(live: Object | None) -> None:
    assert newer_condition(VM, USED, Live(live)) is None
