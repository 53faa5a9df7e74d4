"""What a migration does: target pods, the handover in the instance, its own status."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
from datetime import timedelta

from livevirt.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.client.refusals import Refusal, classify
from livevirt.kube.control.cache import key_of
from livevirt.kube.control.clock import Now
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.lifecycle.vmi.pod_runtime import PodRuntime
from livevirt.vm.migration import events, policy, queue, status
from livevirt.vm.migration.admission import FINALIZER
from livevirt.vm.migration.caches import Caches, Expectations, instance_key
from livevirt.vm.migration.migratability import NODE_NAME
from livevirt.vm.migration.phases import failure, phases
from livevirt.vm.migration.snapshot import (
    JOB_NAME,
    JOB_UID,
    TARGET_NODE,
    Snapshot,
    read_pod,
    read_state,
)
from livevirt.vm.sizing.reservation import covers, reported_size, reservation
from livevirt.vm.spec.resources import Namespace

HOSTNAME = "kubernetes.io/hostname"
_NOT_COPIED = (NODE_NAME, TARGET_NODE)  # of the instance's labels: they name the source
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes makes generated names from
_SUFFIX_LENGTH = 5


def pod_of(vmi: Object, migration: Object, namespace: Namespace) -> Object:
    """Return the target pod of a migration.

    It has room for the larger of the guest's current and requested size: the guest is resized
    only after it has moved.
    """
    job = migration["metadata"]
    pod = launcher.pod_of(vmi, namespace)
    meta, spec = pod["metadata"], pod["spec"]
    meta["name"] = pod_name(vmi, migration)
    for label in _NOT_COPIED:
        meta["labels"].pop(label, None)
    meta["labels"][JOB_UID] = job["uid"]
    meta["annotations"][JOB_NAME] = job["name"]
    needed = reservation(vmi, reported_size(vmi), namespace)
    meta["annotations"][launcher.OVERHEAD] = str(needed.overhead)
    for container in spec["containers"]:
        if container["name"] == launcher.CONTAINER:
            container["resources"] = {"requests": needed.requests, "limits": needed.limits}
    added = migration["spec"].get("addedNodeSelector") or {}
    spec["nodeSelector"] = {**added, **spec["nodeSelector"]}
    spec["affinity"] = _anti_affinity(spec.get("affinity") or {}, vmi["metadata"]["uid"])
    return pod


def is_too_small(pod: Object, vmi: Object, namespace: Namespace) -> bool:
    """Return whether a target pod has less than the guest's current or requested size."""
    needed = reservation(vmi, reported_size(vmi), namespace)
    return not any(
        covers(container.get("resources") or {}, needed)
        for container in pod["spec"]["containers"]
        if container["name"] == launcher.CONTAINER
    )


def pod_name(vmi: Object, migration: Object) -> str:
    """Return the name of a target pod, derived from the uid of its migration."""
    first = launcher.pod_name(vmi)
    digest = hashlib.sha256(migration["metadata"]["uid"].encode()).digest()[:_SUFFIX_LENGTH]
    suffix = "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in digest)
    return f"{first[:-_SUFFIX_LENGTH]}{suffix}"


