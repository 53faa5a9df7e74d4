from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.errors import Conflict
from livevirt.node.doors import Doors

from .moving_qemu import Qmp, a_guest


def an_agent(guest: Any, *, moves: bool) -> Any:
    return SimpleNamespace(guest=lambda *_: guest, moves=lambda *_: moves)


@pytest.mark.parametrize("what", ["pause", "unpause", "reset", "soft_reboot"])
async def test_a_guest_on_its_way_is_not_stopped_resumed_or_reset(what: str) -> None:
    """Its source may have sent it whole: what is done there is lost, or wakes a second guest."""
    qmp = Qmp("postmigrate", "completed")
    doors = Doors([an_agent(a_guest(qmp), moves=True)])
    with pytest.raises(Conflict, match="is being migrated"):
        await getattr(doors, what)("default", "web")
    assert qmp.told == []
