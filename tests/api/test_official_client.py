"""VMs through clients that are not kubectl: the official one for Python, and our own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from kubernetes import config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, UnprocessibleEntityError

from livevirt.kube.client import kubeconfig
from livevirt.kube.client.remote import RemoteClient
from livevirt.vm.kinds import VM

from ..server_process import ServerProcess
from .manifests import a_halted_vm

pytestmark = pytest.mark.slow
SECONDS = 60


@pytest.fixture
def vms(server: ServerProcess, namespace: str) -> Iterator[Any]:
    """The official dynamic client's view of VMs, with the namespace to use them in."""
    api = config.new_client_from_config(str(server.kubeconfig))
    with api:
        client = DynamicClient(api, cache_file=str(server.home / "discovery.json"))
        yield client.resources.get(api_version="kubevirt.io/v1", kind="VirtualMachine")


def sockets(vm: Any) -> int:
    found: int = vm["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"]
    return found


def to_sockets(count: int) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": count}}}}}}


def until_deleted(events: Iterable[Any]) -> Iterator[Any]:
    """Yield events up to the end of the object."""
    for event in events:
        yield event
        if event["type"] == "DELETED":
            return


def wait_until_gone(vms: Any, namespace: str, name: str) -> None:
    """Return once there is no such VM; controllers may have something to do first."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            vms.get(name=name, namespace=namespace)
        except NotFoundError:
            return
        time.sleep(0.02)
    raise AssertionError(f"{name} is still there")


def as_told(seen: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return what was seen without repeats: controllers write to the status in between."""
    told = list(dict.fromkeys(seen))
    return [event for event in told if event != ("MODIFIED", 1)]  # from before our own change


def test_the_dynamic_client_creates_lists_and_deletes_vms(vms: Any, namespace: str) -> None:
    for name in ("web", "db"):
        vms.create(body=a_halted_vm(name, tier=name), namespace=namespace)
    listed = vms.get(namespace=namespace)
    assert [vm.metadata.name for vm in listed.items] == ["db", "web"]
    selected = vms.get(namespace=namespace, label_selector="tier=db")
    assert [vm.metadata.name for vm in selected.items] == ["db"]
    page = vms.get(namespace=namespace, limit=1)
    rest = vms.get(namespace=namespace, limit=1, _continue=page.metadata["continue"])
    assert [vm.metadata.name for vm in (*page.items, *rest.items)] == ["db", "web"]
    vms.delete(name="web", namespace=namespace)
    wait_until_gone(vms, namespace, "web")
    assert [vm.metadata.name for vm in vms.get(namespace=namespace).items] == ["db"]


def test_the_dynamic_client_patches_and_replaces_vms(vms: Any, namespace: str) -> None:
    created = vms.create(body=a_halted_vm("web"), namespace=namespace)
    patched = vms.patch(
        name="web", namespace=namespace, body=to_sockets(2),
        content_type="application/merge-patch+json",
    )  # fmt: skip
    assert sockets(patched.to_dict()) == 2
    step = {"op": "replace", "path": "/spec/template/spec/domain/cpu/sockets", "value": 3}
    patched = vms.patch(
        name="web", namespace=namespace, body=[step], content_type="application/json-patch+json"
    )
    assert sockets(patched.to_dict()) == 3
    with pytest.raises(ConflictError):
        vms.replace(body=created.to_dict(), namespace=namespace)
    with pytest.raises(UnprocessibleEntityError):
        vms.create(body=a_halted_vm("No Name"), namespace=namespace)


def test_the_dynamic_client_watches_vms(vms: Any, namespace: str) -> None:
    vms.create(body=a_halted_vm("web"), namespace=namespace)
    version = vms.get(namespace=namespace).metadata.resourceVersion

    def change() -> None:
        vms.patch(
            name="web", namespace=namespace, body=to_sockets(2),
            content_type="application/merge-patch+json",
        )  # fmt: skip
        vms.delete(name="web", namespace=namespace)

    writer = threading.Thread(target=change)
    writer.start()
    events = vms.watch(namespace=namespace, resource_version=version, timeout=SECONDS)
    seen = [(event["type"], sockets(event["raw_object"])) for event in until_deleted(events)]
    writer.join()
    assert as_told(seen) == [("MODIFIED", 2), ("DELETED", 2)]


@pytest.fixture
async def remote(server: ServerProcess) -> AsyncIterator[RemoteClient]:
    client = RemoteClient(kubeconfig.find(str(server.kubeconfig)))
    yield client
    await client.close()


async def test_our_remote_client_lists_watches_and_patches_vms(
    remote: RemoteClient, namespace: str
) -> None:
    await remote.create(VM, a_halted_vm("web"), namespace)
    page = await remote.list(VM, namespace)
    assert [vm["metadata"]["name"] for vm in page.items] == ["web"]
    patched = await remote.patch(VM, "web", namespace, to_sockets(2))
    assert sockets(patched) == 2
    await remote.delete(VM, "web", namespace)
    seen = []
    watch: Any = remote.watch(VM, namespace, resource_version=page.resource_version)
    async with asyncio.timeout(SECONDS), aclosing(watch):
        async for event in watch:
            seen.append((event.type, sockets(event.object)))
            if event.type == "DELETED":
                break
    assert as_told(seen) == [("MODIFIED", 2), ("DELETED", 2)]
