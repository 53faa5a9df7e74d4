import fcntl
import gzip
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from livevirt.cli.livevirt import cli
from livevirt.node import images
from livevirt.node.images import ImageError, ImageStore, Reference
from livevirt.paths import default_data_dir

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-img is not installed")

DISK = b"a raw disk, not a large one".ljust(1024, b"\0")
Entry = tuple[str, bytes] | tarfile.TarInfo


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


# --- builders -----------------------------------------------------------------------------------


def a_file(folder: Path, data: bytes = DISK) -> Path:
    path = folder / "file.img"
    path.write_bytes(data)
    return path


def a_qcow2(folder: Path, *options: str) -> Path:
    path = folder / "file.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, path, "1M"], check=True)
    return path


def a_layer(*entries: Entry) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                name, data = entry
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def a_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def a_layout(
    folder: Path, *layers: bytes, change: Callable[[dict[str, Any]], None] = lambda _: None
) -> Path:
    """An OCI layout of these layers; `change` may spoil the manifest before it is written."""
    root = folder / "layout"
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    manifest = {"schemaVersion": 2, "layers": [add(layer) for layer in layers]}
    change(manifest)
    entry = add(json.dumps(manifest).encode())
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return root


def a_docker_archive(folder: Path, layer: bytes, digest: str | None = None) -> Path:
    digest = digest or hashlib.sha256(layer).hexdigest()
    config = {"rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    manifest = [{"Config": "config.json", "RepoTags": ["a:b"], "Layers": ["one/layer.tar"]}]
    path = folder / "saved.tar"
    path.write_bytes(
        a_layer(
            ("one/layer.tar", layer),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        )
    )
    return path


def packed(layout: Path) -> Path:
    path = layout.with_suffix(".tar")
    with tarfile.open(path, "w") as tar:
        tar.add(layout, arcname=".")
    return path


# --- what can be imported -----------------------------------------------------------------------

SOURCES: dict[str, Callable[[Path], Path]] = {
    "a raw file": a_file,
    "a layout": lambda folder: a_layout(folder, a_layer(("disk/guest.img", DISK))),
    "a layout with a packed layer": lambda folder: a_layout(
        folder, gzip.compress(a_layer(("./disk/guest.img", DISK)))
    ),
    "a tar of a layout": lambda folder: packed(
        a_layout(folder, a_layer(("/disk/guest.img", DISK)))
    ),
    "a docker archive": lambda folder: a_docker_archive(folder, a_layer(("disk/a", DISK))),
    "a disk that a later layer replaced": lambda folder: a_layout(
        folder, a_layer(("disk/a", b"old")), a_layer(("disk/a", DISK))
    ),
    "a disk after another was whited out": lambda folder: a_layout(
        folder, a_layer(("disk/a", b"old")), a_layer(("disk/.wh.a", b""), ("disk/b", DISK))
    ),
    "a disk in a folder made opaque": lambda folder: a_layout(
        folder, a_layer(("disk/a", b"old")), a_layer(("disk/b", DISK), ("disk/.wh..wh..opq", b""))
    ),
    "a disk next to other files": lambda folder: a_layout(
        folder, a_layer(("etc/passwd", b"x"), a_link("etc/mtab", "/proc/mounts"), ("disk/a", DISK))
    ),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_disk_of_any_source_is_stored_read_only_by_its_digest(
    source: Callable[[Path], Path], store: ImageStore, tmp_path: Path
) -> None:
    image = store.import_(source(tmp_path), "demo")

    assert image.path.read_bytes() == DISK
    assert image.path.name == hashlib.sha256(DISK).hexdigest()
    assert image.path.stat().st_mode & 0o777 == 0o440
    assert (image.name, image.format, image.virtual_size) == ("demo:latest", "raw", len(DISK))
    assert store.find("demo") == image


def test_given_a_qcow2_then_its_format_and_virtual_size_are_recorded(
    store: ImageStore, tmp_path: Path
) -> None:
    image = store.import_(a_qcow2(tmp_path), "demo")
    assert (image.format, image.virtual_size) == ("qcow2", 1 << 20)


def test_without_qemu_img_it_is_told_what_to_install(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match=r"apt-get install .* qemu-utils"):
        store.import_(a_file(tmp_path), "a")


def test_given_a_disk_of_zeros_then_it_is_a_disk_and_not_an_empty_archive(
    store: ImageStore, tmp_path: Path
) -> None:
    assert store.import_(a_file(tmp_path, bytes(20480)), "blank").virtual_size == 20480


# --- what is refused ----------------------------------------------------------------------------


def damaged(folder: Path) -> Path:
    layer = a_layer(("disk/a", DISK))
    layout = a_layout(folder, layer)
    blob = layout / "blobs" / "sha256" / hashlib.sha256(layer).hexdigest()
    blob.write_bytes(layer.replace(b"not a large one", b"but another one"))
    return layout


def without_blob(folder: Path) -> Path:
    layer = a_layer(("disk/a", DISK))
    layout = a_layout(folder, layer)
    (layout / "blobs" / "sha256" / hashlib.sha256(layer).hexdigest()).unlink()
    return layout


def wrong_size(manifest: dict[str, Any]) -> None:
    manifest["layers"][0]["size"] += 1


def foreign_digest(manifest: dict[str, Any]) -> None:
    manifest["layers"][0]["digest"] = "sha256:../../index.json"


def with_external_data(folder: Path) -> Path:
    return a_qcow2(folder, "-o", f"data_file={folder / 'data'}")


def with_backing(folder: Path) -> Path:
    secret = a_file(folder, bytes(1 << 20))
    return a_qcow2(folder, "-b", str(secret), "-F", "raw")


def a_vdi(folder: Path) -> Path:
    path = folder / "file.vdi"
    subprocess.run(["qemu-img", "create", "-q", "-f", "vdi", path, "1M"], check=True)
    return path


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing there": (lambda folder: folder / "missing", "does not exist"),
    "an empty file": (lambda folder: a_file(folder, b""), "empty"),
    "another folder": (lambda folder: folder, "neither an OCI image layout"),
    "no disk": (
        lambda folder: a_layout(folder, a_layer(("etc/a", DISK))),
        "no file found in folder /disk",
    ),
    "two disks": (
        lambda folder: a_layout(folder, a_layer(("disk/a", DISK), ("disk/b", DISK))),
        "only one disk is allowed: /disk/a, /disk/b",
    ),
    "a disk whited out with its folder": (
        lambda folder: a_layout(folder, a_layer(("disk/a", DISK)), a_layer((".wh.disk", b""))),
        "no disk present",
    ),
    "a symbolic link": (
        lambda folder: a_layout(folder, a_layer(a_link("disk/a", "/etc/shadow"))),
        "neither a plain file nor a folder",
    ),
    "a hard link": (
        lambda folder: a_layout(folder, a_layer(a_link("disk/a", "etc/shadow", tarfile.LNKTYPE))),
        "neither a plain file nor a folder",
    ),
    "a path that leads out": (
        lambda folder: a_layout(folder, a_layer(("disk/../../a", DISK))),
        "leads out",
    ),
    "a damaged blob": (damaged, "is damaged"),
    "a missing blob": (without_blob, "has no blob"),
    "a blob of another size": (
        lambda folder: a_layout(folder, a_layer(("disk/a", DISK)), change=wrong_size),
        "expected",
    ),
    "a digest that is a path": (
        lambda folder: a_layout(folder, a_layer(("disk/a", DISK)), change=foreign_digest),
        "has no blob",
    ),
    "a layer that is no tar": (lambda folder: a_layout(folder, b"x" * 2000), "not a readable tar"),
    "a docker archive with another layer": (
        lambda folder: a_docker_archive(folder, a_layer(("disk/a", DISK)), "0" * 64),
        "is damaged",
    ),
    "a packed disk": (lambda folder: a_file(folder, gzip.compress(DISK)), "packed with gzip"),
    "another format": (a_vdi, "unsupported image format: vdi"),
    "a qcow2 with a backing file": (with_backing, "expected no backing file"),
    "a qcow2 with an external data file": (with_external_data, "expected no external data file"),
    "a qcow2 cut short": (lambda folder: a_file(folder, b"QFI\xfb\0\0\0\3"), "ends within"),
}


@pytest.mark.parametrize(("source", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_with_the_reason_and_leaves_nothing(
    source: Callable[[Path], Path], reason: str, store: ImageStore, tmp_path: Path
) -> None:
    with pytest.raises(ImageError, match=reason):
        store.import_(source(tmp_path), "demo")

    assert list(store.list()) == []
    assert [path for path in store.root.rglob("*") if path.is_file() and path.name != "lock"] == []


# --- names --------------------------------------------------------------------------------------

SAME = {
    "the default tag": ("demo", "demo:latest"),
    "the default registry": ("demo", "docker.io/library/demo:latest"),
    "a path on the default registry": ("livevirt/guest", "docker.io/livevirt/guest:latest"),
    "a registry with a port": ("localhost:5000/a/b:v1", "localhost:5000/a/b:v1"),
    "a registry with a port and no tag": ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
    "a transport": ("quay.io/a/b:v1", "docker://quay.io/a/b:v1"),
}


@pytest.mark.parametrize(("name", "reference"), SAME.values(), ids=SAME)
def test_references_that_mean_the_same_find_the_same_image(
    name: str, reference: str, store: ImageStore, tmp_path: Path
) -> None:
    image = store.import_(a_file(tmp_path), name)
    assert store.find(reference) == image
    assert store.find(name) == image


@pytest.mark.parametrize(
    "reference", ["demo:v2", "other", "quay.io/demo", "demo@sha256:" + "0" * 64]
)
def test_other_references_find_nothing(reference: str, store: ImageStore, tmp_path: Path) -> None:
    store.import_(a_file(tmp_path), "demo")
    assert store.find(reference) is None


def test_a_digest_finds_the_image_by_its_manifest_or_its_disk(
    store: ImageStore, tmp_path: Path
) -> None:
    layout = a_layout(tmp_path, a_layer(("disk/a", DISK)))
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    image = store.import_(layout, "demo")
    assert store.find(f"quay.io/x/demo@{entry['digest']}") == image
    assert store.find(f"demo:any@{image.digest}") == image


@pytest.mark.parametrize("name", ["", "a b", "../etc", "demo:", "a//b", "demo@sha256:12", "-x"])
def test_what_is_no_image_name_is_refused(name: str, store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="is not an image name"):
        store.import_(a_file(tmp_path), name)


words = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(
    st.sampled_from(["", "quay.io/", "localhost:5000/"]),
    st.lists(words, min_size=1, max_size=3).map("/".join),
    words,
)
def test_given_any_name_when_taken_apart_then_it_can_be_put_together(
    registry: str, path: str, tag: str
) -> None:
    reference = Reference.parse(f"{registry}{path}:{tag}")
    assert (reference.repository, reference.tag) == (registry + path, tag)
    assert Reference.parse(reference.name) == reference
    assert Reference.parse(registry + path).tag == "latest"


# --- the store over time ------------------------------------------------------------------------


def test_images_are_listed_by_name_and_another_process_sees_them(
    store: ImageStore, tmp_path: Path
) -> None:
    store.import_(a_file(tmp_path), "b")
    store.import_(a_qcow2(tmp_path), "a")
    assert [image.name for image in store.list()] == ["a:latest", "b:latest"]
    assert ImageStore(store.root).list() == store.list()


def test_when_a_name_is_imported_again_then_it_means_the_new_disk_and_the_old_one_goes(
    store: ImageStore, tmp_path: Path
) -> None:
    old = store.import_(a_file(tmp_path), "demo")
    new = store.import_(a_file(tmp_path, DISK * 2), "demo")
    assert store.find("demo") == new
    assert not old.path.exists()


def test_when_one_of_two_names_is_removed_then_the_disk_stays(
    store: ImageStore, tmp_path: Path
) -> None:
    image = store.import_(a_file(tmp_path), "one")
    store.import_(a_file(tmp_path), "two")
    store.remove("one")
    assert store.find("one") is None
    assert image.path.exists()
    store.remove("two:latest")
    assert not image.path.exists()
    with pytest.raises(ImageError, match="there is no image two:latest"):
        store.remove("two")


def test_given_a_disk_in_use_when_its_name_goes_then_the_disk_stays_until_it_is_free(
    store: ImageStore, tmp_path: Path
) -> None:
    image = store.import_(a_file(tmp_path), "demo")
    # Holds a lock on the file as QEMU does, in a process of its own.
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\n"
            "file = open(sys.argv[1], 'rb')\n"
            "fcntl.lockf(file, fcntl.LOCK_SH)\n"
            "print('locked', flush=True)\n"
            "sys.stdin.read()\n",
            str(image.path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        store.remove("demo")
        assert image.path.exists()
        holder.communicate()
    store.import_(a_file(tmp_path, DISK * 2), "other")
    assert not image.path.exists()


@pytest.mark.parametrize("when", ["before it is looked at", "before it is removed"])
def test_given_an_import_ends_just_then_another_one_takes_it_for_gone(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    ending = store.root / "tmp" / "ending"
    ending.mkdir(parents=True)
    look = images._in_use

    def ends(folder: Path) -> bool:
        if folder == ending and when == "before it is looked at":
            ending.rmdir()
        used = look(folder)
        if folder == ending and when == "before it is removed":
            ending.rmdir()
        return used

    monkeypatch.setattr(images, "_in_use", ends)
    store.import_(a_file(tmp_path), "demo")
    assert not ending.exists()


def test_given_an_interrupted_import_then_the_next_one_removes_what_it_left(
    store: ImageStore, tmp_path: Path
) -> None:
    left = store.root / "tmp" / "left"
    busy = store.root / "tmp" / "busy"
    for folder in (left, busy):
        folder.mkdir(parents=True)
        (folder / "disk").write_bytes(b"half")
    handle = os.open(busy, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        store.import_(a_file(tmp_path), "demo")
        assert not left.exists()
        assert busy.exists(), "an import under way keeps its files"
    finally:
        os.close(handle)


def test_given_many_changes_at_once_then_none_is_lost(store: ImageStore, tmp_path: Path) -> None:
    file = a_file(tmp_path)
    names = [f"demo:{number}" for number in range(8)]
    # The lock is on the file, so threads stand for processes: each takes it by its own handle.
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: store.import_(file, name), names))
        assert [image.name for image in store.list()] == names
        list(pool.map(store.remove, names))
    assert list(store.list()) == []


def test_given_a_damaged_index_then_the_error_names_the_file(store: ImageStore) -> None:
    store.root.mkdir()
    (store.root / "index.json").write_text("{")
    with pytest.raises(ImageError, match=r"index\.json cannot be read"):
        store.list()


@pytest.mark.wording
@pytest.mark.parametrize("folder", ["images", "a folder"])
def test_given_an_image_is_missing_then_the_command_of_the_message_puts_it_where_it_is_looked_for(
    folder: str, tmp_path: Path
) -> None:
    store = ImageStore(tmp_path / folder)
    message = store.missing("some/os")
    assert str(store.root) in message
    command = message.partition("`")[2].removesuffix("`")
    words = [str(a_file(tmp_path)) if word == "PATH" else word for word in shlex.split(command)]
    assert words.pop(0) == "livevirt"
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert store.find("some/os") is not None


@pytest.mark.wording
def test_given_the_default_store_then_the_command_need_not_name_it() -> None:
    message = ImageStore(default_data_dir() / images.FOLDER).missing("some/os")
    assert "--image-store" not in message


def test_given_a_raw_disk_whose_content_looks_like_another_format_then_it_stays_raw(
    store: ImageStore, tmp_path: Path
) -> None:
    disk = tmp_path / "disk.raw"
    disk.write_bytes(b"LUKS\xba\xbe\x00\x01" + bytes(1 << 20))  # qemu-img would guess luks
    assert store.import_(disk, "demo").format == "raw"
