"""What a node holds of its pods: files, perhaps a process, perhaps a guest that answers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from livevirt.kube.control.key import Key
from livevirt.node import intent as intents
from livevirt.node import pod_dir
from livevirt.node import process as processes
from livevirt.node.adjuster import Adjuster
from livevirt.node.arrival import Arrival
from livevirt.node.attacher import Attacher
from livevirt.node.cgroups import PodCgroup
from livevirt.node.departure import Departure
from livevirt.node.ending import Ending
from livevirt.node.guest import Guest
from livevirt.node.intent import Intent, UnknownIntent
from livevirt.node.pod_dir import PodDir
from livevirt.node.pod_status import Waiting
from livevirt.node.process import Process
from livevirt.node.reboot import Reboot
from livevirt.qemu.lifecycle import SENT_WHOLE, Standing

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)


class Local:
    """One pod's state on this node. All of it can be read again from files and processes."""

    def __init__(
        self, key: Key, folder: PodDir, wake: Callable[[], None], *, target: bool = False
    ) -> None:
        self.key = key
        self.folder = folder
        self.intent: Intent | None = folder.read_intent()
        self.ending: Ending | None = folder.read_ending()
        incoming = self.intent is not None and self.intent.incoming is not None
        self.target = target or incoming  # its guest comes from elsewhere
        self.guest: Guest | None = None
        self.adjuster: Adjuster | None = None  # there is one while there is a guest
        self.attacher: Attacher | None = None  # there is one once its volumes were looked at
        self.waiting: Waiting | None = None  # what a start waits for
        self.attempts = 0  # at getting what it waits for
        self.pressed: datetime | None = None  # when the power button last was
        self.arrival: Arrival | None = None  # while a guest is waited for
        self.departure: Departure | None = None  # while it is sent away
        self.clean = False  # nothing but logs is left
        self.wake = wake

    @property
    def cgroup(self) -> PodCgroup:
        return PodCgroup(self.intent.cgroups if self.intent else ())

    @property
    def arrived(self) -> bool:
        """Whether a guest that was to come from elsewhere has."""
        return self.folder.arrived.exists()

    @property
    def awaits(self) -> bool:
        """Whether a QEMU was started for a guest that has not come yet."""
        incoming = self.intent.incoming if self.intent else None
        return incoming is not None and not self.arrived

    def call_off(self) -> bool:
        """Have no guest come from now on; return whether none has. Decided at once."""
        if self.arrived:
            return False
        if self.arrival is not None:
            self.arrival.stop()
            self.arrival = None
        return True

    @property
    def has_left(self) -> bool:
        """Whether its guest is known to run elsewhere."""
        return self.folder.left.exists()

    @property
    def sends(self) -> bool:
        """Whether its guest is being sent: it may have been sent whole, and run elsewhere."""
        return self.folder.read_departure() is not None

    @property
    def standing(self) -> Standing | None:
        """How its guest stands. QEMU keeps a guest stopped that was sent in vain: it is paused."""
        found = self.guest.view.standing if self.guest is not None else None
        if found is not None and found.reason == SENT_WHOLE and not self.sends:
            return Standing("paused", found.reason)
        return found

    def hold_still(self) -> None:
        """Change nothing about the guest from now on; what was begun is planned again later."""
        for worker in (self.adjuster, self.attacher):
            if worker is not None:
                worker.stop()

    def go_on(self) -> None:
        """Follow its instance again, after it was held still."""
        self.departure = self.attacher = None
        self.adjuster = Adjuster(self.guest, self.wake) if self.guest is not None else None

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
        reboot = Reboot(self.folder.reboot)
        self.guest = Guest(self.intent, process, self.wake, self.folder.complain, reboot)
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
        self.hold_still()
        for mover in (self.arrival, self.departure):
            if mover is not None:
                mover.stop()
        self.guest = self.adjuster = self.attacher = self.arrival = self.departure = None


class Locals:
    """What a node holds of all its pods, found without looking through them."""

    def __init__(self, pods: Path, run: Path, wake: Callable[[Key], None]) -> None:
        """Hold nothing yet. Files are in these two directories; `wake` has a pod looked at."""
        self._pods, self._run, self._wake = pods, run, wake
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

    def vmi_uid(self, local: Local) -> str:
        """Return the uid of the VMI that a pod is for."""
        return self._vmis[local.folder.uid]

    def guest(self, namespace: str, vmi: str) -> Guest | None:
        """Return the guest of a VMI, if it is here."""
        for local in self.named(namespace, vmi):
            if local.guest is not None and not local.awaits and not local.has_left:
                return local.guest
        return None

    def named(self, namespace: str, vmi: str) -> Iterator[Local]:
        """Yield what there is of pods for VMIs of that name that were started."""
        for local in self:
            intent = local.intent
            if intent is not None and (intent.namespace, intent.vmi) == (namespace, vmi):
                yield local

    def adopt(self) -> Iterator[Local]:
        """Hold what an earlier run left, and yield it; whether it is wanted, the API will say."""
        for folder in pod_dir.all_in(self._pods, self._run):
            try:
                intent = folder.read_intent()
            except UnknownIntent as error:
                log.error("left alone", extra={"pod_uid": folder.uid, "error": str(error)})
                continue
            if intent is None:
                folder.remove()  # a start that came to nothing: an intent comes before a process
            else:
                key = Key(intent.namespace, intent.pod)
                yield self.hold(key, folder.uid, intent.vmi_uid)

    def hold(self, key: Key, uid: str, vmi_uid: str, *, target: bool = False) -> Local:
        """Hold a pod that is for that VMI, whose guest may come from elsewhere."""
        folder = PodDir(self._pods, self._run, uid)
        local = Local(key, folder, lambda: self._wake(key), target=target)
        self._by_uid[uid], self._vmis[uid] = local, vmi_uid
        self._by_key.setdefault(local.key, {})[uid] = local
        self._by_vmi.setdefault(vmi_uid, {})[uid] = local
        return local

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
