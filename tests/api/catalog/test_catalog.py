"""The catalog as a server installs it, upgrades it, and leaves alone what is not its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from livevirt import catalog
from livevirt.catalog import controller, guests, series
from livevirt.kube.admission import builtin
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control.cache import Key
from livevirt.kube.control.informer import Informer
from livevirt.kube.controllers import bootstrap, embedded
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object, User
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import admission, kinds
from livevirt.vm.config import controller as config_controller

from ...server_process import BIN, COMMAND_SECONDS, ServerProcess, short_directory

TYPE, PREFERENCE = kinds.CLUSTER_INSTANCETYPE, kinds.CLUSTER_PREFERENCE
COUNT = len(series.instancetypes()) + len(guests.preferences())
OFF = {"spec": {"configuration": {"commonInstancetypesDeployment": {"enabled": False}}}}
ON = {"spec": {"configuration": {"commonInstancetypesDeployment": None}}}


def now() -> datetime:
    return datetime.now(UTC)


class Place:
    """A store with an API in front of it, and the controller when it is run."""

    def __init__(self, path: Path) -> None:
        self.store = Store.open(path)
        self.read = StoreReader(self.store)
        rules = {**builtin.RULES, **admission.RULES}
        api = Api(Services(self.store, rules, now, self.read, kinds.REGISTRY), {})
        self.client = LocalClient(api, User("system:serviceaccount:kubevirt:livevirt-controller"))

    def count(self) -> int:
        return len(self.read.list(TYPE)) + len(self.read.list(PREFERENCE))

    def get(self, name: str) -> Object:
        return self.read.get(TYPE, name) or {}

    async def until_all_are_there(self) -> None:
        watch = self.store.watch(None, since=self.store.revision)
        try:
            async with asyncio.timeout(60):
                while self.count() < COUNT:
                    await anext(watch)
        finally:
            watch.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = embedded.run(self.client, self.store, now, kinds.REGISTRY, [controller.run])
        task = asyncio.create_task(work)
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path / "store.db")
    await bootstrap.ensure(made.client)
    await config_controller.ensure(made.client)
    yield made
    await made.store.close()


async def test_everything_is_installed_once_and_then_nothing_is_written(place: Place) -> None:
    await controller.install(place.client)
    assert place.count() == COUNT
    for obj in (*series.instancetypes(), *guests.preferences()):
        kind = TYPE if obj["kind"] == TYPE.kind else PREFERENCE
        stored = place.read.get(kind, obj["metadata"]["name"]) or {}
        assert stored["spec"] == obj["spec"]
    before = place.store.revision
    await controller.install(place.client)
    assert place.store.revision == before


async def test_everybody_may_see_what_all_share(place: Place) -> None:
    name = "instancetype.kubevirt.io:view"
    role = place.read.get(core.CLUSTER_ROLE, name) or {}
    binding = place.read.get(core.CLUSTER_ROLE_BINDING, name) or {}
    (rule,) = role["rules"]
    assert rule["apiGroups"] == [TYPE.group]
    assert rule["resources"] == [TYPE.plural, PREFERENCE.plural]
    assert rule["verbs"] == ["get", "list", "watch"]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", name)
    assert [(each["kind"], each["name"]) for each in binding["subjects"]] == [
        ("Group", "system:authenticated")
    ]
    await place.client.patch(core.CLUSTER_ROLE, name, "", {"rules": []})
    await bootstrap.ensure(place.client)
    await config_controller.ensure(place.client)
    assert (place.read.get(core.CLUSTER_ROLE, name) or {})["rules"] == [], "it is its owner's"


async def test_an_upgrade_replaces_ours_in_place_and_nothing_else(place: Place) -> None:
    for name, label, guest in (
        ("u1.nano", "livevirt-0", 7),
        ("u1.micro", "v1.7.0", 8),
        ("u1.small", "", 9),
    ):
        labels = {catalog.LABEL: label} if label else {}
        meta = {"name": name, "labels": labels}
        spec = {"cpu": {"guest": guest}, "memory": {"guest": "1Gi"}}
        obj = {"apiVersion": TYPE.api_version, "kind": TYPE.kind, "metadata": meta, "spec": spec}
        await place.client.create(TYPE, obj)
    before = {name: place.get(name) for name in ("u1.nano", "u1.micro", "u1.small")}
    await controller.install(place.client)
    nano = place.get("u1.nano")
    assert nano["spec"] == {"cpu": {"guest": 1}, "memory": {"guest": "512Mi"}}
    assert nano["metadata"]["uid"] == before["u1.nano"]["metadata"]["uid"]
    assert nano["metadata"]["generation"] == 2, "who refers to it can see that it is a newer one"
    assert place.get("u1.micro") == before["u1.micro"]
    assert place.get("u1.small") == before["u1.small"]


async def test_it_is_installed_by_the_controller_and_brought_back_at_the_next_start(
    place: Place,
) -> None:
    async with place.running():
        await place.until_all_are_there()
    await place.client.delete(TYPE, "u1.nano")
    async with place.running():
        await place.until_all_are_there()


class Settings(Informer):
    """An informer that knows the KubeVirt object as the test says it is."""

    obj: Object

    def get(self, key: Key) -> Object | None:
        return self.obj


async def test_until_then_what_was_deleted_stays_so_unless_it_is_switched_on_again(
    place: Place,
) -> None:
    settings, key = Settings(place.client, kinds.KUBEVIRT), Key("kubevirt", "kubevirt")
    watching = controller.Catalog(place.client, settings)
    settings.obj = ON
    await watching.reconcile(key)
    await place.client.delete(TYPE, "u1.nano")
    await watching.reconcile(key)
    assert place.count() == COUNT - 1
    for settings.obj in (OFF, ON):
        await watching.reconcile(key)
    assert place.count() == COUNT


async def test_it_can_be_switched_off_and_on_while_the_server_runs(place: Place) -> None:
    await place.client.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", OFF)
    quiet = place.store.revision
    async with place.running():
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}
        await place.client.create(core.NAMESPACE, space)
        await _until_account(place, "later", quiet)  # the controllers have begun by then
        assert place.count() == 0
        await place.client.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", ON)
        await place.until_all_are_there()
        await place.client.patch(kinds.KUBEVIRT, "kubevirt", "kubevirt", OFF)
    assert place.count() == COUNT, "what is there stays: VMs may refer to it"


async def _until_account(place: Place, namespace: str, since: int) -> None:
    watch = place.store.watch(None, since=since)
    try:
        async with asyncio.timeout(60):
            while place.read.get(core.SERVICE_ACCOUNT, "default", namespace) is None:
                await anext(watch)
    finally:
        watch.close()


# ---------------------------------------------------------------- as people use it


@pytest.fixture
def ready(server: ServerProcess) -> ServerProcess:
    """A server that has installed its catalog."""
    for word in ("vmcf/d1.custom", "vmcp/windows.2k3"):  # the last of each kind
        server.kubectl("wait", "--for=create", word, "--timeout=30s")
    return server


def virtctl(server: ServerProcess, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "virtctl"), *args], env=server.environment(), cwd=server.home,
        capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
    )  # fmt: skip


def made(server: ServerProcess, *args: str) -> str:
    done = virtctl(server, *args)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def shown(server: ServerProcess, *args: str) -> Any:
    return json.loads(server.kubectl("get", *args, "-o", "json"))


@pytest.mark.slow
def test_kubectl_lists_the_catalog_by_its_labels(ready: ServerProcess) -> None:
    selected = f"{catalog.PREFIX}class=compute.exclusive,{catalog.PREFIX}size=custom"
    [found] = shown(ready, "vmcf", "-l", selected)["items"]
    assert found["metadata"]["name"] == "cx1.custom"
    assert found["apiVersion"] == "instancetype.kubevirt.io/v1beta2"
    linux = shown(ready, "vmcp", "-l", f"{catalog.PREFIX}os-type=linux")["items"]
    assert {"fedora", "ubuntu"} <= {obj["metadata"]["name"] for obj in linux}


@pytest.mark.slow
def test_a_customized_instance_type_is_applied_and_used(
    ready: ServerProcess, namespace: str
) -> None:
    text = made(ready, "customize", "u1.medium", "--name=u1.mysize", "--vcpus=4", "--memory=4Gi")
    for said in ("created", "unchanged"):
        out = ready.kubectl("apply", "-n", namespace, "-f", "-", input=text)
        name = "virtualmachineinstancetype.instancetype.kubevirt.io/u1.mysize"
        assert out == f"{name} {said}\n"
    found = shown(ready, "-n", namespace, "vmf", "u1.mysize")
    assert found["spec"] == {"cpu": {"guest": 4}, "memory": {"guest": "4Gi"}}
    assert "labels" not in found["metadata"]
    again = made(
        ready, "customize", "vmf/u1.mysize", "--name=bigger", "--max-guest=16Gi", "--cluster",
        "-n", namespace,
    )  # fmt: skip
    out = ready.kubectl("apply", "-f", "-", input=again)
    assert out == "virtualmachineclusterinstancetype.instancetype.kubevirt.io/bigger created\n"
    ready.kubectl("delete", "vmcf", "bigger")
    vm = made(
        ready, "create", "vm", "--name=web", "--run-strategy=halted",
        "--instancetype=virtualmachineinstancetype/u1.mysize",
        "--volume-containerdisk=src:livevirt/guest:latest",
    )  # fmt: skip
    applied = ready.kubectl("apply", "-n", namespace, "-f", "-", input=vm)
    assert applied == "virtualmachine.kubevirt.io/web created\n"


@pytest.mark.slow
def test_a_customized_preference_is_applied(ready: ServerProcess, namespace: str) -> None:
    text = made(
        ready, "-n", namespace, "customize", "vmcp/fedora", "--name=mine", "--cpu-topology=spread",
    )  # fmt: skip
    ready.kubectl("apply", "-f", "-", input=text)
    spec = shown(ready, "-n", namespace, "vmp", "mine")["spec"]
    assert spec["cpu"] == {"preferredCPUTopology": "spread"}


REFUSED = {
    "there is no such instance type": (
        ["customize", "u1.huge", "--name=x"],
        "error customizing instance type u1.huge:"
        ' virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.huge" not found;'
        " see `kubectl get virtualmachineclusterinstancetypes`\n",
    ),
    "there is no such VM": (
        ["vm", "update-instance-type", "nobody", "u1.nano"],
        "error updating VirtualMachine nobody:"
        ' virtualmachines.kubevirt.io "nobody" not found;'
        " see `kubectl get vm --all-namespaces`\n",
    ),
    "nothing fits a VM that is not there": (
        ["what-fits", "nobody"],
        "error planning VirtualMachine nobody:"
        ' virtualmachines.kubevirt.io "nobody" not found;'
        " see `kubectl get vm --all-namespaces`\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("args", "text"), REFUSED.values(), ids=REFUSED)
def test_refusals_are_one_line(ready: ServerProcess, args: list[str], text: str) -> None:
    done = virtctl(ready, *args)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


@pytest.fixture
def own_types() -> Iterator[ServerProcess]:
    """A server without the catalog."""
    with short_directory() as home:
        server = ServerProcess(home, flags=("--no-catalog",))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.mark.slow
def test_without_the_catalog_there_are_only_types_of_ones_own(own_types: ServerProcess) -> None:
    # The node registers after all controllers have begun.
    own_types.kubectl("wait", "--for=create", "node/node01", "--timeout=60s")
    assert shown(own_types, "vmcf,vmcp")["items"] == []
    text = made(own_types, "create", "instancetype", "--name=mine", "--cpu=1", "--memory=1Gi")
    own_types.kubectl("apply", "-f", "-", input=text)
    assert len(shown(own_types, "vmcf,vmcp")["items"]) == 1
