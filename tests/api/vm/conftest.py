from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from livevirt.kube.admission import builtin
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.local import LocalClient
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.controllers import bootstrap
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import admission, kinds
from livevirt.vm.config import controller
from livevirt.vm.migration import eviction

from ...kubernetes.cluster import KubernetesCluster
from . import cluster_world as clusters
from .cluster_world import cluster_world
from .served import Served, serving
from .vm_world import ADMIN, CONTROLLER, PlayedNode, World, now, running


@pytest.fixture(scope="session")
def cluster_for_vms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """The cluster of `--on kubernetes`, without nodes: tests register those they play."""
    with clusters.cluster_for_vms(tmp_path_factory.mktemp("components")) as started:
        yield started


@pytest.fixture
async def quiet(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A server whose controllers do not run yet; on Kubernetes they run."""
    if request.config.getoption("--on") == "kubernetes":
        async with cluster_world(request.getfixturevalue("cluster_for_vms")) as started:
            yield started
        return
    store = Store.open(tmp_path / "store.db")
    reader = StoreReader(store)
    rules = {**builtin.RULES, **admission.RULES}
    api = Api(Services(store, rules, now, reader, kinds.REGISTRY), {})
    world = World(store, reader, api, LocalClient(api, ADMIN), LocalClient(api, CONTROLLER))
    api.services.eviction_guards.append(eviction.Guard(world.components))
    await bootstrap.ensure(world.components)
    await controller.ensure(world.components)
    yield world
    await store.close()


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    """A server with its controllers."""
    if not quiet.embedded:
        yield quiet
        return
    async with running(quiet):
        yield quiet


@pytest.fixture
async def node(world: World) -> AsyncIterator[PlayedNode]:
    played = PlayedNode(world)
    await played.register()
    task = asyncio.create_task(played.run())
    yield played
    played.broken = played.stuck = False
    await world.remove_machines()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def served(world: World, node: PlayedNode, tmp_path: Path) -> AsyncIterator[Served]:
    """The server over TLS, with a VM that runs."""
    async with serving(world, tmp_path) as server:
        await world.create_vm("Always")
        await world.until(world.ready)
        yield server


@pytest.fixture
async def client(served: Served) -> AsyncIterator[RemoteClient]:
    """A client of that server, over TLS."""
    client = RemoteClient(kubeconfig.find(str(served.data.kubeconfig)))
    yield client
    await client.close()
