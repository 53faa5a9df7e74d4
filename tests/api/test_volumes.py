"""Claims, volumes and DataVolumes against a real server, real files and the real qemu-img."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from livevirt.background import storage
from livevirt.cli import volume_import
from livevirt.cli.volume_import import ImportRequest, VolumeError
from livevirt.errors import Invalid
from livevirt.files import loop_device
from livevirt.files.raw_file import Directories
from livevirt.kube.admission import builtin
from livevirt.kube.client.interface import Client
from livevirt.kube.client.local import LocalClient
from livevirt.kube.controllers import bootstrap, embedded
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.storage import BIND_AT_ONCE, PROTECTION
from livevirt.kube.server.api import Api
from livevirt.kube.server.services import Services, StoreReader
from livevirt.kube.store import Store
from livevirt.vm import kinds
from livevirt.vm.datavolumes import importer, plan
from livevirt.vm.datavolumes.importer import Order
from livevirt.vm.datavolumes.qemu_img import Progress
from livevirt.vm.volumes.datavolume_admission import DataVolumeRules

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")

NAMESPACE = "team"
MIB = 2**20
CONTENT = b"a disk of some guest" + bytes(2 * MIB) + b"its end"


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Image:
    path: Path
    format: str = "qcow2"


class Images(dict[str, Image]):
    """An image store of a few files."""

    def find(self, reference: str) -> Image | None:
        return self.get(reference)

    def missing(self, name: str) -> str:
        return f"there is no image {name}"


@dataclass
class World:
    """A server, a client of it, and what the store and the volumes hold right now."""

    store: Store
    client: LocalClient
    read: StoreReader
    directories: Directories
    images: Images

    def get(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> Object | None:
        return self.read.get(kind, name, namespace)

    async def until(self, holds: Callable[[], Any], seconds: float = 60) -> None:
        """Return once it holds, asking again after every change of the store."""
        watch = self.store.watch(None, since=self.store.revision)
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await anext(watch)
        finally:
            watch.close()

    async def create(self, kind: Kind, name: str, **rest: Any) -> Object:
        metadata = {"name": name, **rest.pop("metadata", {})}
        namespace = NAMESPACE if kind.namespaced else ""
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}
        return await self.client.create(kind, obj, namespace)

    async def claim(self, name: str, size: str = "8Mi", **spec: Any) -> Object:
        metadata = spec.pop("metadata", {})
        spec = {"accessModes": ["ReadWriteOnce"], **spec}
        spec["resources"] = {"requests": {"storage": size}}
        return await self.create(core.CLAIM, name, metadata=metadata, spec=spec)

    async def pod(self, name: str, claim: str, node: str = "here") -> Object:
        container = {"name": "compute", "image": "i"}
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
        spec = {"containers": [container], "volumes": [volume], "schedulerName": "nobody"}
        return await self.create(core.POD, name, spec={**spec, "nodeName": node})

    async def data_volume(self, name: str, size: str = "8Mi", **source: Any) -> Object:
        storage = {"resources": {"requests": {"storage": size}}} if size else {}
        spec = {"source": source, "storage": storage}
        return await self.create(kinds.DATA_VOLUME, name, spec=spec)

    def phase(self, kind: Kind, name: str) -> str:
        status = (self.get(kind, name, NAMESPACE if kind.namespaced else "") or {}).get("status")
        return str((status or {}).get("phase", ""))

    def bound(self, claim: str) -> bool:
        return self.phase(core.CLAIM, claim) == "Bound"

    def volume_of(self, claim: str) -> str:
        found = self.get(core.CLAIM, claim)
        assert found is not None
        return str(found["spec"]["volumeName"])

    def disk(self, claim: str) -> Path:
        return self.directories.disk(self.volume_of(claim))

    def leftovers(self, claim: str) -> list[str]:
        folder = self.directories.of(self.volume_of(claim))
        return sorted(each.name for each in folder.iterdir() if each.name != "disk.img")

    def says(self, name: str, type_: str) -> Object:
        """Return a condition of a DataVolume."""
        status = (self.get(kinds.DATA_VOLUME, name) or {}).get("status") or {}
        return conditions.find(status.get("conditions"), type_) or {}

    def has_event(self, name: str, reason: str) -> bool:
        return any(
            (event["involvedObject"]["name"], event["reason"]) == (name, reason)
            for event in self.read.list(core.EVENT, NAMESPACE)
        )

    async def succeeded(self, name: str) -> None:
        await self.until(lambda: self.phase(kinds.DATA_VOLUME, name) == "Succeeded")


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[World]:
    """A server whose controllers do not run yet."""
    store = Store.open(tmp_path / "store.db")
    reader = StoreReader(store)
    rules = {**builtin.RULES, kinds.DATA_VOLUME.resource: DataVolumeRules()}
    api = Api(Services(store, rules, now, reader, kinds.REGISTRY), {})
    client = LocalClient(api, User("system:admin", ("system:masters",)))
    world = World(store, client, reader, Directories(tmp_path / "volumes"), Images())
    await world.create(core.NAMESPACE, NAMESPACE)
    await bootstrap.ensure_storage_class(client)
    yield world
    await store.close()


@contextlib.asynccontextmanager
async def running(world: World, client: Client | None = None) -> AsyncIterator[None]:
    factory = storage(world.directories.root, world.images)
    run = embedded.run(client or world.client, world.store, now, kinds.REGISTRY, [factory])
    controllers = asyncio.create_task(run)
    try:
        yield
        assert not controllers.done(), "the controllers must never end by themselves"
    finally:
        controllers.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await controllers


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    async with running(quiet):
        yield quiet


def raw(path: Path, content: bytes = CONTENT) -> Path:
    path.write_bytes(content + bytes(-len(content) % 512))
    return path


def qcow2(path: Path, content: bytes = CONTENT) -> Path:
    source = raw(path.with_suffix(".raw"), content)
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(source), str(path)]
    subprocess.run(command, check=True)
    return path


def overlay(path: Path, backing: Path) -> Path:
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(backing)]
    subprocess.run([*command, str(path)], check=True)
    return path


def holds(disk: Path, content: bytes = CONTENT) -> bool:
    found = disk.read_bytes()
    return found.startswith(content) and not found[len(content) :].strip(b"\0")


# ---------------------------------------------------------------- claims and volumes


async def test_a_claim_waits_for_a_pod_with_a_node_and_then_has_a_directory(world: World) -> None:
    await world.claim("data")
    await world.until(lambda: world.has_event("data", "WaitForFirstConsumer"))
    assert world.phase(core.CLAIM, "data") == "Pending"

    await world.pod("user", "data")
    await world.until(lambda: world.bound("data"))

    claim = world.get(core.CLAIM, "data")
    assert claim is not None
    assert claim["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "8Mi"},
    }
    name = f"pvc-{claim['metadata']['uid']}"
    volume = world.get(core.VOLUME, name, "")
    assert volume is not None
    assert world.volume_of("data") == name
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["hostPath"]["path"] == str(world.directories.of(name))
    assert world.directories.exists(name)


async def test_an_immediate_class_binds_at_once_and_a_block_claim_is_told_why_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_device, "problem", lambda: "there is none")
    eager = {**bootstrap.DEFAULT, "metadata": {"name": "eager"}}
    eager["volumeBindingMode"] = "Immediate"
    await world.client.create(core.STORAGE_CLASS, eager)
    await world.claim("at-once", storageClassName="eager")
    await world.claim("block", storageClassName="eager", volumeMode="Block")
    await world.until(lambda: world.bound("at-once"))
    await world.until(lambda: world.has_event("block", "ProvisioningFailed"))
    assert world.phase(core.CLAIM, "block") == "Pending"


async def test_the_smallest_fitting_static_volume_is_taken_and_later_released(
    world: World,
) -> None:
    for name, size in (("large", "1Gi"), ("fitting", "10Mi"), ("small", "1Mi")):
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": f"/nowhere/{name}"},
        }
        await world.create(core.VOLUME, name, spec=spec)
    await world.until(
        lambda: (
            {world.phase(core.VOLUME, each) for each in ("large", "fitting", "small")}
            == {"Available"}
        )
    )
    await world.claim("data", "8Mi", storageClassName="")
    await world.until(lambda: world.bound("data"))
    assert world.volume_of("data") == "fitting"
    claim = world.get(core.CLAIM, "data")
    assert claim is not None
    assert claim["status"]["capacity"] == {"storage": "10Mi"}

    await world.client.delete(core.CLAIM, "data", NAMESPACE)
    await world.until(lambda: world.phase(core.VOLUME, "fitting") == "Released")
    await world.until(lambda: world.get(core.CLAIM, "data") is None)


async def test_a_claim_in_use_outlives_its_deletion_and_its_data_outlives_the_claim(
    world: World,
) -> None:
    await world.claim("data")
    await world.pod("user", "data")
    await world.until(lambda: world.bound("data"))
    name = world.volume_of("data")
    world.directories.disk(name).write_bytes(b"precious")

    await world.client.delete(core.CLAIM, "data", NAMESPACE)
    await world.claim("other", metadata={"annotations": {BIND_AT_ONCE: "true"}})
    await world.until(lambda: world.bound("other"))  # the controllers have been busy since
    claim = world.get(core.CLAIM, "data")
    assert claim is not None
    assert claim["metadata"]["finalizers"] == [PROTECTION]
    assert world.directories.disk(name).read_bytes() == b"precious"

    await world.client.delete(core.POD, "user", NAMESPACE, grace_seconds=0)
    await world.until(lambda: world.get(core.VOLUME, name, "") is None)
    assert world.get(core.CLAIM, "data") is None
    assert not world.directories.exists(name)


async def test_given_a_claim_torn_from_its_user_and_made_anew_then_the_user_keeps_its_data(
    world: World,
) -> None:
    await world.claim("data")
    await world.pod("user", "data")
    await world.until(lambda: world.bound("data"))
    name = world.volume_of("data")
    world.directories.disk(name).write_bytes(b"precious")

    await world.client.delete(core.CLAIM, "data", NAMESPACE)
    bare = {"metadata": {"finalizers": None}}
    await world.client.patch(core.CLAIM, "data", NAMESPACE, bare)
    await world.claim("data")
    await world.until(lambda: world.bound("data") and world.volume_of("data") != name)
    await world.claim("other", metadata={"annotations": {BIND_AT_ONCE: "true"}})
    await world.until(lambda: world.bound("other"))  # the controllers have been busy since
    assert world.directories.disk(name).read_bytes() == b"precious"

    await world.client.delete(core.POD, "user", NAMESPACE, grace_seconds=0)
    await world.until(lambda: world.get(core.VOLUME, name, "") is None)
    assert not world.directories.exists(name)


async def test_a_retained_volume_keeps_its_data(world: World) -> None:
    careful = {**bootstrap.DEFAULT, "metadata": {"name": "careful"}}
    careful |= {"volumeBindingMode": "Immediate", "reclaimPolicy": "Retain"}
    await world.client.create(core.STORAGE_CLASS, careful)
    await world.claim("data", storageClassName="careful")
    await world.until(lambda: world.bound("data"))
    name = world.volume_of("data")
    await world.client.delete(core.CLAIM, "data", NAMESPACE)
    await world.until(lambda: world.phase(core.VOLUME, name) == "Released")
    assert world.directories.exists(name)


async def test_a_claim_that_asks_for_more_gets_it(world: World) -> None:
    await world.claim("data", metadata={"annotations": {BIND_AT_ONCE: "true"}})
    await world.until(lambda: world.bound("data"))
    patch = {"spec": {"resources": {"requests": {"storage": "20Mi"}}}}
    await world.client.patch(core.CLAIM, "data", NAMESPACE, patch)

    def grown() -> bool:
        claim = world.get(core.CLAIM, "data") or {}
        return bool(claim["status"]["capacity"] == {"storage": "20Mi"})

    await world.until(grown)
    volume = world.get(core.VOLUME, world.volume_of("data"), "")
    assert volume is not None
    assert volume["spec"]["capacity"] == {"storage": "20Mi"}


GROWN = {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "20Mi"}}


@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after a write"])
async def test_given_kills_at_any_write_when_a_claim_grows_then_so_does_its_disk(
    quiet: World, after: bool
) -> None:
    def grown() -> bool:
        return bool((quiet.get(core.CLAIM, "data") or {})["status"] == GROWN)

    writes, dying = 1, True
    while dying:
        async with running(quiet):
            await quiet.data_volume("data", "8Mi", blank={})
            await quiet.succeeded("data")
        disk = quiet.disk("data")
        with disk.open("r+b") as file:
            file.write(CONTENT)
        patch = {"spec": {"resources": {"requests": {"storage": "20Mi"}}}}
        await quiet.client.patch(core.CLAIM, "data", NAMESPACE, patch)
        dying = await dies(quiet, writes, after, grown)
        async with running(quiet):
            await quiet.until(grown)
            assert disk.stat().st_size == 20 * MIB
            assert holds(disk)
            await quiet.client.delete(kinds.DATA_VOLUME, "data", NAMESPACE)
            await quiet.until(lambda: not quiet.read.list(core.VOLUME))
        writes += 1
    assert writes > 3, "the volume, that it grows, and that it has"


async def test_a_bound_claim_whose_volume_was_torn_away_is_lost(quiet: World) -> None:
    async with running(quiet):
        await quiet.claim("data", metadata={"annotations": {BIND_AT_ONCE: "true"}})
        await quiet.until(lambda: quiet.bound("data"))
    name = quiet.volume_of("data")
    await quiet.client.patch(core.VOLUME, name, "", {"metadata": {"finalizers": None}})
    await quiet.client.delete(core.VOLUME, name)
    async with running(quiet):
        await quiet.until(lambda: quiet.phase(core.CLAIM, "data") == "Lost")


# ---------------------------------------------------------------- DataVolumes


async def test_a_blank_data_volume_becomes_an_empty_sparse_disk(world: World) -> None:
    await world.data_volume("empty", "64Mi", blank={})
    await world.succeeded("empty")
    disk = world.disk("empty")
    assert disk.stat().st_size == 64 * MIB
    assert disk.stat().st_blocks * 512 < MIB
    dv = world.get(kinds.DATA_VOLUME, "empty")
    assert dv is not None
    assert dv["status"]["progress"] == "100.0%"
    assert dv["status"]["claimName"] == "empty"
    assert [world.says("empty", each)["status"] for each in ("Bound", "Running", "Ready")] == [
        "True",
        "False",
        "True",
    ]
    claim = world.get(core.CLAIM, "empty")
    assert claim is not None
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == dv["metadata"]["uid"]


async def test_deleting_a_data_volume_removes_claim_volume_and_data(world: World) -> None:
    await world.data_volume("empty", blank={})
    await world.succeeded("empty")
    name = world.volume_of("empty")
    await world.client.delete(kinds.DATA_VOLUME, "empty", NAMESPACE)
    await world.until(lambda: world.get(core.VOLUME, name, "") is None)
    assert world.get(core.CLAIM, "empty") is None
    assert not world.directories.exists(name)


async def test_an_image_of_the_local_store_is_copied_in(world: World, tmp_path: Path) -> None:
    world.images["team/guest:1"] = Image(qcow2(tmp_path / "guest.qcow2"))
    await world.data_volume("system", registry={"url": "docker://team/guest:1"})
    await world.succeeded("system")
    assert holds(world.disk("system"))
    assert world.disk("system").stat().st_size == 8 * MIB
    assert world.leftovers("system") == []


@pytest.mark.wording
async def test_the_message_on_a_missing_image_names_the_command_that_imports_it(
    world: World,
) -> None:
    await world.data_volume("system", registry={"url": "docker://team/guest:1"})
    await world.until(lambda: world.says("system", "Running").get("reason") == "ImagePullFailed")
    assert world.says("system", "Running")["message"] == world.images.missing("team/guest:1")


async def test_an_image_that_is_not_there_is_waited_for(world: World, tmp_path: Path) -> None:
    await world.data_volume("system", registry={"url": "docker://team/guest:1"})
    await world.until(lambda: world.says("system", "Running").get("reason") == "ImagePullFailed")
    world.images["team/guest:1"] = Image(raw(tmp_path / "guest.raw"), "raw")
    await world.succeeded("system")
    dv = world.get(kinds.DATA_VOLUME, "system")
    assert dv is not None
    assert dv["status"]["restartCount"] >= 1
    assert holds(world.disk("system"))


async def import_too_large_a_disk(world: World, folder: Path) -> None:
    """Import a disk of 9 MiB into a claim of 8 MiB; return when it has failed."""
    world.images["big"] = Image(raw(folder / "big.raw", bytes(9 * MIB)), "raw")
    await world.data_volume("system", registry={"url": "docker://big"})
    await world.until(lambda: world.phase(kinds.DATA_VOLUME, "system") == "Failed")


async def test_a_disk_larger_than_the_claim_fails(world: World, tmp_path: Path) -> None:
    await import_too_large_a_disk(world, tmp_path)
    await world.until(lambda: world.has_event("system", "ImportFailed"))
    assert not world.disk("system").exists()
    assert world.leftovers("system") == []


@pytest.mark.wording
async def test_the_message_on_too_large_a_disk_names_both_sizes(
    world: World, tmp_path: Path
) -> None:
    await import_too_large_a_disk(world, tmp_path)
    message = world.says("system", "Running")["message"]
    assert str(9 * MIB) in message
    assert str(8 * MIB) in message


async def test_a_source_we_do_not_have_fails_at_once(world: World) -> None:
    await world.data_volume("system", s3={"url": "s3://bucket/disk"})
    await world.until(lambda: world.phase(kinds.DATA_VOLUME, "system") == "Failed")


@pytest.mark.wording
async def test_the_message_on_a_source_we_do_not_have_names_it(world: World) -> None:
    await world.data_volume("system", s3={"url": "s3://bucket/disk"})
    await world.until(lambda: world.phase(kinds.DATA_VOLUME, "system") == "Failed")
    assert "s3" in world.says("system", "Running")["message"]


async def test_a_data_volume_with_two_sources_is_refused(world: World) -> None:
    with pytest.raises(Invalid, match="Multiple dataVolume sources"):
        await world.data_volume("both", blank={}, http={"url": "http://example.com/disk"})


async def test_the_claim_of_somebody_else_is_left_alone(world: World) -> None:
    await world.claim("data")
    await world.data_volume("data", blank={})
    await world.until(lambda: world.has_event("data", "ErrResourceExists"))
    assert world.phase(kinds.DATA_VOLUME, "data") == "Pending"
    claim = world.get(core.CLAIM, "data")
    assert claim is not None
    assert "ownerReferences" not in claim["metadata"]


async def test_a_claim_that_was_waiting_for_use_is_filled_once_it_is_adopted(world: World) -> None:
    await world.claim("data")  # of the default class: nothing uses it, so it is not bound
    annotations = {plan.ADOPTION: "true"}
    room = {"resources": {"requests": {"storage": "8Mi"}}}
    spec = {"source": {"blank": {}}, "storage": room}
    await world.create(kinds.DATA_VOLUME, "data", metadata={"annotations": annotations}, spec=spec)
    await world.succeeded("data")
    assert world.disk("data").stat().st_size == 8 * MIB


async def test_a_claim_over_quota_is_said_so(world: World) -> None:
    await world.create(core.QUOTA, "little", spec={"hard": {"requests.storage": "1Mi"}})
    await world.until(lambda: (world.get(core.QUOTA, "little") or {}).get("status", {}).get("used"))
    await world.data_volume("system", blank={})
    await world.until(lambda: world.says("system", "Bound").get("reason") == "ErrExceededQuota")
    assert world.phase(kinds.DATA_VOLUME, "system") == "Pending"


# ---------------------------------------------------------------- copies


async def test_a_claim_is_copied_with_its_size_once_nobody_writes_to_it(world: World) -> None:
    await world.data_volume("source", "8Mi", blank={})
    await world.succeeded("source")
    with world.disk("source").open("r+b") as disk:
        disk.write(CONTENT)
    await world.pod("writer", "source")
    await world.data_volume("copy", "", pvc={"name": "source", "namespace": NAMESPACE})
    await world.until(lambda: world.has_event("copy", "CloneSourceInUse"))
    await world.until(lambda: world.phase(kinds.DATA_VOLUME, "copy") == "CloneScheduled")
    assert not world.disk("copy").exists()

    await world.client.delete(core.POD, "writer", NAMESPACE, grace_seconds=0)
    await world.succeeded("copy")
    assert holds(world.disk("copy"))
    assert world.disk("copy").stat().st_size == 8 * MIB


async def test_a_copy_waits_for_its_source_to_be_filled(world: World, tmp_path: Path) -> None:
    await world.data_volume("copy", pvc={"name": "source", "namespace": NAMESPACE})
    await world.until(lambda: world.has_event("copy", "CloneSourceNotFound"))
    world.images["guest"] = Image(qcow2(tmp_path / "guest.qcow2"))
    await world.data_volume("source", registry={"url": "docker://guest"})
    await world.succeeded("copy")
    assert holds(world.disk("copy"))


async def test_a_guest_cannot_make_a_copy_of_its_disk_read_other_files(
    world: World, tmp_path: Path
) -> None:
    """A raw disk that starts like a qcow2 is still a raw disk."""
    await world.data_volume("source", "8Mi", blank={})
    await world.succeeded("source")
    header = overlay(tmp_path / "trap.qcow2", raw(tmp_path / "secret")).read_bytes()
    with world.disk("source").open("r+b") as disk:
        disk.write(header)
    await world.data_volume("copy", pvc={"name": "source", "namespace": NAMESPACE})
    await world.succeeded("copy")
    assert world.disk("copy").read_bytes()[: len(header)] == header


# ---------------------------------------------------------------- over HTTP


@dataclass
class Site:
    """A web server with a few files."""

    url: str
    files: dict[str, bytes]
    asked: list[str]
    short: bool = False  # break off in the middle
    gate: asyncio.Event | None = None  # wait for it in the middle


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found.asked.append(request.path)
        content = found.files.get(request.path)
        if content is None:
            return web.Response(status=404)
        response = web.StreamResponse()
        response.content_length = len(content)
        await response.prepare(request)
        half = len(content) // 2
        await response.write(content[:half])
        if found.gate is not None:
            await found.gate.wait()
        if found.short:
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(content[half:])
        return response

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found = Site(f"http://127.0.0.1:{runner.addresses[0][1]}", {}, [])
    yield found
    await runner.cleanup()


@pytest.mark.parametrize("packed", [False, True], ids=["as it is", "gzip"])
@pytest.mark.parametrize("make", [raw, qcow2])
async def test_a_file_is_fetched_unpacked_and_converted(
    world: World, site: Site, tmp_path: Path, make: Callable[[Path], Path], packed: bool
) -> None:
    content = make(tmp_path / "disk.image").read_bytes()
    site.files["/disk"] = gzip.compress(content) if packed else content
    await world.data_volume("system", http={"url": f"{site.url}/disk"})
    await world.succeeded("system")
    assert holds(world.disk("system"))
    assert world.disk("system").stat().st_size == 8 * MIB
    assert world.leftovers("system") == []


async def test_a_file_that_breaks_off_is_never_used_and_fetched_again(
    world: World, site: Site
) -> None:
    site.files["/disk"] = os.urandom(MIB)
    site.short = True
    await world.data_volume("system", http={"url": f"{site.url}/disk"})
    await world.until(lambda: world.says("system", "Running").get("reason") == "Error")
    assert not world.disk("system").exists()
    site.short = False
    await world.succeeded("system")
    assert holds(world.disk("system"), site.files["/disk"])
    assert world.leftovers("system") == []


async def test_a_missing_file_is_waited_for(world: World, site: Site) -> None:
    await world.data_volume("system", http={"url": f"{site.url}/disk"})
    await world.until(lambda: world.says("system", "Running").get("reason") == "Error")
    assert world.phase(kinds.DATA_VOLUME, "system") == "ImportInProgress"
    site.files["/disk"] = CONTENT
    await world.succeeded("system")


@pytest.mark.wording
async def test_the_message_on_a_missing_file_has_the_http_status_and_no_secret(
    world: World, site: Site
) -> None:
    await world.data_volume("system", http={"url": f"{site.url}/disk?token=hidden"})
    await world.until(lambda: "404" in world.says("system", "Running").get("message", ""))
    stored = world.get(kinds.DATA_VOLUME, "system")
    assert stored is not None
    assert "hidden" not in str(stored["status"])


async def test_two_imports_run_at_once_and_no_third(world: World, site: Site) -> None:
    site.gate = asyncio.Event()
    for name in ("a", "b", "c"):
        site.files[f"/{name}"] = CONTENT
        await world.data_volume(name, http={"url": f"{site.url}/{name}"})

    def phases() -> list[str]:
        return sorted(world.phase(kinds.DATA_VOLUME, name) for name in ("a", "b", "c"))

    await world.until(
        lambda: phases() == ["ImportInProgress", "ImportInProgress", "ImportScheduled"]
    )
    assert len(site.asked) <= 2
    site.gate.set()
    for name in ("a", "b", "c"):
        await world.succeeded(name)


async def test_an_import_cut_short_by_the_end_of_the_server_starts_again(
    quiet: World, site: Site
) -> None:
    site.gate = asyncio.Event()
    site.files["/disk"] = CONTENT
    async with running(quiet):
        await quiet.data_volume("system", http={"url": f"{site.url}/disk"})
        await quiet.until(lambda: quiet.phase(kinds.DATA_VOLUME, "system") == "ImportInProgress")
    assert not quiet.disk("system").exists()
    # What a kill leaves behind, which an orderly end does not.
    left = quiet.directories.of(quiet.volume_of("system")) / ".import-dead"
    left.mkdir()
    (left / "disk.img").write_bytes(b"half of")
    site.gate.set()
    async with running(quiet):
        await quiet.succeeded("system")
    assert holds(quiet.disk("system"))
    assert quiet.leftovers("system") == []


async def test_a_data_volume_deleted_while_it_is_filled_leaves_nothing(
    world: World, site: Site
) -> None:
    site.gate = asyncio.Event()
    site.files["/disk"] = CONTENT
    await world.data_volume("system", http={"url": f"{site.url}/disk"})
    await world.until(lambda: world.phase(kinds.DATA_VOLUME, "system") == "ImportInProgress")
    name = world.volume_of("system")
    await world.client.delete(kinds.DATA_VOLUME, "system", NAMESPACE)
    await world.until(lambda: world.get(core.VOLUME, name, "") is None)
    assert not world.directories.exists(name)


# ---------------------------------------------------------------- killed between two steps


class Mortal:
    """A client that dies with its n-th write: just before or just after it took place."""

    def __init__(self, client: LocalClient, writes: int, *, after: bool) -> None:
        self.user = client.user
        self.died = asyncio.Event()
        self._client, self._left, self._after = client, writes, after

    def for_component(self, name: str) -> Mortal:
        return self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._writer(found) if name in ("create", "patch", "update", "delete") else found

    def _writer(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def write(kind: Kind, *args: Any, **rest: Any) -> Any:
            if kind is core.EVENT:  # nothing depends on them
                return await call(kind, *args, **rest)
            self._left -= 1
            if self._left == 0 and self._after:
                await call(kind, *args, **rest)
            if self._left <= 0:
                self.died.set()
                await asyncio.Event().wait()
            return await call(kind, *args, **rest)

        return write


async def dies(world: World, writes: int, after: bool, done: Callable[[], Any]) -> bool:
    """Run the controllers until they die or it is done; tell whether they died."""
    client = Mortal(world.client, writes, after=after)
    async with running(world, client):  # type: ignore[arg-type]
        finished = asyncio.create_task(world.until(done))
        died = asyncio.create_task(client.died.wait())
        await asyncio.wait({finished, died}, return_when=asyncio.FIRST_COMPLETED)
        for task in (finished, died):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await finished
        return client.died.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after a write"])
async def test_controllers_killed_at_any_write_converge_when_they_run_again(
    quiet: World, tmp_path: Path, after: bool
) -> None:
    quiet.images["guest"] = Image(raw(tmp_path / "guest.raw"), "raw")
    writes, dying = 1, True
    while dying:
        await quiet.data_volume("system", registry={"url": "docker://guest"})
        dying = await dies(
            quiet, writes, after,
            lambda: quiet.phase(kinds.DATA_VOLUME, "system") == "Succeeded",
        )  # fmt: skip
        async with running(quiet):
            await quiet.succeeded("system")
        assert holds(quiet.disk("system"))
        assert quiet.leftovers("system") == []

        await quiet.client.delete(kinds.DATA_VOLUME, "system", NAMESPACE)
        dying |= await dies(quiet, writes, after, lambda: not quiet.read.list(core.VOLUME))
        async with running(quiet):
            await quiet.until(lambda: not quiet.read.list(core.VOLUME))
        assert quiet.get(core.CLAIM, "system") is None
        assert list(quiet.directories.root.iterdir()) == []
        writes += 1
    assert writes > 8, "each of these took several writes"


# ---------------------------------------------------------------- disk full


@pytest.fixture
def little_room(quiet: World) -> Iterator[Path]:
    """A file system for the volumes that is too small for what comes."""
    root = quiet.directories.root
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(root)]
    mounted = subprocess.run(mount, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs needs root: {mounted.stderr.decode().strip()}")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True)


def enlarge(root: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=16m", str(root)], check=True)


@pytest.mark.wording
async def test_the_message_on_a_full_disk_says_so(
    little_room: Path, world: World, site: Site
) -> None:
    site.files["/disk"] = os.urandom(6 * MIB)
    await world.data_volume("system", http={"url": f"{site.url}/disk"})
    await world.until(lambda: "no space left" in world.says("system", "Running").get("message", ""))


@pytest.mark.parametrize("source", ["http", "registry"])
async def test_an_import_onto_a_full_disk_is_tried_again_until_there_is_room(
    little_room: Path, world: World, site: Site, tmp_path: Path, source: str
) -> None:
    content = os.urandom(6 * MIB)
    site.files["/disk"] = content
    world.images["guest"] = Image(raw(tmp_path / "guest.raw", content), "raw")
    url = {"http": f"{site.url}/disk", "registry": "docker://guest"}[source]
    await world.data_volume("system", **{source: {"url": url}})
    await world.until(lambda: world.says("system", "Running").get("reason") == "Error")
    assert world.phase(kinds.DATA_VOLUME, "system") == "ImportInProgress"
    assert not world.disk("system").exists()

    enlarge(little_room)
    await world.succeeded("system")
    assert holds(world.disk("system"), content)
    assert world.leftovers("system") == []


# ---------------------------------------------------------------- livevirt volume import


def quietly(_: float) -> None:
    pass


async def test_a_file_is_imported_into_a_new_claim(world: World, tmp_path: Path) -> None:
    request = ImportRequest(qcow2(tmp_path / "guest.qcow2"), NAMESPACE, "guest")
    await volume_import.fill(world.client, world.directories, request, quietly)
    assert world.bound("guest")
    assert holds(world.disk("guest"))
    with pytest.raises(VolumeError, match="holds a disk already"):
        await volume_import.fill(world.client, world.directories, request, quietly)
    assert world.bound("guest")


async def test_a_claim_in_use_is_not_imported_into(world: World, tmp_path: Path) -> None:
    await world.claim("guest")
    await world.pod("user", "guest")
    await world.until(lambda: world.bound("guest"))
    request = ImportRequest(raw(tmp_path / "guest.raw"), NAMESPACE, "guest")
    with pytest.raises(VolumeError, match="used by Pod user"):
        await volume_import.fill(world.client, world.directories, request, quietly)
    assert not world.disk("guest").exists()


async def test_a_new_claim_goes_again_when_the_import_fails(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Order, __: Progress) -> None:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(importer, "fill", fail)
    request = ImportRequest(raw(tmp_path / "guest.raw"), NAMESPACE, "guest")
    with pytest.raises(OSError, match="fire"):
        await volume_import.fill(world.client, world.directories, request, quietly)
    await world.until(lambda: world.get(core.CLAIM, "guest") is None)
