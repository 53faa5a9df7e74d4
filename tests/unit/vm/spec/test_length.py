from __future__ import annotations

from typing import Any

import pytest

from livevirt.vm.spec.validation import MOST_ELEMENTS, length_errors

LISTS = {
    "spec.domain.devices.disks": lambda items: {"domain": {"devices": {"disks": items}}},
    "spec.domain.devices.interfaces": lambda items: {"domain": {"devices": {"interfaces": items}}},
    "spec.networks": lambda items: {"domain": {}, "networks": items},
    "spec.volumes": lambda items: {"domain": {}, "volumes": items},
}


@pytest.mark.parametrize("field", LISTS)
def test_given_a_list_beyond_the_limit_then_it_is_refused(field: str) -> None:
    def spec(length: int) -> dict[str, Any]:
        return LISTS[field]([{"name": f"n{number}"} for number in range(length)])

    assert length_errors("spec", spec(MOST_ELEMENTS)) == []
    (error,) = length_errors("spec", spec(MOST_ELEMENTS + 1))
    assert error.field == field
