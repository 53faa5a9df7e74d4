"""Disks of claims that attachment pods hold; the pod is a process of the test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from livevirt.kube.control.cache import Key
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects.request import Object
from livevirt.node import attached_claims
from livevirt.node.attached_claims import AttachedClaims
from livevirt.node.launcher_pod import ContainerRoot
from livevirt.node.volumes import VolumeProblem
from livevirt.vm.volumes.attachment_pods import Attachment, Place, manifest

VMI: Object = {"metadata": {"name": "web", "namespace": "default", "uid": "g1"}}
CLAIM: Object = {
    "metadata": {"name": "data", "namespace": "default", "uid": "c1"},
    "spec": {"resources": {"requests": {"storage": "1Mi"}}},
}


def a_pod(state: Object, **status: Any) -> Object:
    pod = manifest(VMI, Attachment(Place("launcher", "p1", "node-1"), "disk", "data"), "image")
    pod["metadata"]["uid"] = "a1"
    listed = [{"name": "hotplug-disk", "state": state, "containerID": "containerd://x"}]
    return {**pod, "status": {"containerStatuses": listed, **status}}


class Pods:
    """The pods of a node."""

    def __init__(self, *pods: Object) -> None:
        self.pods = pods

    def index(self, name: str, keys: Any) -> None:
        self._keys = keys

    def by(self, name: str, key: Key) -> list[Object]:
        return [pod for pod in self.pods if key in self._keys(pod)]


class Root(ContainerRoot):
    """A directory in place of the file system of a container."""

    def __init__(self, path: Path) -> None:
        self.path = path


class World:
    """Claims as an attachment pod has them, and where the agent keeps its links."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        (self.root / "disk").mkdir(parents=True)
        self.links = folder / "attachments"
        self.claims = self.of(a_pod({"running": {}}))

    def of(self, *pods: Object) -> AttachedClaims:
        return AttachedClaims(cast(Informer, Pods(*pods)), (), self.links)

    @property
    def file(self) -> Path:
        return self.root / "disk" / "disk.img"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path)
    monkeypatch.setattr(AttachedClaims, "_root", lambda self, claim: Root(found.root))
    monkeypatch.setattr(attached_claims, "OWNER", (os.getuid(), os.getgid()))
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_given_an_empty_claim_then_its_disk_is_created_and_can_be_opened(world: World) -> None:
    before = descriptors()
    prepared = world.claims.open(CLAIM)
    assert world.file.stat().st_size == 1 << 20
    with open(prepared.image.path, "r+b") as disk:
        disk.write(b"written")
    assert world.file.read_bytes().startswith(b"written")
    world.claims.release(prepared)
    assert not os.path.lexists(prepared.image.path)
    assert descriptors() == before
    world.claims.release(prepared)  # again does no harm


def test_the_path_follows_from_the_claim_alone(world: World) -> None:
    before = descriptors()
    first = world.claims.open(CLAIM)
    second = world.claims.open(CLAIM)  # of an attempt that was given up
    assert first.image == second.image
    world.claims.release(second)
    assert descriptors() == before


def test_given_a_link_in_place_of_the_disk_then_it_is_not_followed(world: World) -> None:
    secret = world.root / "secret"
    secret.write_text("of the node")
    world.file.symlink_to(secret)
    with pytest.raises(VolumeProblem):
        world.claims.open(CLAIM)


def test_given_another_file_in_place_of_the_disk_later_then_the_first_is_opened(
    world: World,
) -> None:
    prepared = world.claims.open(CLAIM)
    world.file.write_bytes(b"ours".ljust(1 << 20))
    world.file.rename(world.file.with_name("old"))
    world.file.symlink_to("/etc/passwd")
    with open(prepared.image.path, "rb") as disk:
        assert disk.read(4) == b"ours"
    world.claims.release(prepared)


def test_given_a_claim_that_is_a_device_then_a_file_is_refused(world: World) -> None:
    (world.root / "dev").mkdir()
    (world.root / "dev" / "disk").touch()
    with pytest.raises(VolumeProblem):
        world.claims.open({**CLAIM, "spec": {**CLAIM["spec"], "volumeMode": "Block"}})


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
WAITING = {
    "no pod": ((), "AttachmentPodPending"),
    "not scheduled": ((a_pod({}, conditions=[UNSCHEDULABLE]),), "Unschedulable"),
    "not mounted": ((a_pod({"waiting": {"reason": "ContainerCreating"}}),), "ContainerCreating"),
    "no process": ((a_pod({"running": {}}),), "AttachmentPodPending"),
}


@pytest.mark.parametrize(("pods", "reason"), WAITING.values(), ids=WAITING)
def test_what_it_waits_for(tmp_path: Path, pods: tuple[Object, ...], reason: str) -> None:
    with pytest.raises(VolumeProblem) as problem:
        World(tmp_path).of(*pods).open(CLAIM)
    assert problem.value.reason == reason


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    image = tmp_path / "image"
    image.write_bytes(b"blocks".ljust(1 << 20))
    command = ["losetup", "--find", "--show", str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop devices: {done.stderr}")
    yield Path(done.stdout.strip())
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="devices need root")
def test_given_a_claim_that_is_a_device_then_it_is_opened(world: World, device: Path) -> None:
    (world.root / "dev").mkdir()
    os.mknod(world.root / "dev" / "disk", device.stat().st_mode, device.stat().st_rdev)
    prepared = world.claims.open({**CLAIM, "spec": {**CLAIM["spec"], "volumeMode": "Block"}})
    assert prepared.image.block
    with open(prepared.image.path, "rb") as disk:
        assert disk.read(6) == b"blocks"
    world.claims.release(prepared)
