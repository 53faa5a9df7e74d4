"""Brings every VirtualMachineInstanceMigration to its end."""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta

from livevirt.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.key import Key, key_of, owner_key
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.migration import events, history, policy, state, status, target, view
from livevirt.vm.migration.admission import FINALIZER
from livevirt.vm.migration.observation import Observation, Sources, instance_key, job_keys
from livevirt.vm.migration.plan import (
    GRACE,
    Abort,
    CreateTarget,
    DeletePod,
    End,
    HandOver,
    LetGo,
    Remake,
    Step,
    Untag,
    Wait,
    abandoned,
    failure,
    phases,
    plan,
)

log = logging.getLogger(__name__)

WORKERS = 4
_OVER_QUOTA = "exceeded quota"  # as a kube-apiserver words it


class Migrations:
    """Watches migrations, their instances and pods, and whatever lets a waiting one go."""

    def __init__(self, client: Client, now: Now, recorder: Recorder, sources: Sources) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._seen = Observation(sources, now)
        self._from = sources
        self._controller = Controller("migration", self.reconcile, workers=WORKERS)
        self._controller.watches(sources.migrations)
        self._controller.watches(sources.instances, lambda vmi: self._seen.open_of(key_of(vmi)))
        self._controller.watches(sources.pods, lambda _: ())  # woken by `_note_pod`
        sources.pods.on_change(self._note_pod)
        sources.migrations.on_change(self._note_end)
        sources.quotas.on_change(self._note_quota)
        sources.settings.on_change(lambda _: self._wake_first())

    async def run(self) -> None:
        """Work until cancelled."""
        looked_up = (self._from.policies, self._from.quotas, self._from.namespaces)
        for informer in (*looked_up, self._from.settings):
            await informer.synced.wait()
        await self._controller.run()

    # ------------------------------------------------------------ being woken

    def _note_pod(self, change: Change) -> None:
        pod = change.new or change.old
        assert pod is not None
        for key in job_keys(pod):
            self._seen.saw(key, pod["metadata"]["uid"])
            self._controller.queue.add(key)
        for vmi in owner_key(kinds.VMI)(pod):
            for key in self._seen.open_of(vmi):
                self._controller.queue.add(key)

    def _note_end(self, change: Change) -> None:
        """Wake those whose turn it is: one that ended made room for another."""
        if change.new is None or view.migration(change.new).final:
            self._seen.forget(change.key)
            self._wake_first()

    def _note_quota(self, change: Change) -> None:
        """Try at once what was refused in the namespace: there may be room now."""
        for key in self._seen.refusals:
            if key.namespace == change.key.namespace:
                self._seen.try_again(key)
                self._controller.queue.add(key)

    def _wake_first(self) -> None:
        for key in self._seen.first():
            self._controller.queue.add(key)

    # ------------------------------------------------------------ one pass

    async def reconcile(self, key: Key) -> Result:
        """Bring one migration a step further, or clean up after it."""
        migration = self._from.migrations.get(key)
        if migration is None:
            return await self._reconcile_gone(key)
        seen, vmi = self._seen.seen(migration), self._seen.instance(migration)
        over_quota = None
        waits: list[timedelta] = []
        if "Failed" in phases(seen):
            await self._check_sight(migration, vmi, seen)
        for step in plan(seen):
            match step:
                case CreateTarget():
                    assert vmi is not None
                    over_quota = await self._create_target(migration, vmi, seen)
                case Wait(time):
                    waits.append(time)
                    if seen.back_off and time == seen.back_off and vmi is not None:
                        events.backs_off(self._recorder, migration, vmi, time)
                case LetGo():
                    await self._let_go(migration)
                case _:
                    await self._act(step, migration, vmi, seen)
        await self._write(migration, vmi, seen, over_quota)
        if wait := self._refusal_left(key):
            waits.append(wait)
        if seen.migration.final:
            waits += await self._forget(migration, seen)
        return Result(after=min(waits)) if waits else DONE

    async def _reconcile_gone(self, key: Key) -> Result:
        """See to what is left of a migration that was removed before it had ended."""
        self._seen.forget(key)
        for vmi, pod, uid in list(self._seen.abandoned(key)):
            if vmi is None:
                continue
            for step in abandoned(view.instance(vmi), pod, uid):
                await self._act(step, None, vmi, None)
        return DONE

    def _refusal_left(self, key: Key) -> timedelta:
        attempts = self._seen.refusals.get(key)
        return timedelta(0) if attempts is None else attempts.wait(self._now())

    async def _act(
        self, step: Step, migration: Object | None, vmi: Object | None, seen: view.Seen | None
    ) -> None:
        """Take a step that changes the instance or its pods."""
        assert vmi is not None
        match step:
            case HandOver():
                assert migration is not None
                assert seen is not None
                await self._hand_over(migration, vmi, seen)
            case Abort():
                await self._patch_state(vmi, {"abortRequested": True})
                if migration is not None:
                    events.abort_asked(self._recorder, migration)
            case End(reason):
                await self._check_absent(vmi, vmi["status"]["migrationState"]["targetPod"])
                told = view.state(vmi["status"]["migrationState"])
                aborted = told is not None and told.abort_requested
                await self._patch_state(vmi, state.failed(reason, self._now(), aborted=aborted))
            case DeletePod(name, uid):
                await self._delete_pod(migration, vmi, name, uid)
            case Remake(name, uid):
                assert migration is not None
                self._seen.outgrow(key_of(migration), uid)
                await self._delete_pod(migration, vmi, name, uid)
            case Untag():
                await self._patch_vmi(vmi, {"metadata": {"labels": {view.TARGET_NODE: None}}})

    # ------------------------------------------------------------ pods

    async def _create_target(self, migration: Object, vmi: Object, seen: view.Seen) -> str | None:
        """Create the target pod; return what a quota said against it."""
        key, namespace = key_of(migration), migration["metadata"]["namespace"]
        assert seen.vmi is not None
        self._seen.grant(key, seen.vmi.node)
        try:
            await self._check_current(kinds.MIGRATION, migration)
            await self._check_current(kinds.VMI, vmi)
            pod = target.pod_of(vmi, migration, self._seen.namespace(namespace))
            name = pod["metadata"]["name"]
            try:
                await self._client.create(core.POD, pod, namespace)
            except AlreadyExists:
                await self._check_own(migration, name, namespace)
                return None
        except (Forbidden, Invalid) as error:
            self._seen.refuse(key)
            self._wake_first()  # others may take its turn
            events.pod_refused(self._recorder, migration, error.message)
            return error.message if _OVER_QUOTA in error.message else None
        except BaseException:
            self._seen.take_back(key)
            raise
        self._seen.refusals.pop(key, None)
        log.info("target pod created", extra=_facts(migration) | {"pod": name})
        events.pod_created(self._recorder, migration, name)
        return None

    async def _check_current(self, kind: Kind, obj: Object) -> None:
        """Raise Conflict unless an object is as it was read: what follows cannot be undone."""
        meta = obj["metadata"]
        try:
            current = await self._client.get(kind, meta["name"], meta["namespace"])
        except NotFound:
            raise Conflict(f"{kind.singular} {meta['name']} is gone") from None
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"{kind.singular} {meta['name']} has changed since it was read")

    async def _check_sight(self, migration: Object, vmi: Object | None, seen: view.Seen) -> None:
        """Raise Conflict unless what makes a migration fail is so: what we read may be old."""
        if vmi is not None:
            await self._check_current(kinds.VMI, vmi)
            if seen.target is None and seen.migration.phase in ("Scheduling", "Scheduled"):
                await self._check_absent(vmi, target.pod_name(vmi, migration))
            return
        key = instance_key(migration)
        with contextlib.suppress(NotFound):
            await self._client.get(kinds.VMI, key.name, key.namespace)
            raise Conflict(f"instance {key.name} is there after all")

    async def _check_absent(self, vmi: Object, name: str) -> None:
        """Raise Conflict if a pod of that name is there and runs."""
        with contextlib.suppress(NotFound):
            pod = await self._client.get(core.POD, name, vmi["metadata"]["namespace"])
            if not view.pod(pod).ended:
                raise Conflict(f"pod {name} is there after all")

    async def _check_own(self, migration: Object, name: str, namespace: str) -> None:
        """Raise Conflict if the pod of our name is somebody else's."""
        found = await self._client.get(core.POD, name, namespace)
        if (found["metadata"].get("labels") or {}).get(view.JOB_UID) != migration["metadata"][
            "uid"
        ]:
            raise Conflict(f"pod {name} belongs to another owner")

    async def _delete_pod(self, migration: Object | None, vmi: Object, name: str, uid: str) -> None:
        await self._check_current(kinds.VMI, vmi)  # a guest may have arrived in it
        with contextlib.suppress(NotFound):
            await self._client.delete(
                core.POD, name, vmi["metadata"]["namespace"], uid=uid, grace_seconds=GRACE
            )
            log.info("pod deleted", extra=_facts(vmi) | {"pod": name})
            if migration is not None:
                events.pod_deleted(self._recorder, migration, name)

    # ------------------------------------------------------------ the instance

    async def _hand_over(self, migration: Object, vmi: Object, seen: view.Seen) -> None:
        assert seen.source is not None
        assert seen.target is not None
        chosen = self._seen.policy(vmi)
        settings = policy.effective(self._seen.settings(), chosen)
        new = state.handed_over(
            migration["metadata"]["uid"], seen.source, seen.target, settings, chosen
        )
        old = vmi["status"].get("migrationState")
        patch = {
            "metadata": {"labels": {view.TARGET_NODE: seen.target.node}},
            "status": {"migrationState": state.replacing(old, new)},
        }
        await self._patch_vmi(vmi, patch)
        log.info("handed over", extra=_facts(migration) | {"target": seen.target.node})
        events.handed_over(self._recorder, migration, seen.source.node, seen.target.node)

    async def _patch_state(self, vmi: Object, change: Object) -> None:
        await self._patch_vmi(vmi, {"status": {"migrationState": change}})

    async def _patch_vmi(self, vmi: Object, patch: Object) -> None:
        meta = vmi["metadata"]
        read = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **read}}
        with contextlib.suppress(NotFound):
            await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)

    # ------------------------------------------------------------ the migration

    async def _write(
        self, migration: Object, vmi: Object | None, seen: view.Seen, over_quota: str | None
    ) -> None:
        """Write the status, if anything changes, and tell how it ended."""
        changed = status.changes(migration, vmi, seen, over_quota)
        if not changed:
            return
        meta = migration["metadata"]
        read = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.MIGRATION, meta["name"], meta["namespace"],
                {"metadata": read, "status": changed}, subresource="status",
            )  # fmt: skip
            self._tell(migration, vmi, seen)

    def _tell(self, migration: Object, vmi: Object | None, seen: view.Seen) -> None:
        passed = phases(seen)
        if not passed:
            return
        log.info("migration went on", extra=_facts(migration) | {"phase": passed[-1]})
        match passed[-1]:
            case "Succeeded":
                events.succeeded(self._recorder, migration, vmi)
            case "Failed":
                events.failed(self._recorder, migration, vmi, failure(seen))

    async def _let_go(self, migration: Object) -> None:
        meta = migration["metadata"]
        kept = [each for each in meta.get("finalizers") or () if each != FINALIZER]
        read = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        with contextlib.suppress(NotFound):
            await self._client.patch(
                kinds.MIGRATION, meta["name"], meta["namespace"],
                {"metadata": {**read, "finalizers": kept or None}},
            )  # fmt: skip

    async def _forget(self, migration: Object, seen: view.Seen) -> list[timedelta]:
        """Delete what is too old to be kept; return when to look again."""
        past = self._seen.past(migration)
        old = {each.uid for each in history.too_old(each for _, each in past)}
        left = history.left_alone(seen.migration, seen.now)
        if seen.vmi is None and not left and not seen.migration.deleting:
            old.add(seen.migration.uid)
        for obj, each in past:
            if each.uid in old:
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        kinds.MIGRATION, each.name, obj["metadata"]["namespace"], uid=each.uid
                    )
        return [left] if seen.vmi is None and left else []


def _facts(obj: Object) -> dict[str, object]:
    return {obj["kind"].lower(): f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"}
