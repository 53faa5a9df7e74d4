"""Objects as the server gives them: what one says of itself, and the instance of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livevirt.errors import NotFound
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

if TYPE_CHECKING:
    from livevirt.cli.session import Session


def status_of(obj: Object | None) -> Object:
    """Return the status of an object, {} if there is none."""
    return (obj or {}).get("status") or {}


async def instance(session: Session, name: str) -> Object | None:
    """Return the instance of a name, if there is one."""
    try:
        return await session.client.get(kinds.VMI, name, session.namespace)
    except NotFound:
        return None
