from __future__ import annotations

import pytest

from livevirt.api import registry
from livevirt.api.kind import Kind
from livevirt.controllers.quota import counted_kinds

COUNTED = {
    "given pods, then pods": ({"pods": "1"}, [registry.POD]),
    "given compute, then pods": ({"requests.memory": "1Gi", "limits.cpu": "1"}, [registry.POD]),
    "given storage, then claims": ({"requests.storage": "1Gi"}, [registry.CLAIM]),
    "given a count, then that kind": (
        {"count/virtualmachines.kubevirt.io": "1"}, [registry.VM]),
    "given nothing, then nothing": ({}, []),
}  # fmt: skip


@pytest.mark.parametrize(("hard", "kinds"), COUNTED.values(), ids=COUNTED)
def test_only_what_a_quota_names_is_read(hard: dict[str, str], kinds: list[Kind]) -> None:
    assert counted_kinds({"spec": {"hard": hard}}) == kinds
