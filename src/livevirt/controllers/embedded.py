"""The controllers a bare API server needs when no cluster runs them for us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from livevirt.client.interface import Client
from livevirt.control.clock import Now
from livevirt.controllers.feed import Feed
from livevirt.controllers.informers import Informers
from livevirt.store import Store


@dataclass(frozen=True, slots=True)
class Shared:
    """What every controller is built from."""

    client: Client
    store: Store
    now: Now
    informers: Informers
    feed: Feed


#: Builds a controller and returns what runs it until cancelled.
Factory = Callable[[Shared], Coroutine[Any, Any, None]]

FACTORIES: tuple[Factory, ...] = ()


async def run(client: Client, store: Store, now: Now, extra: Sequence[Factory] = ()) -> None:
    """Run the controllers, and those of `extra`, until cancelled."""
    shared = Shared(client, store, now, Informers(client), Feed(store))
    async with asyncio.TaskGroup() as group:
        for factory in (*FACTORIES, *extra):
            group.create_task(factory(shared))
        shared.informers.start(group)
        group.create_task(shared.feed.run(), name="feed")
