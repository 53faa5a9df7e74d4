from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.errors import Conflict
from livevirt.node.guest_endpoints import GuestEndpoints

from .moving_qemu import Qmp, a_guest


def an_agent(guest: Any, *, leaving: bool) -> Any:
    return SimpleNamespace(guest=lambda *_: guest, is_leaving=lambda *_: leaving)


@pytest.mark.parametrize("what", ["pause", "unpause", "reset", "soft_reboot"])
async def test_a_guest_on_its_way_is_not_stopped_resumed_or_reset(what: str) -> None:
    """Its source may have sent it whole: what is done there is lost, or wakes a second guest."""
    qmp = Qmp("postmigrate", "completed")
    endpoints = GuestEndpoints([an_agent(a_guest(qmp), leaving=True)])
    with pytest.raises(Conflict):
        await getattr(endpoints, what)("default", "web")
    assert qmp.told == []
