"""What is stored: keys, objects, and pages of them."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """One object's place; `namespace` is empty for cluster-scoped resources."""

    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


class Stored(NamedTuple):
    """An object as written by the change numbered `revision`."""

    key: Key
    revision: int
    value: bytes


class Page(NamedTuple):
    """Part of a listing, in the byte order of namespace and name.

    `revision` is the snapshot the items come from; `more` says that items follow the last one
    given, and `remaining` how many.
    """

    items: list[Stored]
    revision: int
    more: bool
    remaining: int
