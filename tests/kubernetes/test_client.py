"""The client against a real API server: credentials that change, pages, watches that break."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from livevirt.errors import Conflict, Expired, Unauthorized
from livevirt.kube.client import kubeconfig
from livevirt.kube.client.access import Access
from livevirt.kube.client.interface import if_unchanged
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.control import informer as informer_module
from livevirt.kube.control.cache import Change
from livevirt.kube.control.events import Recorder
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds

from .cluster import KubernetesCluster

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root for their namespaces"),
]
NAMESPACE = "client-test"
READER = "reader"


@pytest.fixture(scope="module")
def prepared(controlled: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """A cluster with a namespace, and a service account that may read it."""
    controlled.kubectl("create", "namespace", NAMESPACE)
    controlled.kubectl("create", "serviceaccount", READER, "-n", NAMESPACE)
    controlled.kubectl(
        "create", "rolebinding", READER, "--clusterrole=view", "-n", NAMESPACE,
        f"--serviceaccount={NAMESPACE}:{READER}",
    )  # fmt: skip
    yield controlled
    controlled.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
async def client(prepared: KubernetesCluster) -> AsyncIterator[RemoteClient]:
    """A client with the client certificate of the administrator."""
    async with connected(kubeconfig.find(prepared.kubeconfig)) as found:
        yield found


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[RemoteClient]:
    client = RemoteClient(access, manager="client-test")
    try:
        yield client
    finally:
        await client.close()
        await asyncio.sleep(0.2)  # TLS connections of watches are closed in the background


def a_token(cluster: KubernetesCluster) -> str:
    return cluster.kubectl("create", "token", READER, "-n", NAMESPACE).strip()


def read_config(cluster: KubernetesCluster) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    return found


def configured(cluster: KubernetesCluster, path: Path, user: dict[str, Any]) -> Access:
    """Return the access of a kubeconfig with another user."""
    config = read_config(cluster)
    config["users"] = [{"name": READER, "user": user}]
    config["contexts"][0]["context"]["user"] = READER
    path.write_text(yaml.safe_dump(config))
    return kubeconfig.find(str(path))


async def reads(client: RemoteClient) -> bool:
    """Return whether the namespace can be read with the client's credentials."""
    try:
        await client.list(core.CONFIG_MAP, NAMESPACE)
    except Unauthorized:
        return False
    return True


async def test_given_a_token_then_it_is_accepted(
    prepared: KubernetesCluster, tmp_path: Path
) -> None:
    user = {"token": a_token(prepared)}
    async with connected(configured(prepared, tmp_path / "config", user)) as client:
        assert await reads(client)


async def test_given_a_token_file_when_it_is_replaced_then_the_new_token_is_used(
    prepared: KubernetesCluster, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("expired")
    user = {"tokenFile": str(file)}
    async with connected(configured(prepared, tmp_path / "config", user)) as client:
        assert not await reads(client)
        file.write_text(a_token(prepared))
        assert await reads(client)


async def test_given_an_exec_plugin_when_its_token_is_refused_then_it_is_run_again(
    prepared: KubernetesCluster, tmp_path: Path
) -> None:
    token, plugin = tmp_path / "token", tmp_path / "plugin"
    token.write_text("expired")
    version = "client.authentication.k8s.io/v1"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, pathlib\n"
        f"token = pathlib.Path({str(token)!r}).read_text()\n"
        f"print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential',"
        " 'status': {'token': token}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}}
    async with connected(configured(prepared, tmp_path / "config", user)) as client:
        assert not await reads(client)
        token.write_text(a_token(prepared))
        assert await reads(client)


async def test_given_a_pod_then_its_account_is_used_and_its_token_is_read_again(
    prepared: KubernetesCluster, tmp_path: Path
) -> None:
    config = read_config(prepared)["clusters"][0]["cluster"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(config["certificate-authority-data"]))
    (tmp_path / "namespace").write_text(NAMESPACE)
    (tmp_path / "token").write_text("expired")
    server = urlsplit(config["server"])
    env = {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }
    access = kubeconfig.in_cluster(env, tmp_path)
    assert access.namespace == NAMESPACE
    async with connected(access) as client:
        assert not await reads(client)
        (tmp_path / "token").write_text(a_token(prepared))
        assert await reads(client)


def a_map(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"paged": "yes"}},
        "data": {"a": "b"},
    }


@asynccontextmanager
async def following(informer: Informer) -> AsyncIterator[list[Change]]:
    changes: list[Change] = []
    informer.on_change(changes.append)
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(60):
            await informer.synced.wait()
            yield changes
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_given_many_objects_then_they_are_listed_in_pages(
    client: RemoteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        await client.create(core.CONFIG_MAP, a_map(f"paged-{number}"), NAMESPACE)
    first = await client.list(core.CONFIG_MAP, NAMESPACE, labels="paged=yes", limit=3)
    assert (len(first.items), bool(first.continue_)) == (3, True)
    monkeypatch.setattr(informer_module, "PAGE", 2)
    async with following(Informer(client, core.CONFIG_MAP, NAMESPACE, "paged=yes")) as changes:
        assert {change.key.name for change in changes} == {f"paged-{n}" for n in range(7)}


async def test_given_a_watch_that_is_too_old_then_the_informer_lists_again(
    client: RemoteClient,
) -> None:
    # The definition is younger than version 1, so the API server has no history from there on.
    watch = client.watch(kinds.INSTANCETYPE, NAMESPACE, resource_version="1")
    with pytest.raises(Expired):
        await asyncio.wait_for(anext(watch), 20)
    informer = Informer(client, kinds.INSTANCETYPE, NAMESPACE)
    informer._version = "1"  # as after a long absence: it watches before it lists
    async with following(informer) as changes:
        late = {
            "apiVersion": kinds.INSTANCETYPE.api_version,
            "kind": kinds.INSTANCETYPE.kind,
            "metadata": {"name": "late"},
            "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}},
        }
        await client.create(kinds.INSTANCETYPE, late, NAMESPACE)
        while [change.key.name for change in changes] != ["late"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_given_an_object_that_has_changed_then_a_patch_of_what_was_read_is_refused(
    client: RemoteClient,
) -> None:
    read = await client.create(core.CONFIG_MAP, a_map("contested"), NAMESPACE)
    await client.patch(core.CONFIG_MAP, "contested", NAMESPACE, {"data": {"a": "c"}})
    late = if_unchanged(read, {"data": {"a": "d"}})
    with pytest.raises(Conflict):
        await client.patch(core.CONFIG_MAP, "contested", NAMESPACE, late)
    with pytest.raises(Conflict):
        await client.delete(core.CONFIG_MAP, "contested", NAMESPACE, uid="another")


async def test_given_the_same_event_again_then_it_is_counted_and_not_repeated(
    prepared: KubernetesCluster, client: RemoteClient
) -> None:
    subject = await client.create(core.CONFIG_MAP, a_map("subject"), NAMESPACE)
    recorder = Recorder(client, "client-test", lambda: datetime.now(UTC))
    for _ in range(5):
        recorder.event(subject, "Normal", "Repeated", "it happened")
    await recorder.close()
    found = (await client.list(core.EVENT, NAMESPACE, fields="reason=Repeated")).items
    assert [event["count"] for event in found] == [5]
    managers = {entry["manager"] for entry in found[0]["metadata"]["managedFields"]}
    assert managers == {"client-test"}, json.dumps(found)
