"""Brings every VirtualMachineInstance to a pod, and with it to its end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from livevirt.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key, key_of, owner_key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Refused, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import core
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.lifecycle.vmi import launcher, view
from livevirt.vm.lifecycle.vmi import status as vmi_status
from livevirt.vm.lifecycle.vmi.plan import CreatePod, DeletePod, LetGo, Wait, end_unknown, plan
from livevirt.vm.lifecycle.vmi.pod_runtime import EMBEDDED, PodRuntime
from livevirt.vm.lifecycle.vmi.view import Problem
from livevirt.vm.lifecycle.vmi_admission import FINALIZER
from livevirt.vm.migration import migratability
from livevirt.vm.sizing import hot_change, resizing
from livevirt.vm.sizing.hot_change import Obstacle
from livevirt.vm.sizing.resizing import Ask, Attempts, Bounds
from livevirt.vm.spec.resources import Namespace, as_started, namespace_of
from livevirt.vm.verdict import template_metadata
from livevirt.vm.volumes.volume_lists import claim_of

log = logging.getLogger(__name__)

GATHER = 1.0  # seconds a new pod has to find its node before its search is worth a write
WORKERS = 4
_USABLE = ("Succeeded", "WaitForFirstConsumer", "PendingPopulation")


@dataclass(frozen=True, slots=True)
class Sources:
    """The informers of what an instance depends on."""

    instances: Informer
    pods: Informer
    claims: Informer
    volumes: Informer  # DataVolumes
    quotas: Informer
    limits: Informer  # LimitRanges
    namespaces: Informer
    settings: Informer  # KubeVirt
    priority_classes: Informer

    def launcher(self, pod: Object, vmi: Object) -> view.Launcher:
        """Return the view of a pod, and of a claim that its node does not find."""
        found = view.pod(pod, vmi)
        if found.problem is None or found.problem.reason != vmi_status.CLAIM_NOT_FOUND:
            return found
        namespace, volumes = vmi["metadata"]["namespace"], vmi["spec"].get("volumes") or ()
        for claim in filter(None, map(claim_of, volumes)):
            if self.claims.get(Key(namespace, claim)) is None:
                return replace(found, problem=replace(found.problem, claim=claim))
        return found

    def missing(self, vmi: Object) -> Problem | None:
        """Return what keeps the pod from being created."""
        namespace, spec = vmi["metadata"]["namespace"], vmi["spec"]
        named = {(each.get("dataVolume") or {}).get("name") for each in spec.get("volumes") or ()}
        for claim in launcher.claim_names(vmi):
            key = Key(namespace, claim)
            found, data = self.claims.get(key), self.volumes.get(key)
            filled = data is not None and (claim in named or _made_for(found, data))
            phase = status_of(data).get("phase")
            if filled and phase not in _USABLE:
                return Problem("DataVolumesNotReady", f"DataVolume {claim} is not ready yet")
            if found is None:
                message = f"PVC {key} does not exist, waiting for it to appear"
                return Problem(vmi_status.CLAIM_NOT_FOUND, message, claim)
        return None

    def bounds(self, namespace: str) -> Bounds:
        """Return what a namespace lets its pods have."""
        return Bounds(self.quotas.list(namespace), self.limits.list(namespace))

    def namespace(self, name: str) -> Namespace:
        """Return what a namespace demands of its pods."""
        return namespace_of(
            self.quotas.list(name),
            self.namespaces.get(Key("", name)),
            self.settings.get(Key(config.NAMESPACE, config.NAME)),
        )


class Instances:
    """Watches instances, their pods and what they wait for."""

    def __init__(
        self, client: Client, now: Now, recorder: Recorder, sources: Sources,
        runtime: PodRuntime = EMBEDDED,
    ) -> None:  # fmt: skip
        self._client, self._now, self._recorder = client, now, recorder
        self._from, self._runtime = sources, runtime
        self._ended: dict[Key, tuple[str, datetime]] = {}  # uid, and since when its end is unknown
        self._attempts: dict[Key, Attempts] = {}  # at a change of size that failed
        sources.pods.index("launcher", _launched_for)
        sources.instances.index("claim", _claims)
        self._controller = Controller("vmi", self.reconcile, workers=WORKERS)
        self._controller.watches(sources.instances)
        self._controller.watches(sources.pods, lambda _: ())  # woken by `_note`
        self._controller.watches(sources.claims, self._users)
        self._controller.watches(sources.volumes, self._users)
        sources.pods.on_change(self._note)
        bounds = (sources.quotas, sources.limits)
        self._refused = Refused(self._controller, *bounds, sources.priority_classes)
        for informer in bounds:
            informer.on_change(self._retry_resizes)
        sources.settings.on_change(self._retry_all)

    async def run(self) -> None:
        """Work until cancelled."""
        looked_up = (self._from.quotas, self._from.limits, self._from.namespaces)
        for informer in (*looked_up, self._from.settings):
            await informer.synced.wait()
        await self._controller.run()

    def _note(self, change: Change) -> None:
        """Wake the instance of a pod; one that is being scheduled can wait for its node."""
        pod = change.new or change.old
        assert pod is not None
        fresh = change.old is None and change.new is not None and not pod["spec"].get("nodeName")
        for key in owner_key(kinds.VMI)(pod):
            self._controller.queue.add_after(key, GATHER if fresh else 0)

    def _users(self, claim: Object) -> Iterable[Key]:
        return [key_of(vmi) for vmi in self._from.instances.by("claim", key_of(claim))]

    def _retry_resizes(self, change: Change) -> None:
        """Wake the instances whose pods may not grow: there may be room now."""
        for key in self._attempts:
            if key.namespace == change.key.namespace:
                self._controller.queue.add(key)

    def _retry_all(self, change: Change) -> None:
        """Wake the instances that change their size: by other settings they may do it elsewhere."""
        if (change.old or {}).get("spec") != (change.new or {}).get("spec"):
            for vmi in self._from.instances.list():
                if hot_change.under_way(vmi):
                    self._controller.queue.add(key_of(vmi))

    async def reconcile(self, key: Key) -> Result:
        """Bring one instance towards a running guest or to its end."""
        with self._refused.unless_done(key):
            return await self._advance(key)

    async def _advance(self, key: Key) -> Result:
        vmi = self._from.instances.get(key)
        if vmi is None:
            self._ended.pop(key, None)
            self._attempts.pop(key, None)
            return DONE
        pods = self._pods(vmi)
        seen = self._seen(vmi, pods)
        steps = plan(seen)
        if CreatePod() in steps:
            await self._create_pod(vmi, seen)
            return DONE  # the pod will wake us
        if seen.missing is not None and seen.pod is None and not seen.vmi.deleting:
            vmi_status.waits_for(self._recorder, vmi, seen.missing)
        await self._label_pods(vmi, pods)
        home, obstacle = pods[0] if seen.pod is not None else None, hot_change.obstacle(vmi)
        if home is not None and not seen.vmi.deleting:
            obstacle = await self._resize(key, vmi, home)
        await self._write(vmi, home, replace(seen, obstacle=obstacle), let_go=LetGo() in steps)
        for step in steps:
            match step:
                case DeletePod(name, uid, grace):
                    await self._delete_pod(vmi, name, uid, grace)
                case Wait(time):
                    return Result(after=time)
        wait = self._attempts[key].wait(self._now()) if key in self._attempts else timedelta(0)
        return Result(after=wait) if wait else DONE

    # ------------------------------------------------------------ a change of size

    async def _resize(self, key: Key, vmi: Object, pod: Object) -> Obstacle | None:
        """Give the pod the room a change of size needs; return what keeps it from having that.

        A change that QEMU refused gives its room back and has to wait before it is tried again.
        """
        known, now = hot_change.obstacle(vmi), self._now()
        if _ended(pod):
            return known
        if not hot_change.under_way(vmi):
            self._attempts.pop(key, None)
            return None
        if migratability.moving(vmi):  # to a pod that has the size
            return resizing.moving(vmi)
        attempts, failed = self._attempts.get(key, Attempts()), resizing.is_plug_failed(vmi)
        if failed and attempts.last is None and not attempts.is_trying(now):
            attempts = self._attempts[key] = attempts.failed(now)
        back = failed and attempts.last is not None and bool(attempts.wait(now))
        namespace = vmi["metadata"]["namespace"]
        demands = as_started(self._from.namespace(namespace), pod)
        need = resizing.needed(vmi, demands, back=back)
        settings = config.read(self._from.settings.get(Key(config.NAMESPACE, config.NAME)))
        if why := resizing.by_migration(vmi, pod, need, settings):
            return known if back else resizing.waiting(vmi, why, settings)
        containers = resizing.containers(vmi, pod, need)
        if containers is not None:
            hindrance = migratability.hindrance(vmi, settings)
            ask = Ask(need, self._from.bounds(namespace), hindrance)
            if attempts.waits(ask, now):
                return attempts.obstacle
            try:
                await self._ask_resize(vmi, pod, containers)
            except (Forbidden, Invalid) as error:
                found = resizing.refusal(error, pod, ask)
                self._attempts[key] = replace(attempts.failed(now), refused=ask, obstacle=found)
                if known is None or found.reason != known.reason:
                    vmi_status.resize_refused(self._recorder, vmi, found)
                return found
        if back:
            return known
        if failed and attempts.last is not None:
            self._attempts[key] = attempts.again(now)
        elif not failed:
            self._attempts.pop(key, None)
        return None

    async def _ask_resize(self, vmi: Object, pod: Object, containers: list[Object]) -> None:
        meta = pod["metadata"]
        version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        patch = {"metadata": version, "spec": {"containers": containers}}
        name, namespace = meta["name"], meta["namespace"]
        with contextlib.suppress(NotFound):
            await self._client.patch(core.POD, name, namespace, patch, subresource="resize")
            log.info("pod to be resized", extra=_facts(vmi) | {"pod": name})
            vmi_status.resize_asked(self._recorder, vmi, pod, containers)

    # ------------------------------------------------------------ reading

    def _pods(self, vmi: Object) -> list[Object]:
        """Return an instance's pods, the one its guest is in first, the newest before others."""
        found = self._from.pods.by("launcher", vmi["metadata"]["uid"])
        found = sorted(found, key=_made, reverse=True)
        return sorted(found, key=lambda pod: (not view.is_home(pod, vmi), _ended(pod)))

    def _seen(self, vmi: Object, pods: list[Object]) -> view.InstanceSnapshot:
        missing = None if pods else self._from.missing(vmi)
        launchers = tuple(self._from.launcher(pod, vmi) for pod in pods)
        seen = view.InstanceSnapshot(view.instance(vmi), launchers, missing)
        key, uid, now = key_of(vmi), vmi["metadata"]["uid"], self._now()
        if not end_unknown(seen):
            self._ended.pop(key, None)
            return seen
        known, since = self._ended.get(key, ("", now))
        if known != uid:
            self._ended[key] = uid, now
            since = now
        return replace(seen, left=max(now - since, timedelta(0)))

    # ------------------------------------------------------------ writing

    async def _create_pod(self, vmi: Object, seen: view.InstanceSnapshot) -> None:
        await self._check_current(vmi)
        namespace = vmi["metadata"]["namespace"]
        pod = launcher.pod_of(vmi, self._from.namespace(namespace))
        pod = self._runtime.complete(pod, vmi)
        name = pod["metadata"]["name"]
        try:
            await self._client.create(core.POD, pod, namespace)
        except AlreadyExists:
            await self._check_own(vmi, name)
            return
        except ApiError as error:
            vmi_status.pod_failed(self._recorder, vmi, error.message)
            await self._write(
                vmi, None, replace(seen, failure=Problem(vmi_status.FAILED_CREATE, error.message))
            )
            raise
        log.info("pod created", extra=_facts(vmi) | {"pod": name})
        vmi_status.pod_created(self._recorder, vmi, name)

    async def _label_pods(self, vmi: Object, pods: list[Object]) -> None:
        """Give pods the labels and annotations that their instance got or lost while it runs."""
        made = launcher.made_metadata(vmi)
        for pod in pods:
            changed = template_metadata.pod_patch(vmi, pod, made)
            if changed is None or _ended(pod):
                continue
            meta = pod["metadata"]
            patch = {"metadata": {"uid": meta["uid"], **changed}}
            with contextlib.suppress(NotFound):
                await self._client.patch(core.POD, meta["name"], meta["namespace"], patch)
                log.info("pod labelled", extra=_facts(vmi) | {"pod": meta["name"]})

    async def _check_current(self, vmi: Object) -> None:
        """Raise Conflict unless the instance is as it was read: a second pod must never be."""
        meta = vmi["metadata"]
        try:
            current = await self._client.get(kinds.VMI, meta["name"], meta["namespace"])
        except NotFound:
            raise Conflict(f"instance {meta['name']} is gone") from None
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(f"instance {meta['name']} has changed since it was read")

    async def _check_own(self, vmi: Object, name: str) -> None:
        """Raise Conflict if the pod of our name has another owner."""
        found = await self._client.get(core.POD, name, vmi["metadata"]["namespace"])
        if vmi["metadata"]["uid"] not in _launched_for(found):
            raise Conflict(f"pod {name} belongs to another owner")

    async def _delete_pod(self, vmi: Object, name: str, uid: str, grace: int) -> None:
        with contextlib.suppress(NotFound):
            await self._client.delete(
                core.POD, name, vmi["metadata"]["namespace"], uid=uid, grace_seconds=grace
            )
            log.info("pod deleted", extra=_facts(vmi) | {"pod": name, "grace": grace})
            vmi_status.pod_deleted(self._recorder, vmi, name)

    async def _write(
        self,
        vmi: Object,
        pod: Object | None,
        seen: view.InstanceSnapshot,
        *,
        let_go: bool = False,
    ) -> None:
        """Write status, labels and finalizers in one patch, if anything changes."""
        meta = vmi["metadata"]
        status = vmi_status.changes(vmi, pod, seen, self._now())
        labels = vmi_status.label_changes(vmi, seen)
        if not (status or labels or let_go):
            return
        changed: Object = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        if labels:
            changed["labels"] = labels
        if let_go:
            changed["finalizers"] = [f for f in meta.get("finalizers") or () if f != FINALIZER]
        patch = {"metadata": changed, **({"status": status} if status else {})}
        with contextlib.suppress(NotFound):
            await self._client.patch(kinds.VMI, meta["name"], meta["namespace"], patch)


def _launched_for(pod: Object) -> list[str]:
    """Return the uid of the instance a pod was made for."""
    uid = (pod["metadata"].get("labels") or {}).get(launcher.CREATED_BY)
    owners = pod["metadata"].get("ownerReferences") or ()
    return [uid] if uid and any(owner["uid"] == uid for owner in owners) else []


def _made_for(claim: Object | None, data: Object) -> bool:
    """Return whether a claim is the one that a DataVolume fills."""
    owners = (claim["metadata"].get("ownerReferences") or ()) if claim is not None else ()
    return any(owner["uid"] == data["metadata"]["uid"] for owner in owners)


def _claims(vmi: Object) -> list[Key]:
    return [Key(vmi["metadata"]["namespace"], name) for name in launcher.claim_names(vmi)]


def _made(pod: Object) -> tuple[str, str]:
    """Return when a pod was made; of the same second, what sorts the same each time."""
    return pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]


def _ended(pod: Object) -> bool:
    return status_of(pod).get("phase") in FINAL


def _facts(vmi: Object) -> dict[str, object]:
    return {"vmi": f"{vmi['metadata']['namespace']}/{vmi['metadata']['name']}"}
