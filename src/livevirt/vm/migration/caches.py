"""The informer caches a migration is decided from, and what was done that they do not show yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from livevirt.kube.control.cache import Key, key_of, owner_key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.lifecycle.vmi.launcher import CREATED_BY
from livevirt.vm.migration import policy, queue
from livevirt.vm.migration.phases import ORDER
from livevirt.vm.migration.snapshot import (
    JOB_NAME,
    Migration,
    MigrationState,
    Pod,
    migration_uids,
    read_migration,
    read_pod,
)
from livevirt.vm.sizing.resizing import Attempts
from livevirt.vm.spec.resources import Namespace, namespace_of

#: The names of our indexes; other controllers keep theirs in the same informers.
_BY_INSTANCE, _BY_MIGRATION_UID = "migrations-by-instance", "target-pods-by-migration-uid"
_BY_MIGRATION, _BY_GUEST = "target-pods-by-migration", "launcher-pods-by-instance-uid"


@dataclass(frozen=True, slots=True)
class Sources:
    """The informers of everything a migration depends on."""

    migrations: Informer
    instances: Informer
    pods: Informer
    policies: Informer
    quotas: Informer
    namespaces: Informer
    kubevirts: Informer

    def kubevirt(self) -> Object | None:
        """Return the KubeVirt object."""
        return self.kubevirts.get(Key(settings.NAMESPACE, settings.NAME))

    def namespace(self, name: str) -> Namespace:
        """Return what a namespace requires of its pods."""
        labelled = self.namespaces.get(Key("", name))
        return namespace_of(self.quotas.list(name), labelled, self.kubevirt())

    def policy(self, vmi: Object) -> Object | None:
        """Return the MigrationPolicy that matches an instance best."""
        namespace = self.namespaces.get(Key("", vmi["metadata"]["namespace"]))
        return policy.best(self.policies.list(), vmi, namespace)


class Caches:
    """Migrations, instances and launcher pods by how they belong together."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        sources.migrations.index(_BY_INSTANCE, lambda obj: [instance_key(obj)])
        sources.pods.index(_BY_MIGRATION_UID, migration_uids)
        sources.pods.index(_BY_MIGRATION, migration_keys)
        sources.pods.index(_BY_GUEST, instance_uids)

    def instance(self, migration: Object) -> Object | None:
        """Return the instance of a migration."""
        return self.sources.instances.get(instance_key(migration))

    def migrations(self, vmi: Key) -> list[Object]:
        """Return all migrations of an instance."""
        return self.sources.migrations.by(_BY_INSTANCE, vmi)

    def unfinished(self, vmi: Key) -> list[Key]:
        """Return the migrations of an instance that still have to be reconciled."""
        return [key_of(obj) for obj in self.migrations(vmi) if _unfinished(read_migration(obj))]

    def siblings(self, migration: Object) -> list[tuple[Object, Migration]]:
        """Return all migrations of the same instance, this one included."""
        return [(obj, read_migration(obj)) for obj in self.migrations(instance_key(migration))]

    def conflicting(self, migration: Object) -> str:
        """Return the name of another migration of the same instance that takes precedence."""
        active = [obj for obj, each in self.siblings(migration) if not each.final]
        first = min(active, key=_precedence, default=migration)
        same = first["metadata"]["uid"] == migration["metadata"]["uid"]
        return "" if same else str(first["metadata"]["name"])

    def back_off(self, migration: Object, now: datetime) -> timedelta:
        """Return how long a migration has to wait because earlier ones failed."""
        mine = read_migration(migration)
        if not mine.automatic:
            return timedelta(0)
        return queue.back_off(mine, (each for _, each in self.siblings(migration)), now)

    def is_orphaned(self, state: MigrationState, migration: Object) -> bool:
        """Return whether no migration acts on that state of the instance."""
        return state.ended is None and all(
            each.uid != state.uid or each.final for _, each in self.siblings(migration)
        )

    def pod(self, key: Key) -> Pod | None:
        """Return a pod by its name."""
        found = self.sources.pods.get(key)
        return None if found is None else read_pod(found)

    def launcher_pods(self, vmi_uid: str) -> list[Pod]:
        """Return all launcher pods of an instance."""
        return [read_pod(obj) for obj in self.sources.pods.by(_BY_GUEST, vmi_uid)]

    def target_pods(self, migration_uid: str) -> list[Object]:
        """Return the pods that were created as target of a migration."""
        return self.sources.pods.by(_BY_MIGRATION_UID, migration_uid)

    def abandoned(self, key: Key) -> Iterator[tuple[Object, Pod, str]]:
        """Yield the target pods of a deleted migration: the instance, the pod, the migration uid.

        Pods without their instance are left to the garbage collector.
        """
        for pod in self.sources.pods.by(_BY_MIGRATION, key):
            for owner in owner_key(kinds.VMI)(pod):
                vmi = self.sources.instances.get(owner)
                if vmi is not None and vmi["metadata"]["uid"] in instance_uids(pod):
                    yield vmi, read_pod(pod), migration_uids(pod)[0]


