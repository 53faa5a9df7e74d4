from __future__ import annotations

import pytest

from livevirt.kube.controllers.quota import counted_kinds
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.vm import kinds as virt_kinds
from livevirt.vm.kinds import REGISTRY

COUNTED = {
    "given pods, then pods": ({"pods": "1"}, [core.POD]),
    "given compute, then pods": ({"requests.memory": "1Gi", "limits.cpu": "1"}, [core.POD]),
    "given storage, then claims": ({"requests.storage": "1Gi"}, [core.CLAIM]),
    "given a count, then that kind": (
        {"count/virtualmachines.kubevirt.io": "1"}, [virt_kinds.VM]),
    "given nothing, then nothing": ({}, []),
}  # fmt: skip


@pytest.mark.parametrize(("hard", "kinds"), COUNTED.values(), ids=COUNTED)
def test_only_what_a_quota_names_is_read(hard: dict[str, str], kinds: list[Kind]) -> None:
    assert counted_kinds(REGISTRY, {"spec": {"hard": hard}}) == kinds
