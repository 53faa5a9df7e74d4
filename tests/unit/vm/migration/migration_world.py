"""A cluster of plain objects: its caches hear of changes late, its nodes act when told to."""

from __future__ import annotations

import copy
from collections import deque
from datetime import datetime, timedelta
from typing import Any, cast

from livevirt.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import core, times
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object, User
from livevirt.kube.server import patches
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi.launcher import pod_of
from livevirt.vm.migration import policy
from livevirt.vm.migration.admission import FINALIZER
from livevirt.vm.migration.caches import Sources
from livevirt.vm.migration.controller import MigrationController
from livevirt.vm.migration.queue import MigrationQueue
from livevirt.vm.migration.snapshot import JOB_UID
from livevirt.vm.spec.resources import Namespace

from .migration_builders import NOON

SPACE = "default"
KINDS = (
    kinds.MIGRATION, kinds.VMI, core.POD, kinds.MIGRATION_POLICY, core.QUOTA,
    core.NAMESPACE, kinds.KUBEVIRT,
)  # fmt: skip


def memory_of(pod: Object) -> int:
    """Return how much memory a launcher pod asks for."""
    return parse(pod["spec"]["containers"][0]["resources"]["requests"]["memory"]).bytes


class World:
    """What is true, and a controller that knows it only as far as it was told."""

    user = User("system:serviceaccount:kubevirt:livevirt-controller")

    def __init__(self, cluster: int, node: int) -> None:
        self.objects: dict[tuple[str, Key], Object] = {}
        self.time = NOON
        self.over_quota = False
        self.homes: dict[str, str] = {}  # the pod each guest is in
        self.finals: dict[str, str] = {}  # how the migrations ended, by uid
        self._version = 0
        self._untold: dict[str, deque[tuple[str, Object]]] = {k.resource: deque() for k in KINDS}
        self._client = cast(Client, self)
        self.informers = {kind.resource: Informer(self._client, kind) for kind in KINDS}
        self.start_controller()
        limits = {
            "parallelMigrationsPerCluster": cluster,
            "parallelOutboundMigrationsPerNode": node,
        }
        self.add(
            kinds.KUBEVIRT,
            {
                "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
                "spec": {"configuration": {"migrations": limits}},
            },
        )

    def start_controller(self) -> None:
        """Begin with nothing in memory, as after a crash."""
        self.informers = {kind.resource: Informer(self._client, kind) for kind in KINDS}
        for (resource, _), obj in self.objects.items():
            informer = self.informers[resource]
            informer._publish(informer._cache.put(obj))
            self._untold[resource].clear()
        sources = Sources(*(self.informers[kind.resource] for kind in KINDS))
        recorder = Recorder(self._client, "test", self.now)
        self.controller = MigrationController(self._client, self.now, recorder, sources)

    def now(self) -> datetime:
        return self.time

    # ------------------------------------------------------------ the API

    def add(self, kind: Kind, obj: Object) -> Object:
        meta = obj["metadata"]
        key = Key(meta.get("namespace") or "", meta["name"])
        if (kind.resource, key) in self.objects:
            raise AlreadyExists(key.name)
        self._version += 1
        made = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            **copy.deepcopy(obj),
            "metadata": {
                **copy.deepcopy(meta),
                "uid": meta.get("uid") or f"{kind.singular}-{key.name}-{self._version}",
                "resourceVersion": str(self._version),
                "creationTimestamp": times.format_time(self.time),
            },
        }
        self._store(kind, key, made)
        return made

    def _store(self, kind: Kind, key: Key, obj: Object) -> None:
        meta = obj["metadata"]
        gone = "deletionTimestamp" in meta and not meta.get("finalizers") and kind != core.POD
        if gone:
            self.objects.pop((kind.resource, key))
        else:
            self.objects[kind.resource, key] = obj
        self._untold[kind.resource].append(("gone" if gone else "there", obj))

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        found = self.objects.get((kind.resource, Key(namespace, name)))
        if found is None:
            raise NotFound(name)
        return found

    async def create(self, kind: Kind, obj: Object, namespace: str = "") -> Object:
        if kind is core.EVENT:
            return obj
        if kind is core.POD and self.over_quota:
            raise Forbidden("exceeded quota: small")
        made = self.add(kind, obj)
        made["status"] = {"phase": "Pending"}
        return made

    async def patch(
        self, kind: Kind, name: str, namespace: str, patch: Any, *, subresource: str = ""
    ) -> Object:
        old = await self.get(kind, name, namespace)
        asked = patch["metadata"].get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise Conflict(name)
        return self.change(kind, old, patch)

    def change(self, kind: Kind, old: Object, patch: Object) -> Object:
        self._version += 1
        stamp = {"metadata": {"resourceVersion": str(self._version)}}
        new = patches.apply_merge_patch(patches.apply_merge_patch(old, patch), stamp)
        key = Key(old["metadata"].get("namespace") or "", old["metadata"]["name"])
        if kind is kinds.VMI:
            self._check_handoff(old, new)
        self._store(kind, key, new)
        self._check_final(new)
        return new

    async def delete(self, kind: Kind, name: str, namespace: str = "", **rest: Any) -> None:
        old = await self.get(kind, name, namespace)
        if rest.get("uid") not in (None, old["metadata"]["uid"]):
            raise Conflict(name)
        if kind is core.POD:
            self._check_harmless(old)
        mark = {"metadata": {"deletionTimestamp": times.format_time(self.time)}}
        self.change(kind, old, mark)
        pod = kind is core.POD
        if pod and not (old["spec"].get("nodeName") and old["status"]["phase"] == "Running"):
            self.remove(kind, name)

    def remove(self, kind: Kind, name: str) -> None:
        obj = self.objects.pop((kind.resource, Key(SPACE, name)))
        self._untold[kind.resource].append(("gone", obj))

    # ------------------------------------------------------------ what must never be

    def _check_handoff(self, old: Object, new: Object) -> None:
        before, after = (obj["status"].get("migrationState") or {} for obj in (old, new))
        if before.get("migrationUid") != after.get("migrationUid"):
            assert not before or before.get("endTimestamp"), "handed over twice"
            pod = self.objects[core.POD.resource, Key(SPACE, after["targetPod"])]
            assert memory_of(pod) >= memory_of(pod_of(new, Namespace())), "the target is too small"
        assert not (before.get("completed") and after.get("failed") and not before.get("failed"))

    def _check_final(self, obj: Object) -> None:
        if obj["kind"] != kinds.MIGRATION.kind:
            return
        uid, phase = obj["metadata"]["uid"], (obj.get("status") or {}).get("phase") or ""
        assert self.finals.get(uid, phase) == phase, "a final migration changed"
        if phase in FINAL:
            self.finals[uid] = phase

    def _check_harmless(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        assert name not in self.homes.values(), "a guest was pulled away"
        for vmi in self.all(kinds.VMI):
            state = vmi["status"].get("migrationState") or {}
            if state and not state.get("endTimestamp"):
                assert name not in (state["sourcePod"], state["targetPod"]), "not ours to end"

    def check(self, cluster: int, node: int) -> None:
        """Assert the promises that hold at every moment."""
        jobs = [(pod["metadata"].get("labels") or {}).get(JOB_UID) for pod in self.pods()]
        targets = [uid for uid in jobs if uid]
        assert len(targets) == len(set(targets)), "two targets of a migration"
        leaving = []
        for each in self.all(kinds.MIGRATION):
            phase = (each.get("status") or {}).get("phase") or ""
            if phase in FINAL or each["metadata"]["uid"] not in targets:
                continue
            vmi = self.objects.get((kinds.VMI.resource, Key(SPACE, each["spec"]["vmiName"])))
            status = (vmi or {}).get("status") or {}
            state = status.get("migrationState") or {}
            mine = state.get("migrationUid") == each["metadata"]["uid"]
            leaving.append(state["sourceNode"] if mine else status.get("nodeName"))
        assert len(leaving) <= cluster, "more than the cluster allows"
        assert all(leaving.count(each) <= node for each in leaving), "more than a node allows"
        observed = self.controller.observer.queue
        fresh = MigrationQueue(observed.entry)
        fresh.invalidate(map(key_of, self.informers[kinds.MIGRATION.resource].list()))
        limits = policy.limits(self.controller.observer.caches.sources.kubevirt())
        assert observed.admitted() == fresh.admitted(limits, self.time), "a change was overlooked"

    # ------------------------------------------------------------ reading

    def all(self, kind: Kind) -> list[Object]:
        return [obj for (resource, _), obj in self.objects.items() if resource == kind.resource]

    def pods(self) -> list[Object]:
        return self.all(core.POD)

    # ------------------------------------------------------------ what happens

    def tell(self, kind: Kind) -> None:
        """Let the controller's cache hear of the next change of a kind."""
        if self._untold[kind.resource]:
            what, obj = self._untold[kind.resource].popleft()
            informer = self.informers[kind.resource]
            cache = informer._cache
            informer._publish(cache.remove(obj) if what == "gone" else cache.put(obj))

    def tell_all(self) -> None:
        for kind in KINDS:
            while self._untold[kind.resource]:
                self.tell(kind)

    async def reconcile(self, name: str) -> None:
        try:
            await self.controller.reconcile(Key(SPACE, name))
        except ApiError:
            return  # it would come again

    def add_guest(self, name: str, node: str) -> None:
        vmi = self.add(
            kinds.VMI,
            {
                "metadata": {"name": name, "namespace": SPACE},
                "spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}},
                "status": {"phase": "Running", "nodeName": node},
            },
        )
        pod = pod_of(vmi, Namespace())
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running"}
        self.add(core.POD, pod)
        self.homes[name] = pod["metadata"]["name"]

    def add_migration(self, name: str, vmi: str, **spec: Any) -> None:
        key = (kinds.MIGRATION.resource, Key(SPACE, name))
        if key not in self.objects:
            meta = {"name": name, "namespace": SPACE, "finalizers": [FINALIZER]}
            self.add(kinds.MIGRATION, {"metadata": meta, "spec": {"vmiName": vmi, **spec}})

    async def cancel(self, name: str) -> None:
        if (kinds.MIGRATION.resource, Key(SPACE, name)) in self.objects:
            await self.delete(kinds.MIGRATION, name, SPACE)

    def start_pod(self, index: int, *, well: bool = True) -> None:
        """Bind and start one of the pods that wait, or let it fail."""
        waiting = [pod for pod in self.pods() if pod["status"]["phase"] == "Pending"]
        if waiting:
            pod = waiting[index % len(waiting)]
            status = {"phase": "Running" if well else "Failed"}
            self.change(core.POD, pod, {"spec": {"nodeName": "t"}, "status": status})

    def end_pods(self) -> None:
        """Let the pods that are being deleted be gone."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.remove(core.POD, pod["metadata"]["name"])

    def node_step(self, name: str, *, well: bool) -> None:
        """Let the nodes of a guest that moves do the next thing."""
        vmi = self.objects[kinds.VMI.resource, Key(SPACE, name)]
        state = vmi["status"].get("migrationState") or {}
        if not state or state.get("endTimestamp"):
            return
        ended = {"endTimestamp": times.format_time(self.time)}
        target = self.objects.get((core.POD.resource, Key(SPACE, state["targetPod"])))
        if target is None:
            return
        change: Object = {}
        if state.get("abortRequested") or not well:
            change = {**ended, "failed": True, "failureReason": "a node said so"}
            self.change(core.POD, target, {"status": {"phase": "Failed"}})
        elif not state.get("targetNodeAddress"):
            change = {"targetNodeAddress": "here"}
        elif not state.get("startTimestamp"):
            change = {"startTimestamp": times.format_time(self.time)}
        else:
            change = {**ended, "completed": True}
            self.homes[name] = state["targetPod"]
        moved = {"nodeName": state["targetNode"]} if change.get("completed") else {}
        self.change(kinds.VMI, vmi, {"status": {"migrationState": change, **moved}})

    def grow(self, name: str) -> None:
        """Let a guest be given more memory, as far as it has not been."""
        vmi = self.objects[kinds.VMI.resource, Key(SPACE, name)]
        memory = {"guest": "128Mi"}
        self.change(kinds.VMI, vmi, {"spec": {"domain": {"memory": memory}}})

    def pass_time(self, seconds: int) -> None:
        self.time += timedelta(seconds=seconds)
