"""Reads from the informers what a migration, and the queue of all of them, depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from livevirt.api import registry
from livevirt.api.request import Object
from livevirt.control.clock import Now
from livevirt.control.informer import Informer
from livevirt.control.key import Key, key_of, owner_key
from livevirt.controllers.migration import history, policy, view
from livevirt.controllers.migration.plan import ORDER
from livevirt.controllers.migration.turn import Waiting, admitted
from livevirt.controllers.vmi.launcher import CREATED_BY
from livevirt.controllers.vmi.resizing import Attempts
from livevirt.rollout import config
from livevirt.rollout.namespaces import namespace_of
from livevirt.rollout.resources import Namespace

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
        sources.migrations.index(_OF_VMI, lambda obj: [instance_key(obj)])
        sources.pods.index(_OF_JOB, _job_uid)
        sources.pods.index(_TARGET_OF, job_keys)
        sources.pods.index(_OF_GUEST, _guest)

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
            target=self._target(mine.uid, vmi),
            rival=self._rival(obj),
            creating=key in self.granted,
            back_off=self._back_off(mine, obj),
            refused=self._refused(key),
        )
        found = replace(found, source=self._source(found, key.namespace))
        if found.target is None and not mine.final:
            found = replace(found, turn=mine.uid in self._admitted())
        if vmi is not None and vmi.state is not None and self._is_stray(vmi.state, obj):
            target = self._pod(Key(key.namespace, vmi.state.target_pod))
            found = replace(found, stray=True, stray_target=target)
        return found

    def instance(self, migration: Object) -> Object | None:
        """Return the instance a migration is of."""
        return self.sources.instances.get(instance_key(migration))

    def abandoned(self, key: Key) -> Iterator[tuple[Object | None, view.Pod, str]]:
        """Yield the target pods of a migration that is not there, each with instance and job."""
        for pod in self.sources.pods.by(_TARGET_OF, key):
            owners = [self.sources.instances.get(owner) for owner in owner_key(registry.VMI)(pod)]
            vmi = owners[0] if owners else None
            if vmi is not None and vmi["metadata"]["uid"] not in _guest(pod):
                vmi = None
            yield vmi, view.pod(pod), _job_uid(pod)[0]

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

    # ------------------------------------------------------------ whom a change concerns

    def open_of(self, vmi: Key) -> list[Key]:
        """Return the migrations of an instance for which there is still something to do."""
        return [key_of(obj) for obj in self.sources.migrations.by(_OF_VMI, vmi) if _open(obj)]

    def waiting_keys(self) -> list[Key]:
        """Return the migrations that have not begun."""
        return [key_of(obj) for obj in self._unfinished() if not self._goes(obj)]

    # ------------------------------------------------------------ the queue

    def _admitted(self) -> frozenset[str]:
        limits, others, going = policy.limits(self.settings()), [], []
        for obj in self._unfinished():
            if self._goes(obj):
                going.append(self._leaves(obj))
            else:
                others.append(obj)
        if len(going) >= limits.cluster:
            return frozenset()  # a long queue is not looked through for nothing
        waiting = [one for obj in others if (one := self._waits(obj)) is not None]
        return admitted(waiting, going, limits)

    def _goes(self, obj: Object) -> bool:
        """Tell whether a migration counts: it has a target, or is past needing one."""
        begun = ((obj.get("status") or {}).get("phase") or "Pending") != "Pending"
        return begun or key_of(obj) in self.granted or bool(self._targets(obj["metadata"]["uid"]))

    def _waits(self, obj: Object) -> Waiting | None:
        """Return the place of a migration that could begin now, but for the limits."""
        mine, vmi = view.migration(obj), self.instance(obj)
        if vmi is None or mine.deleting or self._rival(obj):
            return None
        instance = view.instance(vmi)
        if not instance.running or instance.copying or instance.unmovable:
            return None
        if self._back_off(mine, obj) or self._refused(key_of(obj)):
            return None
        return Waiting(mine.uid, instance.node, mine.priority, mine.created)

    def _leaves(self, obj: Object) -> str:
        """Return the node that a migration leads away from."""
        uid, vmi = obj["metadata"]["uid"], self.instance(obj)
        told = view.state(((vmi or {}).get("status") or {}).get("migrationState"))
        if told is not None and told.uid == uid:
            return told.source_node
        granted = self.granted.get(key_of(obj), "")
        return granted or view.instance(vmi).node if vmi is not None else granted

    def _unfinished(self) -> list[Object]:
        found = self.sources.migrations.list()
        return [obj for obj in found if (obj.get("status") or {}).get("phase") not in view.FINAL]

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

    def _target(self, uid: str, vmi: view.Instance | None) -> view.Pod | None:
        """Return the target pod; one that was made for an earlier instance of the name is none."""
        for obj in self._targets(uid):
            if vmi is None or vmi.uid in _guest(obj):
                return view.pod(obj)
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
    return [Key(meta["namespace"], name)] if name and _job_uid(pod) and _guest(pod) else []


def _job_uid(pod: Object) -> list[str]:
    uid = (pod["metadata"].get("labels") or {}).get(view.JOB_UID)
    return [uid] if uid else []


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
