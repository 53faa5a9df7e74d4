"""What a node sees of a launcher pod, and that QEMU cannot lead it elsewhere by links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node import launcher_pod
from livevirt.node.launcher_pod import ContainerRoot, LauncherDir
from livevirt.node.runtime import Exit

UID = "pod-uid"


def a_pod(state: Object, phase: str = "Running") -> Object:
    compute = {"name": "compute", "containerID": "containerd://abc", "state": state}
    sidecar = {"name": "volumeroot", "containerID": "containerd://def", "state": {"running": {}}}
    return {
        "status": {
            "phase": phase,
            "containerStatuses": [compute],
            "initContainerStatuses": [sidecar],
        }
    }


def test_only_containers_that_run_have_an_id() -> None:
    pod = a_pod({"running": {}})
    assert launcher_pod.running_id(pod, "compute") == "abc"
    assert launcher_pod.running_id(pod, "volumeroot") == "def"
    assert launcher_pod.running_id(a_pod({"waiting": {}}), "compute") == ""
    assert launcher_pod.running_id({}, "compute") == ""


EXITS: dict[str, tuple[Object, Exit | None]] = {
    "it runs": (a_pod({"running": {}}), None),
    "killed by the kernel": (
        a_pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
        Exit(oom_killed=True),
    ),
    "it printed why": (
        a_pod({"terminated": {"reason": "Error", "message": "no such disk\n"}}),
        Exit(complaint="no such disk"),
    ),
    "evicted": (a_pod({"waiting": {}}, "Failed"), Exit()),
}


@pytest.mark.parametrize(("pod", "expected"), EXITS.values(), ids=EXITS)
def test_an_exit_is_what_the_kubelet_reports(pod: Object, expected: Exit | None) -> None:
    assert launcher_pod.exit_of(pod) == expected


@pytest.fixture
def folder(tmp_path: Path) -> LauncherDir:
    found = LauncherDir(tmp_path / "nodes" / "n" / "pods", tmp_path / "kubelet", UID)
    found.create(None)
    found.run.mkdir(parents=True)
    return found


def test_the_arguments_appear_at_once_and_are_never_changed(folder: LauncherDir) -> None:
    folder.write_argv(["/usr/bin/qemu", "-name", "a b"])
    assert folder.argv.read_bytes() == b"/usr/bin/qemu\0-name\0a b\0"
    assert folder.argv.stat().st_mode & 0o777 == 0o644
    folder.write_argv(["/bin/sh"])
    assert folder.argv.read_bytes().startswith(b"/usr/bin/qemu\0")
    assert os.listdir(folder.run) == ["argv"]


def test_arguments_are_not_written_through_a_link(folder: LauncherDir, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (folder.run / "argv.part").symlink_to(victim)
    folder.write_argv(["/usr/bin/qemu"])
    assert victim.read_text() == "kept"


def test_a_hook_that_waits_may_return_once_the_guest_has_ended(folder: LauncherDir) -> None:
    folder.release_stop()
    assert not folder.stopped.exists()
    folder.stop.touch()
    folder.release_stop()
    folder.release_stop()
    assert folder.stopped.exists()


@pytest.fixture
def root(tmp_path: Path) -> ContainerRoot:
    found = ContainerRoot(1)
    found.path = tmp_path / "root"
    (found.path / "disk").mkdir(parents=True)
    (found.path / "disk" / "guest.img").write_text("image")
    return found


def read(root: ContainerRoot, path: str) -> str:
    with os.fdopen(root.open(path)) as file:
        return file.read()


def test_files_of_a_container_are_read(root: ContainerRoot) -> None:
    assert root.names("/disk") == ["guest.img"]
    assert read(root, "/disk/guest.img") == "image"


@pytest.mark.parametrize("link", ["disk", "disk/guest.img"])
def test_links_in_a_container_lead_nowhere(root: ContainerRoot, tmp_path: Path, link: str) -> None:
    outside: Any = tmp_path / "outside"
    outside.mkdir()
    (outside / "guest.img").write_text("a file of the node")
    there = root.path / link
    there.rename(tmp_path / "away")
    there.symlink_to(outside if link == "disk" else outside / "guest.img")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        read(root, "/disk/guest.img")


def test_the_run_directory_of_our_image_is_reached(root: ContainerRoot) -> None:
    (root.path / "run" / "kubevirt").mkdir(parents=True)
    (root.path / "run" / "kubevirt" / "file").write_text("mounted")
    (root.path / "var").mkdir()
    (root.path / "var" / "run").symlink_to("/run")
    assert read(root, "/var/run/kubevirt/file") == "mounted"
    assert root.below("/var/run/kubevirt") == root.path / "run" / "kubevirt"
