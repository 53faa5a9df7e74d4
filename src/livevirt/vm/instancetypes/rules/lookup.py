"""Looking objects up: the same decision over a store, over caches and over a network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object

T = TypeVar("T")
Fetch = Callable[[Kind, str, str], Awaitable[Object | None]]


class Lookup(Protocol):
    """What a decision may look up. Instance types come in the stored version."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, never to be changed, or None if there is none."""


class _Unread(Exception):
    def __init__(self, key: tuple[Kind, str, str]) -> None:
        self.key = key


class _Read:
    """Knows what is at hand or was fetched, and says what it was asked for beyond that."""

    def __init__(self, at_hand: Lookup | None) -> None:
        self.known: dict[tuple[Kind, str, str], Object | None] = {}
        self._at_hand = at_hand

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        key = (kind, name, namespace if kind.namespaced else "")
        if key in self.known:
            return self.known[key]
        found = self._at_hand.get(*key) if self._at_hand is not None else None
        if found is None:
            raise _Unread(key)
        return found


async def decide(decision: Callable[[Lookup], T], fetch: Fetch, at_hand: Lookup | None = None) -> T:
    """Return what a pure decision comes to, fetching what it looks up and is not at hand.

    The decision is made again after each object it lacked, so it must only depend on them. They
    are few, and a decision costs less than the fetch.
    """
    read = _Read(at_hand)
    while True:
        try:
            return decision(read)
        except _Unread as lacking:
            read.known[lacking.key] = await fetch(*lacking.key)