class Expectations:
    """What this controller did for each migration and the caches do not show yet.

    Nothing is lost with it: after a restart the caches are read from the API again.
    """

    def __init__(self, now: Now, changed: Callable[[Key], None]) -> None:
        """Create them; `changed` is called with each migration whose entry changes."""
        self._now, self._changed = now, changed
        self._targets: dict[Key, str] = {}  # migration → source node, while its pod is not cached
        self._replaced: dict[Key, str] = {}  # migration → uid of the target pod that is too small
        self._refusals: dict[Key, Attempts] = {}  # of target pods

    def expect_target(self, key: Key, source_node: str) -> None:
        """Count a migration as active from now on: its target pod is being created."""
        self._targets[key] = source_node
        self._changed(key)

    def withdraw_target(self, key: Key) -> None:
        """Stop expecting a target pod."""
        self._targets.pop(key, None)
        self._changed(key)

    def observe_target(self, key: Key, pod_uid: str) -> None:
        """Take note that a target pod is in the cache."""
        self.withdraw_target(key)
        if self._replaced.get(key) != pod_uid:
            self._replaced.pop(key, None)

    def replace_target(self, key: Key, pod_uid: str) -> None:
        """Remember that a target pod is deleted for being too small, until the next is cached."""
        self._replaced[key] = pod_uid
        self._changed(key)

    def refuse_target(self, key: Key) -> None:
        """Remember that the API server refused a target pod once more."""
        self.withdraw_target(key)
        self._refusals[key] = self._refusals.get(key, Attempts()).failed(self._now())

    def accept_target(self, key: Key) -> None:
        """Forget earlier refusals: the API server has accepted a target pod."""
        self._refusals.pop(key, None)

    def retry_refused(self, namespace: str) -> list[Key]:
        """Let the refused migrations of a namespace retry at once; return them."""
        found = [key for key in self._refusals if key.namespace == namespace]
        for key in found:
            self._refusals[key] = Attempts(self._refusals[key].count)
            self._changed(key)
        return found

    def forget(self, key: Key) -> None:
        """Forget a migration that has ended."""
        self.withdraw_target(key)
        self._refusals.pop(key, None)
        self._replaced.pop(key, None)

    def expects_target(self, key: Key) -> bool:
        """Return whether a target pod was created and is not in the cache yet."""
        return key in self._targets

    def replaces_target(self, key: Key) -> bool:
        """Return whether the target pod is deleted, or being deleted, for being too small."""
        return key in self._replaced

    def source_node(self, key: Key) -> str:
        """Return the source node of a migration whose target pod is not in the cache yet."""
        return self._targets.get(key, "")

    def retry_in(self, key: Key) -> timedelta:
        """Return how long to wait before a refused target pod is created again."""
        attempts = self._refusals.get(key)
        return timedelta(0) if attempts is None else attempts.wait(self._now())


def instance_key(migration: Object) -> Key:
    """Return the key of the instance of a migration."""
    return Key(migration["metadata"]["namespace"], migration["spec"].get("vmiName") or "")


def migration_keys(pod: Object) -> list[Key]:
    """Return the key of the migration a pod is the target of, as an index takes it."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get(JOB_NAME) or ""
    is_target = name and migration_uids(pod) and instance_uids(pod)
    return [Key(meta["namespace"], name)] if is_target else []


def instance_uids(pod: Object) -> Iterable[str]:
    """Return the uid of the instance a pod was created for, as an index takes it."""
    uid = (pod["metadata"].get("labels") or {}).get(CREATED_BY)
    owners = pod["metadata"].get("ownerReferences") or ()
    return [uid] if uid and any(owner["uid"] == uid for owner in owners) else []


def _unfinished(migration: Migration) -> bool:
    return not migration.final or migration.finalizer


def _precedence(obj: Object) -> tuple[int, str, str]:
    """Return the sort key of the migrations of one instance: by progress, then by age."""
    meta, phase = obj["metadata"], status_of(obj).get("phase") or ""
    return -ORDER.index(phase), meta.get("creationTimestamp") or "", meta["uid"]
