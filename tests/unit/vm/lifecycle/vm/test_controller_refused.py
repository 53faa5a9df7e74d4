"""What a quota refused is tried at once when the quota changes, however long it has waited."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from livevirt.errors import Forbidden, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import ManualClock
from livevirt.kube.control.controller import Controller
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.queue import Queue
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm.controller import VirtualMachines
from livevirt.vm.lifecycle.vmi.controller import Instances, Sources

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
WEB = Key("default", "web")
DOMAIN: Object = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
META: Object = {
    "name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "1", "generation": 1,
}  # fmt: skip
FULL: Object = {"kind": "ResourceQuota", "metadata": {"name": "full", "namespace": "default"}}


class FullServer:
    """Refuses every object that somebody wants to create, until there is room."""

    def __init__(self, *objects: Object) -> None:
        self._objects = {obj["kind"]: obj for obj in objects}
        self.room = False
        self.created: list[str] = []
        self.refused = 0

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        if kind.kind not in self._objects:
            raise NotFound(name)
        return self._objects[kind.kind]

    async def create(self, kind: Kind, obj: Object, namespace: str = "") -> Object:
        if not self.room:
            self.refused += 1
            raise Forbidden("exceeded quota: full")
        self.created.append(kind.kind)
        return {**obj, "metadata": {**obj["metadata"], "uid": "new"}}

    async def patch(self, kind: Kind, *_: Any, **__: Any) -> Object:
        return self._objects[kind.kind]


class Quiet:
    """A recorder that nobody reads."""

    def event(self, *_: Any) -> None:
        pass


def an_instance(informers: Informers, client: Client) -> Controller:
    of = informers.of
    sources = Sources(
        of(kinds.VMI), of(core.POD), of(core.CLAIM), of(kinds.DATA_VOLUME),
        of(core.QUOTA), of(core.LIMIT_RANGE), of(core.NAMESPACE),
        of(kinds.KUBEVIRT), of(core.PRIORITY_CLASS),
    )  # fmt: skip
    recorder = cast(Recorder, Quiet())
    return Instances(client, lambda: NOON, recorder, sources)._controller


def a_machine(informers: Informers, client: Client) -> Controller:
    recorder = cast(Recorder, Quiet())
    return VirtualMachines(client, lambda: NOON, recorder, informers)._controller


VMI: Object = {"kind": "VirtualMachineInstance", "metadata": META, "spec": DOMAIN, "status": {}}
VM: Object = {
    "kind": "VirtualMachine",
    "metadata": {**META, "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]},
    "spec": {"runStrategy": "Always", "template": {"spec": DOMAIN}},
    "status": {},
}
WAITING = {
    "an instance whose pod is refused": (kinds.VMI, VMI, an_instance, "Pod"),
    "a VM whose instance is refused": (kinds.VM, VM, a_machine, "VirtualMachineInstance"),
}


async def work(controller: Controller) -> None:
    """Do all that is ready."""
    while len(controller.queue):
        key = controller.queue.get_nowait()
        await controller._handle(key)
        controller.queue.done(key)


BOUNDS = (core.QUOTA, core.LIMIT_RANGE, core.PRIORITY_CLASS)


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda k: k.kind)
@pytest.mark.parametrize(("kind", "obj", "make", "wanted"), WAITING.values(), ids=WAITING)
async def test_given_twenty_refusals_when_a_bound_changes_then_it_is_tried_at_once(
    kind: Kind,
    obj: Object,
    make: Callable[[Informers, Client], Controller],
    wanted: str,
    bound: Kind,
) -> None:
    server, clock = FullServer(obj), ManualClock()
    client = cast(Client, server)
    informers = Informers(client)
    controller = make(informers, client)
    controller.queue = Queue(clock=clock)

    def tell(of: Kind, what: Object) -> None:
        informers.of(of)._publish(informers.of(of)._cache.put(what))

    tell(kind, obj)
    await work(controller)
    while server.refused < 20:
        due = clock.next()
        assert due is not None, "nobody tries again"
        clock.advance(due - clock.time())
        await work(controller)
    server.room = True
    full = FULL if bound.namespaced else {"kind": bound.kind, "metadata": {"name": "full"}}
    if bound.namespaced:
        elsewhere = {**full["metadata"], "namespace": "other"}
        tell(bound, {**full, "metadata": elsewhere})
        assert len(controller.queue) == 0, "a quota of another namespace is nobody's here"
    tell(bound, full)
    await work(controller)
    assert wanted in server.created
    tell(bound, {**full, "spec": {}})
    assert len(controller.queue) == 0, "what was done waits for nothing"