def _anti_affinity(affinity: Object, uid: str) -> Object:
    """Return an affinity that also excludes every node with a pod of the instance."""
    found = copy.deepcopy(affinity)
    against = found.setdefault("podAntiAffinity", {})
    against["requiredDuringSchedulingIgnoredDuringExecution"] = [
        *(against.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
        {
            "labelSelector": {"matchLabels": {launcher.CREATED_BY: uid}},
            "topologyKey": HOSTNAME,
        },
    ]
    return found


log = logging.getLogger(__name__)

_GRACE_SECONDS = 1  # the pods deleted here have no guest to shut down


class TargetPods:
    """Creates and deletes the launcher pods of migrations."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        caches: Caches,
        expectations: Expectations,
        runtime: PodRuntime,
    ) -> None:
        self._client, self._recorder, self._runtime = client, recorder, runtime
        self._caches, self._expectations = caches, expectations

    async def create(self, migration: Object, vmi: Object, source_node: str) -> str | None:
        """Create the target pod; return the message of a quota that refused it.

        Only what is still current gets a pod: a second pod beside a guest cannot be undone.
        """
        key, namespace = key_of(migration), migration["metadata"]["namespace"]
        self._expectations.expect_target(key, source_node)
        try:
            await check_current(self._client, kinds.MIGRATION, migration)
            await check_current(self._client, kinds.VMI, vmi)
            pod = pod_of(vmi, migration, self._caches.sources.namespace(namespace))
            pod = self._runtime.complete(pod, vmi)
            name = pod["metadata"]["name"]
            try:
                await self._client.create(core.POD, pod, namespace)
            except AlreadyExists:
                await self._check_own(migration, name)
                return None
        except (Forbidden, Invalid) as error:
            self._expectations.refuse_target(key)
            events.pod_refused(self._recorder, migration, error.message)
            return error.message if classify(error) is Refusal.QUOTA else None
        except BaseException:
            self._expectations.withdraw_target(key)
            raise
        self._expectations.accept_target(key)
        log.info("target pod created", extra=_fields(migration) | {"pod": name})
        events.pod_created(self._recorder, migration, name)
        return None

    async def replace(self, migration: Object, vmi: Object, name: str, uid: str) -> None:
        """Delete a target pod that is too small."""
        self._expectations.replace_target(key_of(migration), uid)
        await self.delete(migration, vmi, name, uid)

    async def delete(self, migration: Object | None, vmi: Object, name: str, uid: str) -> None:
        """Delete a pod, unless the instance has changed since it was read."""
        await check_current(self._client, kinds.VMI, vmi)  # the guest may have moved into it
        with contextlib.suppress(NotFound):
            await self._client.delete(
                core.POD, name, vmi["metadata"]["namespace"],
                uid=uid, grace_seconds=_GRACE_SECONDS,
            )  # fmt: skip
            log.info("pod deleted", extra=_fields(vmi) | {"pod": name})
            if migration is not None:
                events.pod_deleted(self._recorder, migration, name)

    async def _check_own(self, migration: Object, name: str) -> None:
        """Raise Conflict if the pod of that name is not this migration's."""
        meta = migration["metadata"]
        found = await self._client.get(core.POD, name, meta["namespace"])
        if (found["metadata"].get("labels") or {}).get(JOB_UID) != meta["uid"]:
            raise Conflict(f"pod {name} belongs to another owner")


class InstanceWriter:
    """Writes `status.migrationState` of instances, and the label with their target node."""

    def __init__(self, client: Client, now: Now, recorder: Recorder, caches: Caches) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._sources = caches.sources

    async def hand_over(self, migration: Object, vmi: Object, snapshot: Snapshot) -> None:
        """Write source and target into the instance, with the settings in force."""
        source, target_pod = snapshot.source, snapshot.target
        assert source is not None
        assert target_pod is not None
        chosen = self._sources.policy(vmi)
        settings = policy.effective(self._sources.kubevirt(), chosen)
        uid = migration["metadata"]["uid"]
        new = status.handed_over(uid, source, target_pod, settings, chosen)
        old = vmi["status"].get("migrationState")
        patch = {
            "metadata": {"labels": {TARGET_NODE: target_pod.node}},
            "status": {"migrationState": status.replacing(old, new)},
        }
        await self._patch(vmi, patch)
        log.info("handed over", extra=_fields(migration) | {"target": target_pod.node})
        events.handed_over(self._recorder, migration, source.node, target_pod.node)

    async def request_abort(self, migration: Object | None, vmi: Object) -> None:
        """Ask the nodes to abort the migration."""
        await self._patch_state(vmi, {"abortRequested": True})
        if migration is not None:
            events.abort_requested(self._recorder, migration)

    async def fail(self, vmi: Object, reason: str) -> None:
        """End a migration that has no target pod."""
        recorded = vmi["status"]["migrationState"]
        await check_absent(self._client, vmi, recorded["targetPod"])
        state = read_state(recorded)
        aborted = state is not None and state.abort_requested
        await self._patch_state(vmi, status.failed(reason, self._now(), aborted=aborted))

    async def remove_target_label(self, vmi: Object) -> None:
        """Remove the label with the target node."""
        await self._patch(vmi, {"metadata": {"labels": {TARGET_NODE: None}}})

    async def _patch_state(self, vmi: Object, change: Object) -> None:
        await self._patch(vmi, {"status": {"migrationState": change}})

    async def _patch(self, vmi: Object, patch: Object) -> None:
        meta = vmi["metadata"]
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **_version(vmi)}}
        with contextlib.suppress(NotFound):
            await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)


