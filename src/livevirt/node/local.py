"""What a node keeps of its pods: files, perhaps a process, perhaps a guest that answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from typing import TypeVar

from livevirt.kube.control.cache import Key
from livevirt.kube.objects.request import Object, status_of
from livevirt.node import intent as intents
from livevirt.node import process as processes
from livevirt.node.adjuster import Adjuster
from livevirt.node.attacher import Attacher
from livevirt.node.cgroups import PodCgroup
from livevirt.node.device_keeper import DeviceKeeper
from livevirt.node.exit_record import ExitRecord
from livevirt.node.guest import Guest
from livevirt.node.guest.view import RebootRequest
from livevirt.node.intent import Intent, UnknownIntent
from livevirt.node.migration.facts import PodFacts, Side, migration_of, side
from livevirt.node.migration.source import SourceMigration
from livevirt.node.migration.target import TargetMigration
from livevirt.node.pod_dir import PodDir
from livevirt.node.pod_status import Waiting
from livevirt.node.probes import Prober
from livevirt.node.process import Process
from livevirt.node.runtime import Runtime
from livevirt.qemu.lifecycle import SENT_WHOLE, Standing

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)


class Local:
    """One pod's state on this node. All of it can be read again from files and processes."""

    def __init__(
        self, key: Key, folder: PodDir, wake: Callable[[], None], *, reserved: bool = False
    ) -> None:
        self.key = key
        self.folder = folder
        self.intent: Intent | None = folder.read_intent()
        self.ending: ExitRecord | None = folder.read_ending()
        incoming = self.intent is not None and self.intent.incoming is not None
        self.reserved = reserved or incoming  # created to receive a migrating guest
        self.guest: Guest | None = None
        self.adjuster: Adjuster | None = None  # there is one while there is a guest
        self.attacher: Attacher | None = None  # there is one once its volumes were looked at
        self.prober: Prober | None = None  # there is one while its guest is here
        self.keeper: DeviceKeeper | None = None  # there is one once its devices were looked at
        self.waiting: Waiting | None = None  # what a start waits for
        self.attempts = 0  # at getting what it waits for
        self.pressed: datetime | None = None  # when the power button was last pressed
        self.migration: SourceMigration | TargetMigration | None = None  # the one at work
        self.clean = False  # nothing but logs is left
        self.wake = wake

    @property
    def cgroup(self) -> PodCgroup:
        return PodCgroup(self.intent.cgroups if self.intent else ())

    # ------------------------------------------------------------ migration

    def migration_facts(self, node: str = "", vmi: Object | None = None) -> PodFacts:
        """Return the facts about the pod's part in migrations; without an instance, those on disk.

        Whether the source has published its offer is not known here.
        """
        notes, intent = self.folder.migration, self.intent
        return PodFacts(
            pod=self.key.name,
            node=node,
            migration=migration_of(vmi),
            vmi_node=status_of(vmi).get("nodeName") or "",
            reserved=self.reserved,
            incoming=intent.incoming.uid if intent and intent.incoming else "",
            intended=intent is not None,
            exited=self.ending is not None,
            arrived=self.reserved and notes.arrived,
            departure=notes.read_departure(),
            left=notes.left,
        )

    @property
    def side(self) -> Side:
        """The side of a migration that the pod is on: of the one at work, else by its notes."""
        return self.migration.side if self.migration else side(self.migration_facts())

    @property
    def source(self) -> SourceMigration | None:
        """The migration at work, if this pod is its source."""
        return self.migration if isinstance(self.migration, SourceMigration) else None

    @property
    def target(self) -> TargetMigration | None:
        """The migration at work, if this pod is its target."""
        return self.migration if isinstance(self.migration, TargetMigration) else None

    @property
    def awaits_guest(self) -> bool:
        """Whether a QEMU was started for a guest that has not arrived."""
        incoming = self.intent.incoming if self.intent else None
        return incoming is not None and not self.folder.migration.arrived

    def cancel_arrival(self) -> bool:
        """Receive no guest from now on; return whether none has arrived. Never yields."""
        if self.folder.migration.arrived:
            return False
        if self.target is not None:
            self.target.stop()
            self.migration = None
        return True

    @property
    def has_left(self) -> bool:
        """Whether it is noted that the guest runs on another node."""
        return self.folder.migration.left

    @property
    def is_sending(self) -> bool:
        """Whether it is noted that the guest is being sent: it may run on another node by now."""
        return self.folder.migration.read_departure() is not None

    # ------------------------------------------------------------ guest

    @property
    def standing(self) -> Standing | None:
        """The guest's standing. QEMU keeps a guest stopped whose migration failed: it is paused."""
        found = self.guest.view.standing if self.guest is not None else None
        if found is not None and found.reason == SENT_WHOLE and not self.is_sending:
            return Standing("paused", found.reason)
        return found

    def suspend_changes(self) -> None:
        """Change nothing about the guest from now on; what was begun is planned again later."""
        for worker in (self.adjuster, self.attacher, self.keeper, self.prober):
            if worker is not None:
                worker.stop()

    def resume_changes(self) -> None:
        """Follow the instance again, after a migration has ended."""
        self.migration = self.attacher = self.keeper = self.prober = None
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
        self._release()
        if self.intent is None or not self.folder.locked():
            return False
        found = self.folder.find(self.intent)
        if found is not None:
            self.follow(found)
        return True

    def follow(self, process: Process) -> None:
        """Follow the process as this pod's QEMU."""
        assert self.intent is not None
        self.folder.note_process(processes.note(process))
        reboot = RebootRequest(self.folder.reboot)
        self.guest = Guest(self.intent, process, self.wake, self.folder.complain, reboot)
        self.adjuster = Adjuster(self.guest, self.wake)

    async def close(self) -> None:
        """Stop following the guest; it runs on."""
        guest = self.guest
        self._release()
        if guest is not None:
            await guest.close()

    def _release(self) -> None:
        self.suspend_changes()
        if self.migration is not None:
            self.migration.stop()
        self.guest = self.adjuster = self.attacher = self.keeper = None
        self.prober = self.migration = None


class Locals:
    """What a node keeps of all its pods, indexed by uid, name and VMI."""

    def __init__(self, runtime: Runtime, wake: Callable[[Key], None]) -> None:
        """Start empty; `wake` queues a pod for reconciling."""
        self.runtime, self._wake = runtime, wake
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
            if local.guest is not None and not local.awaits_guest and not local.has_left:
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
        for folder in self.runtime.folders():
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

    def hold(self, key: Key, uid: str, vmi_uid: str, *, reserved: bool = False) -> Local:
        """Hold a pod of that VMI; `reserved` if it was created to receive a migrating guest."""
        folder = self.runtime.folder(uid)
        local = Local(key, folder, lambda: self._wake(key), reserved=reserved)
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
