"""The volumes of a guest in a pod, as QEMU opens them in its container."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from livevirt.errors import NotFound
from livevirt.kube.objects.request import Object
from livevirt.node import launcher_pod, pod_volumes
from livevirt.node.launcher_pod import ContainerRoot, LauncherDir
from livevirt.node.pod_volumes import PodVolumes, read_header
from livevirt.node.volumes import Prepared, VolumeProblem

needs_qemu_img = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")
SIZE = 32 << 20


def a_qcow2(version: int = 3, backing: int = 0, features: int = 0) -> bytes:
    header = struct.pack(">4sIQIIQ", b"QFI\xfb", version, backing, 0, 16, SIZE)
    return header.ljust(72, b"\0") + struct.pack(">Q", features).ljust(100, b"\0")


def test_the_header_gives_format_and_size() -> None:
    assert read_header(b"\x55\xaa" * 256, 4096) == ("raw", 4096)
    assert read_header(a_qcow2(), 4096) == ("qcow2", SIZE)
    assert read_header(a_qcow2(version=2, features=4), 4096) == ("qcow2", SIZE)


@pytest.mark.parametrize("header", [a_qcow2(backing=512), a_qcow2(features=4)])
def test_an_image_that_names_another_file_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="another file"):
        read_header(header, 4096)


class Pod:
    """The directories of a pod, and the file systems of its containers."""

    def __init__(self, root: Path) -> None:
        self.folder = LauncherDir(root / "nodes" / "n" / "pods", root / "kubelet", "uid")
        self.folder.scratch.mkdir(parents=True)
        self.roots = {}
        for name in ("compute", "volumeroot"):
            self.roots[name] = found = ContainerRoot(1)
            found.path = root / name
            found.path.mkdir()
        self.claims: dict[str, Object] = {}

    def put(self, container: str, path: str, content: bytes) -> None:
        there = self.roots[container].path / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)

    async def get(self, kind: Any, name: str, namespace: str) -> Object:
        if name not in self.claims:
            raise NotFound(f"no claim {name}")
        return self.claims[name]

    async def prepare(self, *volumes: Object) -> dict[str, Prepared]:
        client: Any = self
        vmi = {"metadata": {"namespace": "default"}, "spec": {"volumes": list(volumes)}}
        metadata = {"instance-id": "web"}
        attached: Any = None  # no claim is attached later here
        volumes_ = PodVolumes(client, attached)
        return await volumes_.prepare(vmi, self.folder, self.roots.get, metadata)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    owner = (os.geteuid(), os.getegid())
    monkeypatch.setattr(launcher_pod, "OWNER", owner)
    monkeypatch.setattr(pod_volumes, "OWNER", owner)
    return Pod(tmp_path)


ROOT = {"name": "root", "containerDisk": {"image": "guest:1"}}


@needs_qemu_img
@pytest.mark.parametrize("held", [True, False])
async def test_a_container_disk_is_written_to_an_overlay_that_ends_with_the_pod(
    pod: Pod, held: bool
) -> None:
    if held:
        pod.put("volumeroot", "disk/guest.qcow2", a_qcow2())
    else:
        del pod.roots["volumeroot"]
        mounted = "var/run/kubevirt/container-disks/root/disk/guest.qcow2"
        pod.put("compute", mounted, a_qcow2())
    found = (await pod.prepare(ROOT))["root"].image
    assert found.path == "/var/lib/livevirt/root.qcow2"
    assert found.backing is not None
    assert found.backing.path == "/var/run/kubevirt/container-disks/root/disk/guest.qcow2"
    assert found.backing.format == "qcow2"
    overlay = (pod.folder.scratch / "root.qcow2").read_bytes()
    assert struct.unpack_from(">Q", overlay, 24) == (SIZE,)


@pytest.mark.parametrize("names", [[], ["a.img", "b.img"]])
async def test_an_image_has_one_disk(pod: Pod, names: list[str]) -> None:
    (pod.roots["volumeroot"].path / "disk").mkdir()
    for name in names:
        pod.put("volumeroot", f"disk/{name}", bytes(512))
    with pytest.raises(VolumeProblem):
        await pod.prepare(ROOT)


async def test_a_disk_that_is_a_link_is_refused(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(512))
    folder = pod.roots["volumeroot"].path / "disk"
    folder.mkdir()
    (folder / "guest.img").symlink_to(tmp_path / "secret")
    with pytest.raises(VolumeProblem):
        await pod.prepare(ROOT)


async def test_user_data_of_the_spec_and_of_a_secret_are_on_a_disc(pod: Pod) -> None:
    mounted = "var/run/kubevirt-private/secret/second/udata/userdata"
    pod.put("compute", mounted, b"#cloud-config\nfrom-the-secret: 1\n")
    found = await pod.prepare(
        {"name": "first", "cloudInitNoCloud": {"userData": "#cloud-config\nfrom-the-spec: 1\n"}},
        {"name": "second", "cloudInitNoCloud": {"secretRef": {"name": "some"}}},
    )
    assert found["first"].image.path == "/var/lib/livevirt/first.iso"
    assert b"from-the-spec" in (pod.folder.scratch / "first.iso").read_bytes()
    assert b"from-the-secret" in (pod.folder.scratch / "second.iso").read_bytes()


async def test_an_empty_disk_is_made_and_a_claim_is_filled_and_kept(pod: Pod) -> None:
    pod.claims["data"] = {
        "metadata": {"name": "data"},
        "spec": {"resources": {"requests": {"storage": "4Mi"}}},
    }
    mounted = pod.roots["compute"].path / "var/run/kubevirt-private/vmi-disks/data"
    mounted.mkdir(parents=True)
    volumes = (
        {"name": "empty", "emptyDisk": {"capacity": "2Mi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    )
    found = await pod.prepare(*volumes)
    assert found["empty"].image.path == "/var/lib/livevirt/empty.img"
    assert (pod.folder.scratch / "empty.img").stat().st_size == 2 << 20
    assert found["data"].image.path == "/var/run/kubevirt-private/vmi-disks/data/disk.img"
    assert (mounted / "disk.img").stat().st_size == 4 << 20
    (mounted / "disk.img").write_bytes(b"x" * (8 << 20))
    await pod.prepare(*volumes)
    assert (mounted / "disk.img").read_bytes() == b"x" * (8 << 20)


async def test_a_block_claim_is_a_device_of_the_container(pod: Pod) -> None:
    pod.claims["data"] = {"metadata": {"name": "data"}, "spec": {"volumeMode": "Block"}}
    found = await pod.prepare({"name": "disk", "dataVolume": {"name": "data"}})
    assert found["disk"].image.path == "/dev/disk"
    assert found["disk"].image.block


async def test_a_claim_that_does_not_exist_is_waited_for(pod: Pod) -> None:
    with pytest.raises(VolumeProblem):
        await pod.prepare({"name": "data", "persistentVolumeClaim": {"claimName": "none"}})
