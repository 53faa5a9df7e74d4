"""Who depends on whom, in as little memory as that takes: pure."""

from __future__ import annotations

from sys import intern

from livevirt.kube.controllers.header import Header
from livevirt.kube.store import Key


class Index:
    """Objects that name owners, by the uid of the owner; says nothing of any other object."""

    def __init__(self) -> None:
        self._owners: dict[Key, tuple[str, ...]] = {}
        self._dependents: dict[str, set[Key]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, key: Key) -> bool:
        return key in self._owners

    def put(self, key: Key, header: Header) -> None:
        """Take in an object as it is now."""
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
