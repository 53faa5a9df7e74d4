"""Watches pods and nodes, binds the pods that have none, and reports why others must wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from livevirt.errors import Conflict, NotFound
from livevirt.kube.client.interface import Client, Patch
from livevirt.kube.control import backoff
from livevirt.kube.control.cache import Change, Key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.controller import DONE, Controller, Result
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.queue import Queue
from livevirt.kube.controllers.scheduler import objects
from livevirt.kube.controllers.scheduler.fleet import Fleet
from livevirt.kube.controllers.scheduler.objects import Pod
from livevirt.kube.controllers.scheduler.plan import Place, Wait, plan
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.request import Object, status_of

log = logging.getLogger(__name__)

WORKERS = 32  # bindings under way at once; the store commits them together
FIRST_WAIT, LONGEST_WAIT = 0.2, 1.0  # seconds until a pod is tried again after a change


@dataclass(frozen=True, slots=True)
class Sources:
    """The informers of what a decision depends on."""

    pods: Informer
    nodes: Informer
    namespaces: Informer


class Scheduler:
    """Schedules pods of the default scheduler, but for those that no node runs.

    `not_run` returns why no node runs a pod, empty if nodes do.
    """

    def __init__(
        self,
        client: Client,
        now: Now,
        recorder: Recorder,
        sources: Sources,
        not_run: Callable[[Object], str],
    ) -> None:
        self._client, self._now, self._recorder = client, now, recorder
        self._pods, self._not_run = sources.pods, not_run
        self._fleet = Fleet()
        self._waiting: dict[Key, None] = {}  # found no node when last tried
        self._lonely: dict[Key, None] = {}  # those of them that want to be near others
        self._tries: dict[Key, int] = {}
        self._backing_off: dict[int, dict[Key, None]] = {}  # to be tried again later, by priority
        self._informers = (sources.nodes, sources.namespaces, sources.pods)
        self._controller = Controller(
            "scheduler", self.reconcile, workers=WORKERS, queue=Queue(rank=self._priority)
        )
        sources.nodes.on_change(self._on_node)
        sources.namespaces.on_change(self._on_namespace)
        sources.pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Schedule until cancelled."""
        for informer in self._informers:
            await informer.synced.wait()
        await self._controller.run()

    async def reconcile(self, key: Key) -> Result:
        """Give a pod a node, or say why there is none."""
        obj = self._pods.get(key)
        if obj is None or not objects.wants_node(obj):
            return DONE
        if reason := self._not_run(obj):
            await self._report(obj, reason)
            return DONE
        pod = objects.read_pod(obj)
        self._backing_off.get(pod.priority, {}).pop(key, None)
        if self._fleet.assumes(key, pod.uid) or self._defers(pod):
            return DONE
        # Up to here nothing was awaited, and the plan counts at once: no two pods share a place.
        match plan(pod, self._fleet):
            case Place(node):
                self._fleet.assume(pod, node)
                await self._bind(obj, pod, node)
            case Wait(message):
                self._waiting[key] = None
                if pod.affinity.near:
                    self._lonely[key] = None
                await self._report(obj, message)
        return DONE

    def _priority(self, key: Key) -> int:
        obj = self._pods.get(key)
        return 0 if obj is None else objects.priority(obj)

    def _defers(self, pod: Pod) -> bool:
        """Queue a pod behind those of a higher priority that back off; return whether it did.

        Otherwise it could take the room that one of them is about to be tried for.
        """
        ahead = [p for p, keys in self._backing_off.items() if keys and p > pod.priority]
        for each in ahead:
            for key in self._backing_off.pop(each):
                self._controller.queue.add(key)
        if ahead:
            self._controller.queue.add(pod.key)
        return bool(ahead)

    async def _bind(self, obj: Object, pod: Pod, node: str) -> None:
        key = pod.key
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        bound = False
        try:
            await self._client.create(
                core.POD, binding, key.namespace, name=key.name, subresource="binding"
            )
            bound = True
        except (NotFound, Conflict) as error:  # gone, going, or bound by another writer by now
            log.debug("pod was not bound", extra={"pod": str(key), "error": str(error)})
        finally:
            if not bound and self._fleet.forget(pod):
                self._retry()
        if bound:
            self._tries.pop(key, None)
            self._retry_lonely()
            message = f"Successfully assigned {key} to {node}"
            self._recorder.event(obj, "Normal", "Scheduled", message)
            log.info("pod scheduled", extra={"pod": str(key), "node": node})

    async def _report(self, obj: Object, message: str) -> None:
        condition = unschedulable(obj, message, self._now())
        if condition is None:
            return
        meta = obj["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                core.POD, meta["name"], meta["namespace"], Patch("strategic", patch),
                subresource="status",
            )  # fmt: skip
        except NotFound:
            return
        self._recorder.event(obj, "Warning", "FailedScheduling", message)

    def _on_pod(self, change: Change) -> None:
        key, old, new = change
        if new is None or objects.has_ended(new):
            self._leave(key)
            if self._fleet.remove_pod(key):
                self._retry()
        elif new["spec"].get("nodeName"):
            self._leave(key)
            if self._fleet.put_pod(objects.read_pod(new)):
                self._retry()  # it may be smaller now, or company for another
        elif objects.wants_node(new) and (old is None or _asks_again(old, new)):
            self._controller.queue.add(key)

    def _leave(self, key: Key) -> None:
        self._tries.pop(key, None)
        for keys in (self._waiting, self._lonely, *self._backing_off.values()):
            keys.pop(key, None)

    def _on_node(self, change: Change) -> None:
        if change.new is None:
            self._fleet.remove_node(change.key.name)
            return
        node = objects.read_node(change.new)
        if self._fleet.nodes.get(node.name) != node:  # a heartbeat is no news
            self._fleet.put_node(node)
            self._retry()

    def _on_namespace(self, change: Change) -> None:
        if change.new is None:
            self._fleet.remove_namespace(change.key.name)
            return
        labels = change.new["metadata"].get("labels") or {}
        if self._fleet.put_namespace(change.key.name, labels):
            self._retry()

    def _retry(self) -> None:
        """Try the waiting pods again."""
        for key in list(self._waiting):
            self._try_again(key)

    def _retry_lonely(self) -> None:
        """Try those again for whom another pod's place may be what they waited for."""
        for key in list(self._lonely):
            self._try_again(key)

    def _try_again(self, key: Key) -> None:
        """Try soon at first, later less often, so that a storm of changes stays cheap."""
        self._waiting.pop(key, None)
        self._lonely.pop(key, None)
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        wait = back_off(tries)
        if wait:
            self._backing_off.setdefault(self._priority(key), {})[key] = None
        self._controller.queue.add_after(key, wait)


def back_off(tries: int) -> float:
    """Return after how many seconds a pod is tried again for the given time."""
    return backoff.delay(tries - 1, FIRST_WAIT, LONGEST_WAIT)


def _asks_again(old: Object, new: Object) -> bool:
    """Return whether a pod changed in a way that bears on where it can be."""
    return (
        old["spec"] != new["spec"]
        or old["metadata"].get("labels") != new["metadata"].get("labels")
        or objects.wants_node(old) != objects.wants_node(new)
    )


def unschedulable(obj: Object, message: str, now: datetime) -> Object | None:
    """Return the condition that reports why a pod waits; None if it is set already."""
    before = status_of(obj).get("conditions")
    wanted = conditions.condition("PodScheduled", False, "Unschedulable", message)
    found = conditions.find(before, "PodScheduled")
    if found is not None and all(found.get(name) == value for name, value in wanted.items()):
        return None
    return conditions.find(conditions.with_condition(before, wanted, now), "PodScheduled")
