"""A VM that no webhook has prepared is started as one that was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vm.controller import VirtualMachines
from livevirt.vm.lifecycle.vm_admission import FINALIZER

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
VM: Object = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {
        "name": "web", "namespace": "ns", "uid": "u1", "resourceVersion": "1", "generation": 1,
    },
    "spec": {
        "runStrategy": "Always",
        "template": {
            "spec": {"domain": {"cpu": {"guest": 2}, "memory": {"guest": "64Mi"}, "devices": {}}}
        },
    },
}  # fmt: skip


class Server:
    """Stores one VM, and keeps what is created."""

    def __init__(self) -> None:
        self.vm = VM
        self.created: dict[str, Object] = {}

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        if kind is not kinds.VM:
            raise NotFound(name)
        return self.vm

    async def create(self, kind: Kind, obj: Object, namespace: str = "") -> Object:
        self.created[kind.kind] = obj
        return {**obj, "metadata": {**obj["metadata"], "uid": "new"}}

    async def patch(self, kind: Kind, name: str, namespace: str, patch: Object, **_: Any) -> Object:
        metadata = {**self.vm["metadata"], **patch["metadata"], "resourceVersion": "2"}
        self.vm = {**self.vm, "metadata": metadata}
        return self.vm


class Quiet:
    """A recorder that nobody reads."""

    def event(self, *_: Any) -> None:
        pass


async def test_given_a_vm_without_finalizer_then_its_instance_has_the_expanded_size() -> None:
    server = Server()
    client = cast(Client, server)
    informers = Informers(client)
    controller = VirtualMachines(client, lambda: NOON, cast(Recorder, Quiet()), informers)
    informers.of(kinds.VM)._cache.put(VM)
    await controller.reconcile(Key("ns", "web"))
    assert server.vm["metadata"]["finalizers"] == [FINALIZER]
    cpu = server.created["VirtualMachineInstance"]["spec"]["domain"]["cpu"]
    assert (cpu.get("guest"), cpu["sockets"]) == (None, 2)
