"""The world of VMs on a real Kubernetes cluster, for `--on kubernetes`.

One cluster without nodes serves all tests. Webhook, controllers and API server run in one process
beside it, and every test leaves the namespace `default` and the settings as it found them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import os
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import quote, urlsplit

import pytest
import yaml

from livevirt.errors import ApiError, NotFound
from livevirt.kube.client import kubeconfig, wire
from livevirt.kube.client.interface import Client
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.objects import core
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import ActionPath, Answer, Object, User
from livevirt.kube.server.services import StoreReader
from livevirt.vm import kinds
from livevirt.vm.kinds import subresources

from ...kubernetes.all_components import cluster_with_all_components
from ...kubernetes.cluster import KubernetesCluster
from ...kubernetes.controller_process import EMULATING
from .vm_world import CONTROLLER, NAMESPACE, NODE, World

SECONDS = 60.0
#: What tests create besides VMs, removed after each of them.
NAMESPACED = (
    kinds.MIGRATION, kinds.INSTANCETYPE, kinds.PREFERENCE, kinds.DATA_VOLUME, core.CLAIM,
    core.REVISION, core.QUOTA, core.LIMIT_RANGE, core.SECRET, core.EVENT,
)  # fmt: skip
CLUSTER_WIDE = (
    core.NODE, core.PRIORITY_CLASS, core.NAMESPACE, kinds.CLUSTER_INSTANCETYPE,
    kinds.CLUSTER_PREFERENCE, kinds.MIGRATION_POLICY,
)  # fmt: skip


@contextlib.contextmanager
def cluster_for_vms(folder: Path) -> Iterator[KubernetesCluster]:
    """Run a cluster without nodes, with all components in one process of its network."""
    if os.geteuid() != 0:
        pytest.skip("clusters need root for their namespaces")
    name = f"both-{os.getpid()}"
    with cluster_with_all_components(name, folder, EMULATING) as started:
        yield started


class ClusterReader:
    """Reads objects from the API server at once, so that tests see their own writes."""

    def __init__(self, path: str) -> None:
        config = yaml.safe_load(Path(path).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._host = urlsplit(cluster["server"]).netloc
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]) + b"\n")
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._connection, self._lock = self._connect(), threading.Lock()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, context=self._context, timeout=SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, None if there is none."""
        return self._read(kind.path(namespace, quote(name)))

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with "")."""
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [
            named | each for each in (self._read(kind.path(namespace)) or {"items": []})["items"]
        ]

    def _read(self, path: str) -> Object | None:
        answer = self.send("GET", path)
        if answer.code == 404:
            return None
        assert answer.code == 200, (path, answer)
        return cast(Object, answer.body)

    def send(self, method: str, path: str, body: Any = None) -> Answer:
        """Send any request, again if the connection was idle for too long."""
        data = json.dumps(body) if body is not None else None
        with self._lock:
            for last in (False, True):
                try:
                    self._connection.request(
                        method, path, data, {"Content-Type": "application/json"}
                    )
                    answer = self._connection.getresponse()
                    text = answer.read()
                    break
                except (http.client.HTTPException, OSError):
                    self._connection.close()
                    self._connection = self._connect()
                    if last:
                        raise
        warnings = (each.partition('"')[2][:-1] for each in answer.headers.get_all("Warning", ()))
        return Answer(answer.status, json.loads(text) if text else None, tuple(warnings))


class ClusterWorld(World):
    """A namespace of a cluster, with the methods that tests know from the embedded server.

    A test that looks into the embedded server itself is skipped.
    """

    embedded = False

    def __init__(self, cluster: KubernetesCluster) -> None:
        self.cluster = cluster
        self._reader = ClusterReader(cluster.kubeconfig)
        self.read = cast(StoreReader, self._reader)
        self._clients: list[RemoteClient] = []
        self._warned: list[str] = []
        self.owner = self._client(warn=self._warned.append)
        self.components = self.client_of(CONTROLLER)
        self._node = self.client_of(NODE)
        self._known = {kind: self._names(kind) for kind in CLUSTER_WIDE}
        # A node that is registered again under its name stays tainted for a while.
        self._known[core.NODE].add("node-1")

    def __repr__(self) -> str:  # pytest shows it, which must not skip a test
        return f"ClusterWorld({self.cluster.name})"

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("store", "api"):
            pytest.skip(f"looks into the embedded server ({name})")
        raise AttributeError(name)

    @property
    def kubeconfig(self) -> str:
        """The administrator's kubeconfig."""
        return self.cluster.kubeconfig

    def _client(
        self, headers: tuple[tuple[str, str], ...] = (), warn: Callable[[str], None] | None = None
    ) -> RemoteClient:
        access = replace(kubeconfig.find(self.cluster.kubeconfig), impersonate=headers)
        self._clients.append(RemoteClient(access, manager="test", warn=warn))
        return self._clients[-1]

    def _names(self, kind: Kind) -> set[str]:
        return {each["metadata"]["name"] for each in self.read.list(kind)}

    def client_of(self, user: User) -> Client:
        """Return a client that acts as a user, with all permissions."""
        groups = [*user.groups, "system:masters"]
        return self._client(tuple(kubeconfig.impersonation(user.name, groups=groups)))

    async def changes(self) -> AsyncIterator[None]:
        """Yield often enough to look again."""
        while True:
            await asyncio.sleep(0.1)
            yield

    async def edit(self, patch: Object, *, dry_run: bool = False) -> tuple[str, ...]:
        """Patch the VM as a person does; return the warnings."""
        self._warned.clear()
        await self.owner.patch(kinds.VM, "web", NAMESPACE, patch, dry_run=dry_run)
        return tuple(self._warned)

    async def act(
        self, action: ActionPath, method: str, body: Any = None, guests: Any = None
    ) -> Answer:
        """Send a request to a subresource as the person does; one that needs a guest is skipped."""
        root = f"/apis/{subresources.GROUP}/{subresources.VERSIONS[0]}/namespaces"
        path = f"{root}/{action.namespace}/{action.resource}/{action.name}/{action.action}"
        answer = await asyncio.to_thread(self._reader.send, method, path, body)
        if answer.code == 501:
            pytest.skip("needs a guest, and nodes are only played")
        if answer.code >= 400:
            raise wire.refusal(cast(Object, answer.body), answer.code)
        return answer

    async def remove_machines(self) -> None:
        """Delete VMs and instances, and end their guests until all are gone."""
        async with asyncio.timeout(SECONDS):
            while self.read.list(kinds.VM, NAMESPACE) or self.read.list(kinds.VMI, NAMESPACE):
                for kind in (kinds.VM, kinds.VMI):
                    await self._delete_all(kind)
                await self._delete_all(core.POD, grace=0)
                await self._fail_instances()
                await asyncio.sleep(0.2)
        await self._cordon("node-1")  # until a test plays it again

    async def _fail_instances(self) -> None:
        """Report the end of guests whose pods are gone."""
        for vmi in self.read.list(kinds.VMI, NAMESPACE):
            if (vmi.get("status") or {}).get("phase") not in FINAL:
                with contextlib.suppress(ApiError):
                    name, patch = vmi["metadata"]["name"], {"status": {"phase": "Failed"}}
                    await self._node.patch(kinds.VMI, name, NAMESPACE, patch)

    async def _cordon(self, node: str) -> None:
        with contextlib.suppress(NotFound):
            await self._node.patch(core.NODE, node, "", {"spec": {"unschedulable": True}})

    async def remove_all(self) -> None:
        """Remove what a test has left, and restore the settings."""
        await self.remove_machines()
        for kind in NAMESPACED:
            await self._delete_all(kind)
        await self._delete_all(core.POD, grace=0)
        for kind, known in self._known.items():
            for name in self._names(kind) - known:
                with contextlib.suppress(NotFound):
                    await self.owner.delete(kind, name)
        found = await self.owner.get(kinds.KUBEVIRT, "kubevirt", "kubevirt")
        if found["spec"] != EMULATING["spec"]:
            await self.owner.update(kinds.KUBEVIRT, {**found, "spec": EMULATING["spec"]})

    async def _delete_all(self, kind: Kind, grace: int | None = None) -> None:
        for obj in self.read.list(kind, NAMESPACE):
            with contextlib.suppress(NotFound):
                name = obj["metadata"]["name"]
                await self.owner.delete(kind, name, NAMESPACE, grace_seconds=grace)

    async def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        for client in self._clients:
            await client.close()


@contextlib.asynccontextmanager
async def cluster_world(cluster: KubernetesCluster) -> AsyncIterator[World]:
    """Let a test use the cluster, and clean up behind it."""
    world = ClusterWorld(cluster)
    try:
        yield world
        await world.remove_all()
    finally:
        await world.close()
        await asyncio.sleep(0.05)  # TLS connections are closed in the background