class MigrationWriter:
    """Writes the status and the finalizer of migrations, and deletes the oldest ones."""

    def __init__(self, client: Client, recorder: Recorder, caches: Caches) -> None:
        self._client, self._recorder, self._caches = client, recorder, caches

    async def write_status(
        self, migration: Object, vmi: Object | None, snapshot: Snapshot, over_quota: str | None
    ) -> None:
        """Write what has changed of the status, and record how the migration ended."""
        changed = status.changes(migration, vmi, snapshot, over_quota)
        if not changed:
            return
        meta = migration["metadata"]
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.MIGRATION, meta["name"], meta["namespace"],
                {"metadata": _version(migration), "status": changed}, subresource="status",
            )  # fmt: skip
            self._record(migration, vmi, snapshot)

    def _record(self, migration: Object, vmi: Object | None, snapshot: Snapshot) -> None:
        passed = phases(snapshot)
        if not passed:
            return
        log.info("phase changed", extra=_fields(migration) | {"phase": passed[-1]})
        match passed[-1]:
            case "Succeeded":
                events.succeeded(self._recorder, migration, vmi)
            case "Failed":
                events.failed(self._recorder, migration, vmi, failure(snapshot))

    async def remove_finalizer(self, migration: Object) -> None:
        """Remove our finalizer."""
        meta = migration["metadata"]
        kept = [each for each in meta.get("finalizers") or () if each != FINALIZER]
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.MIGRATION, meta["name"], meta["namespace"],
                {"metadata": {**_version(migration), "finalizers": kept or None}},
            )  # fmt: skip

    async def delete_expired(self, migration: Object, snapshot: Snapshot) -> list[timedelta]:
        """Delete the ended migrations that are no longer kept; return when to do so again."""
        siblings = self._caches.siblings(migration)
        expired = {each.uid for each in queue.expired(each for _, each in siblings)}
        left = queue.time_left(snapshot.migration, snapshot.now)
        if snapshot.vmi is None and not left and not snapshot.migration.deleting:
            expired.add(snapshot.migration.uid)
        for obj, each in siblings:
            if each.uid in expired:
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        kinds.MIGRATION, each.name, obj["metadata"]["namespace"], uid=each.uid
                    )
        return [left] if snapshot.vmi is None and left else []


# ---------------------------------------------------------------- reads before a write


async def check_current(client: Client, kind: Kind, obj: Object) -> None:
    """Raise Conflict unless an object is as it was read."""
    meta = obj["metadata"]
    try:
        current = await client.get(kind, meta["name"], meta["namespace"])
    except NotFound:
        raise Conflict(f"{kind.singular} {meta['name']} is gone") from None
    if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
        raise Conflict(f"{kind.singular} {meta['name']} has changed since it was read")


async def check_absent(client: Client, vmi: Object, pod: str) -> None:
    """Raise Conflict if a pod of that name exists and has not ended."""
    with contextlib.suppress(NotFound):
        found = await client.get(core.POD, pod, vmi["metadata"]["namespace"])
        if not read_pod(found).ended:
            raise Conflict(f"pod {pod} exists after all")


async def check_failure(
    client: Client, migration: Object, vmi: Object | None, snapshot: Snapshot
) -> None:
    """Raise Conflict unless the objects that make a migration fail are as they were read."""
    if vmi is not None:
        await check_current(client, kinds.VMI, vmi)
        if snapshot.target is None and snapshot.migration.phase in ("Scheduling", "Scheduled"):
            await check_absent(client, vmi, pod_name(vmi, migration))
        return
    key = instance_key(migration)
    with contextlib.suppress(NotFound):
        await client.get(kinds.VMI, key.name, key.namespace)
        raise Conflict(f"instance {key.name} exists after all")


def _version(obj: Object) -> Object:
    """Return the precondition of a patch: the object is still the one that was read."""
    meta = obj["metadata"]
    return {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}


def _fields(obj: Object) -> dict[str, object]:
    return {obj["kind"].lower(): f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"}
