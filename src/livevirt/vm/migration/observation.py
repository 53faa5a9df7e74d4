"""Reads from the informers what a migration, and the queue of all of them, depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from livevirt.kube.control.cache import Change
from livevirt.kube.control.clock import Now
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.key import Key, key_of, owner_key
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.lifecycle.vmi.launcher import CREATED_BY
from livevirt.vm.migration import history, policy, target, view
from livevirt.vm.migration.line import Going, Later, Line, Place
from livevirt.vm.migration.plan import ORDER
from livevirt.vm.migration.turn import Waiting
from livevirt.vm.sizing.resizing import Attempts
from livevirt.vm.spec.namespaces import namespace_of
from livevirt.vm.spec.resources import Namespace

#: The names of our indexes; other controllers keep theirs in the same informers.
_OF_VMI, _OF_JOB = "migrated-instance", "migration-job"
_TARGET_OF, _OF_GUEST = "migration-target", "migrating-guest"


@dataclass(frozen=True, slots=True)
class Sources:
    """The informers of what a migration depends on."""

    migrations: Informer
    instances: Informer
    pods: Informer
    policies: Informer
    quotas: Informer
    namespaces: Informer
    settings: Informer  # KubeVirt


class Observation:
    """What is there, and what was done so lately that it is not seen yet."""

    def __init__(self, sources: Sources, now: Now) -> None:
        self.sources, self._now = sources, now
        #: Migrations whose target pod was created and is not seen yet, with the node they leave.
        self.granted: dict[Key, str] = {}
        self.refusals: dict[Key, Attempts] = {}  # of target pods
        #: Target pods that are deleted for being too small, by uid, until the next is seen.
        self.outgrown: dict[Key, str] = {}
        self._line = Line(self._place)
        sources.migrations.index(_OF_VMI, lambda obj: [instance_key(obj)])
        sources.pods.index(_OF_JOB, view.jobs)
        sources.pods.index(_TARGET_OF, job_keys)
        sources.pods.index(_OF_GUEST, _guest)
        sources.migrations.on_change(self._note_migration)
        sources.instances.on_change(lambda change: self._note_all_of(change.key))
        sources.pods.on_change(self._note_pod)

    # ------------------------------------------------------------ one migration

    def seen(self, obj: Object) -> view.Seen:
        """Return everything the decision about a migration depends on."""
        key, now = key_of(obj), self._now()
        mine, vmi_object = view.migration(obj), self.instance(obj)
        vmi = None if vmi_object is None else view.instance(vmi_object)
        found = view.Seen(
            mine,
            now,
            vmi,
            target=self._target(mine.uid, vmi_object),
            rival=self._rival(obj),
            creating=key in self.granted,
            back_off=self._back_off(mine, obj),
            refused=self._refused(key),
        )
        found = replace(found, source=self._source(found, key.namespace))
        if found.target is None or found.target.deleting:
            self._note_outgrown(key, found)
            found = replace(found, outgrown=key in self.outgrown)
        if found.target is None and not mine.final:
            found = replace(found, turn=key in self.first())
        if vmi is not None and vmi.state is not None and self._is_stray(vmi.state, obj):
            stray = self._pod(Key(key.namespace, vmi.state.target_pod))
            found = replace(found, stray=True, stray_target=stray)
        return found

    def instance(self, migration: Object) -> Object | None:
        """Return the instance a migration is of."""
        return self.sources.instances.get(instance_key(migration))

    def abandoned(self, key: Key) -> Iterator[tuple[Object | None, view.Pod, str]]:
        """Yield the target pods of a migration that is not there, each with instance and job."""
        for pod in self.sources.pods.by(_TARGET_OF, key):
            owners = [self.sources.instances.get(owner) for owner in owner_key(kinds.VMI)(pod)]
            vmi = owners[0] if owners else None
            if vmi is not None and vmi["metadata"]["uid"] not in _guest(pod):
                vmi = None
            yield vmi, view.pod(pod), view.jobs(pod)[0]

    def past(self, migration: Object) -> list[tuple[Object, view.Migration]]:
        """Return all migrations of the same instance."""
        found = self.sources.migrations.by(_OF_VMI, instance_key(migration))
        return [(each, view.migration(each)) for each in found]

    def namespace(self, name: str) -> Namespace:
        """Return what a namespace demands of its pods."""
        labelled = self.sources.namespaces.get(Key("", name))
        return namespace_of(self.sources.quotas.list(name), labelled, self.settings())

    def settings(self) -> Object | None:
        """Return the KubeVirt object."""
        return self.sources.settings.get(Key(config.NAMESPACE, config.NAME))

    def policy(self, vmi: Object) -> Object | None:
        """Return the policy that fits an instance best."""
        namespace = self.sources.namespaces.get(Key("", vmi["metadata"]["namespace"]))
        return policy.best(self.sources.policies.list(), vmi, namespace)

    # ------------------------------------------------------------ what was done

    def grant(self, key: Key, node: str) -> None:
        """Count a migration away from a node, also while nothing of it can be seen yet."""
        self.granted[key] = node
        self._line.note([key])

    def take_back(self, key: Key) -> None:
        """Count it no longer, unless what can be seen of it says so."""
        self.granted.pop(key, None)
        self._line.note([key])

    def refuse(self, key: Key) -> None:
        """Remember that a target pod was refused once more."""
        self.take_back(key)
        self.refusals[key] = self.refusals.get(key, Attempts()).failed(self._now())

    def try_again(self, key: Key) -> None:
        """Let a migration whose target was refused go as soon as it can."""
        self.refusals[key] = Attempts(self.refusals[key].count)
        self._line.note([key])

    def outgrow(self, key: Key, pod: str) -> None:
        """Remember that a target pod of that uid goes because it is too small."""
        self.outgrown[key] = pod
        self._line.note([key])

    def _note_outgrown(self, key: Key, seen: view.Seen) -> None:
        """Remember a target that goes and is too small: whoever was here before us deleted it."""
        pod, wanted = seen.target, not seen.migration.final and seen.state is None
        if pod is not None and pod.short and wanted and key not in self.outgrown:
            self.outgrow(key, pod.uid)

    def saw(self, key: Key, pod: str) -> None:
        """Take in that a target pod of that uid can be seen."""
        self.take_back(key)
        if self.outgrown.get(key) != pod:
            self.outgrown.pop(key, None)

    def forget(self, key: Key) -> None:
        """Forget what was done for a migration that has ended."""
        self.take_back(key)
        self.refusals.pop(key, None)
        self.outgrown.pop(key, None)

    # ------------------------------------------------------------ whom a change concerns

    def open_of(self, vmi: Key) -> list[Key]:
        """Return the migrations of an instance for which there is still something to do."""
        return [key_of(obj) for obj in self.sources.migrations.by(_OF_VMI, vmi) if _open(obj)]

    def first(self) -> frozenset[Key]:
        """Return the migrations whose turn it is."""
        return self._line.first(policy.limits(self.settings()), self._now())

    # ------------------------------------------------------------ the queue

    def _note_migration(self, change: Change) -> None:
        self._line.note([change.key])
        for side in (change.old, change.new):
            if side is not None:
                self._note_all_of(instance_key(side))

    def _note_all_of(self, vmi: Key) -> None:
        self._line.note(map(key_of, self.sources.migrations.by(_OF_VMI, vmi)))

    def _note_pod(self, change: Change) -> None:
        for side in (change.old, change.new):
            if side is not None:
                self._line.note(job_keys(side))

    def _place(self, key: Key) -> Place | None:
        obj = self.sources.migrations.get(key)
        if obj is None or (obj.get("status") or {}).get("phase") in FINAL:
            return None
        return Going(self._leaves(obj)) if self._goes(obj) else self._waits(obj)

    def _goes(self, obj: Object) -> bool:
        """Tell whether a migration counts: it has a target, or is past needing one."""
        begun = ((obj.get("status") or {}).get("phase") or "Pending") != "Pending"
        key = key_of(obj)
        known = key in self.granted or key in self.outgrown
        return begun or known or bool(self._targets(obj["metadata"]["uid"]))

    def _waits(self, obj: Object) -> Waiting | Later:
        """Return the place of a migration that has not begun: it could now, or cannot yet."""
        mine, vmi = view.migration(obj), self.instance(obj)
        if vmi is None or mine.deleting or self._rival(obj):
            return Later()
        instance = view.instance(vmi)
        if not instance.running or instance.copying or instance.unmovable:
            return Later()
        if wait := max(self._back_off(mine, obj), self._refused(key_of(obj))):
            return Later(self._now() + wait)
        return Waiting(mine.uid, instance.node, mine.priority, mine.created)

    def _leaves(self, obj: Object) -> str:
        """Return the node that a migration leads away from."""
        uid, vmi = obj["metadata"]["uid"], self.instance(obj)
        told = view.state(((vmi or {}).get("status") or {}).get("migrationState"))
        if told is not None and told.uid == uid:
            return told.source_node
        granted = self.granted.get(key_of(obj), "")
        return granted or view.instance(vmi).node if vmi is not None else granted

    def _rival(self, obj: Object) -> str:
        """Return the name of another migration of the same instance that goes first."""
        others = self.sources.migrations.by(_OF_VMI, instance_key(obj))
        going = [each for each in others if not view.migration(each).final]
        first = min(going, key=_seniority, default=obj)
        same = first["metadata"]["uid"] == obj["metadata"]["uid"]
        return "" if same else str(first["metadata"]["name"])

    def _back_off(self, mine: view.Migration, obj: Object) -> timedelta:
        if not mine.automatic:
            return timedelta(0)
        return history.back_off(mine, (each for _, each in self.past(obj)), self._now())

    def _refused(self, key: Key) -> timedelta:
        attempts = self.refusals.get(key)
        return timedelta(0) if attempts is None else attempts.wait(self._now())

    def _is_stray(self, state: view.State, obj: Object) -> bool:
        others = self.sources.migrations.by(_OF_VMI, instance_key(obj))
        return state.ended is None and all(
            each["metadata"]["uid"] != state.uid or view.migration(each).final for each in others
        )

    # ------------------------------------------------------------ pods

    def _targets(self, uid: str) -> list[Object]:
        return self.sources.pods.by(_OF_JOB, uid)

    def _target(self, uid: str, vmi: Object | None) -> view.Pod | None:
        """Return the target pod; one that was made for an earlier instance of the name is none."""
        for obj in self._targets(uid):
            if vmi is None:
                return view.pod(obj)
            if vmi["metadata"]["uid"] in _guest(obj):
                namespace = self.namespace(vmi["metadata"]["namespace"])
                return replace(view.pod(obj), short=target.is_short(obj, vmi, namespace))
        return None

    def _source(self, seen: view.Seen, namespace: str) -> view.Pod | None:
        """Return the pod the guest leaves: where it runs, or where it did before it moved."""
        state, mine, vmi = seen.state, seen.migration, seen.vmi
        left = state.source_pod if state is not None else mine.source_pod
        if left:
            return self._pod(Key(namespace, left))
        if vmi is None or not vmi.node:
            return None
        pods = [view.pod(obj) for obj in self.sources.pods.by(_OF_GUEST, vmi.uid)]
        here = [each for each in pods if each.node == vmi.node and not each.ended]
        return max(here, key=lambda each: (each.created, each.name), default=None)

    def _pod(self, key: Key) -> view.Pod | None:
        found = self.sources.pods.get(key)
        return None if found is None else view.pod(found)


def instance_key(migration: Object) -> Key:
    """Return the key of the instance a migration is of."""
    return Key(migration["metadata"]["namespace"], migration["spec"].get("vmiName") or "")


def job_keys(pod: Object) -> list[Key]:
    """Return the migration a pod is the target of."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get(view.JOB_NAME)
    return [Key(meta["namespace"], name)] if name and view.jobs(pod) and _guest(pod) else []


def _guest(pod: Object) -> Iterable[str]:
    """Return the uid of the instance a pod was made for."""
    uid = (pod["metadata"].get("labels") or {}).get(CREATED_BY)
    owners = pod["metadata"].get("ownerReferences") or ()
    return [uid] if uid and any(owner["uid"] == uid for owner in owners) else []


def _open(obj: Object) -> bool:
    mine = view.migration(obj)
    return not mine.final or mine.held


def _seniority(obj: Object) -> tuple[int, str, str]:
    """Return by what the migrations of one instance are ordered: who is further, who came first."""
    meta, phase = obj["metadata"], (obj.get("status") or {}).get("phase") or ""
    return -ORDER.index(phase), meta.get("creationTimestamp") or "", meta["uid"]
