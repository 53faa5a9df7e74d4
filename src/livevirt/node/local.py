"""What a node holds of its pods: files, perhaps a process, perhaps a guest that answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

from livevirt.api.request import Object
from livevirt.control.key import Key
from livevirt.node import intent as intents
from livevirt.node import process as processes
from livevirt.node.adjuster import Adjuster
from livevirt.node.attacher import Attacher
from livevirt.node.cgroups import PodCgroup
from livevirt.node.ending import Ending
from livevirt.node.guest import Guest
from livevirt.node.intent import Intent
from livevirt.node.pod_dir import PodDir
from livevirt.node.pod_status import Waiting
from livevirt.node.process import Process

K = TypeVar("K", bound=Hashable)


class Local:
    """One pod's state on this node. All of it can be read again from files and processes."""

    def __init__(self, key: Key, folder: PodDir, wake: Callable[[], None]) -> None:
        self.key = key
        self.folder = folder
        self.intent: Intent | None = folder.read_intent()
        self.ending: Ending | None = folder.read_ending()
        self.guest: Guest | None = None
        self.adjuster: Adjuster | None = None  # there is one while there is a guest
        self.attacher: Attacher | None = None  # there is one once its volumes were looked at
        self.waiting: Waiting | None = None  # what a start waits for
        self.attempts = 0  # at getting what it waits for
        self.pressed: datetime | None = None  # when the power button last was
        self.claims: Mapping[str, Object] | None = None  # by volume; None is not read yet
        self.clean = False  # nothing but logs is left
        self.wake = wake

    @property
    def cgroup(self) -> PodCgroup:
        return PodCgroup(self.intent.cgroups if self.intent else ())

    @property
    def spawned(self) -> bool:
        return self.guest is not None or self.folder.spawned.exists()

    @property
    def rebooted(self) -> bool:
        return self.intent is not None and self.intent.boot_id != intents.boot_id()

    def look(self) -> bool:
        """Find the process, if there is one; return whether there is, known or not."""
        if self.guest is not None and not self.guest.ended:
            return True
        self._let_go()
        if self.intent is None or not self.folder.locked():
            return False
        found = self._find(self.intent)
        if found is not None:
            self.follow(found)
        return True

    def follow(self, process: Process) -> None:
        """Take the process for this pod's QEMU."""
        assert self.intent is not None
        self.folder.process.write_bytes(processes.note(process))
        self.guest = Guest(self.intent, process, self.wake, self.folder.complain)
        self.adjuster = Adjuster(self.guest, self.wake)

    def _find(self, intent: Intent) -> Process | None:
        found = processes.find(intent.argv, self.cgroup.pids())
        if found is not None:
            return found
        with contextlib.suppress(FileNotFoundError):
            noted = processes.noted(self.folder.process.read_bytes())
            if noted is not None and processes.alive(noted):
                return noted
        return processes.find(intent.argv, processes.all_pids())

    async def close(self) -> None:
        """Let go of the guest; it runs on."""
        guest = self.guest
        self._let_go()
        if guest is not None:
            await guest.close()

    def _let_go(self) -> None:
        for worker in (self.adjuster, self.attacher):
            if worker is not None:
                worker.stop()
        self.guest = self.adjuster = self.attacher = None


class Locals:
    """What a node holds of all its pods, found without looking through them."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Local] = {}
        self._by_key: dict[Key, dict[str, Local]] = {}  # a name may be given again
        self._by_vmi: dict[str, dict[str, Local]] = {}
        self._vmis: dict[str, str] = {}  # of which VMI, by uid

    def __iter__(self) -> Iterator[Local]:
        return iter(tuple(self._by_uid.values()))

    def get(self, uid: str) -> Local | None:
        """Return what there is of the pod of that uid."""
        return self._by_uid.get(uid)

    def of_key(self, key: Key) -> list[Local]:
        """Return what there is of pods of that name."""
        return list(self._by_key.get(key, {}).values())

    def of_vmi(self, uid: str) -> list[Local]:
        """Return what there is of pods for that VMI."""
        return list(self._by_vmi.get(uid, {}).values())

    def add(self, local: Local, vmi_uid: str) -> None:
        """Hold a pod that is for that VMI."""
        uid = local.folder.uid
        self._by_uid[uid], self._vmis[uid] = local, vmi_uid
        self._by_key.setdefault(local.key, {})[uid] = local
        self._by_vmi.setdefault(vmi_uid, {})[uid] = local

    def remove(self, local: Local) -> None:
        """Hold it no longer."""
        uid = local.folder.uid
        del self._by_uid[uid]
        _leave(self._by_key, local.key, uid)
        _leave(self._by_vmi, self._vmis.pop(uid), uid)


def _leave(index: dict[K, dict[str, Local]], value: K, uid: str) -> None:
    del index[value][uid]
    if not index[value]:
        del index[value]
