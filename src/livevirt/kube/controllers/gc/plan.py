"""Which objects depend on which, and what must happen to an object because of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from sys import intern

import msgspec

from livevirt.kube.controllers.stored import Header, OwnerReference
from livevirt.kube.store import Key

# ---------------------------------------------------------------- the index of dependents


class Index:
    """Objects that name owners, by the uid of the owner; knows no other object."""

    def __init__(self) -> None:
        self._owners: dict[Key, tuple[str, ...]] = {}
        self._dependents: dict[str, set[Key]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, key: Key) -> bool:
        return key in self._owners

    def put(self, key: Key, header: Header) -> None:
        """Index an object as it is now."""
        owners = tuple(owner.uid for owner in header.owners)
        if self._owners.get(key, ()) == owners:
            return
        self.remove(key)
        if owners:
            key = Key(intern(key.resource), intern(key.namespace), key.name)
            self._owners[key] = owners
            for uid in owners:
                self._dependents.setdefault(uid, set()).add(key)

    def remove(self, key: Key) -> None:
        """Forget an object that is gone."""
        for uid in self._owners.pop(key, ()):
            keys = self._dependents[uid]
            keys.discard(key)
            if not keys:
                del self._dependents[uid]

    def dependents(self, uid: str) -> list[Key]:
        """Return the objects that name the owner, in a stable order."""
        return sorted(self._dependents.get(uid, ()))

    def clear(self) -> None:
        """Forget everything."""
        self._owners.clear()
        self._dependents.clear()


# ---------------------------------------------------------------- the decision

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Owner(Enum):
    """What has become of an owner."""

    ALIVE = "alive"  # or of a kind we know nothing about
    GONE = "gone"  # no such object, or another one of that name
    WAITING = "waiting"  # it goes as soon as its dependents have gone


@dataclass(frozen=True, slots=True)
class Item:
    """An object and where it lies."""

    key: Key
    header: Header


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the decision depends on, read at one moment."""

    item: Item
    owners: tuple[Owner, ...]  # one for each of its owner references
    dependents: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object."""

    key: Key
    uid: str
    propagation: str


@dataclass(frozen=True, slots=True)
class SetOwners:
    """Give an object, if it is still of that version, these owner references."""

    item: Item
    owners: tuple[OwnerReference, ...]


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    """Give an object, if it is still of that version, these finalizers."""

    item: Item
    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Decide about another object too."""

    key: Key


Step = Delete | SetOwners | SetFinalizers | Look


def plan(seen: Facts) -> list[Step]:
    """List the steps for one object; they are done in order, and the first failure ends them."""
    header = seen.item.header
    if header.deleting and header.held_by(ORPHAN):
        return _orphan(seen)
    if header.deleting and header.held_by(FOREGROUND):
        return _empty(seen)
    if header.deleting or not header.owners:
        return []
    return _follow_owners(seen)


def _orphan(seen: Facts) -> list[Step]:
    """Let the dependents go their own way, then let the owner go."""
    uid = seen.item.header.uid
    freed: list[Step] = [
        SetOwners(each, tuple(o for o in each.header.owners if o.uid != uid))
        for each in seen.dependents
    ]
    return [*freed, _without(seen.item, ORPHAN)]


def _empty(seen: Facts) -> list[Step]:
    """Wait for the dependents that block; the others are sent off too but not waited for."""
    uid = seen.item.header.uid
    looks: list[Step] = [Look(d.key) for d in seen.dependents if not d.header.deleting]
    if any(_blocks(each.header, uid) for each in seen.dependents):
        return looks
    return [*looks, _without(seen.item, FOREGROUND)]


def _follow_owners(seen: Facts) -> list[Step]:
    item, header = seen.item, seen.item.header
    if Owner.ALIVE in seen.owners:
        kept = [o for o, state in zip(header.owners, seen.owners, strict=True)
                if state is Owner.ALIVE]  # fmt: skip
        return [SetOwners(item, tuple(kept))] if len(kept) < len(header.owners) else []
    if Owner.WAITING in seen.owners and seen.dependents:
        steps: list[Step] = []
        if any(d.header.deleting and d.header.held_by(FOREGROUND) for d in seen.dependents):
            # The owner may be waiting for us and we for it: one of them has to stop blocking.
            unblocked = (msgspec.structs.replace(o, block_owner_deletion=False)
                         for o in header.owners)  # fmt: skip
            steps.append(SetOwners(item, tuple(unblocked)))
        return [*steps, Delete(item.key, header.uid, "Foreground")]
    return [Delete(item.key, header.uid, _own_policy(header))]


def _own_policy(header: Header) -> str:
    """Return how an object wants its own dependents treated."""
    if header.held_by(ORPHAN):
        return "Orphan"
    return "Foreground" if header.held_by(FOREGROUND) else "Background"


def _blocks(header: Header, owner: str) -> bool:
    return any(o.uid == owner and o.block_owner_deletion for o in header.owners)


def _without(item: Item, finalizer: str) -> SetFinalizers:
    kept = (name for name in item.header.finalizers or () if name != finalizer)
    return SetFinalizers(item, tuple(kept))
