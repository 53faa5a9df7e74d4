"""Read the disk out of a container disk image: an OCI layout or what `docker save` writes.

A container disk keeps one file below `/disk` of its root file system. Nothing of the image is
trusted: every blob is checked against the digest and size it was announced with, only plain files
are taken, and their names are never used as paths on this machine.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, cast

from livevirt.errors import LivevirtError

DISK_FOLDER = "disk"
_CHUNK = 1 << 20
_MAX_DOCUMENT = 4 << 20  # manifests and configurations are small; a large one is not one
_MAX_NESTING = 4  # of indexes in indexes
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_UNREADABLE = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError)


class ImageError(LivevirtError):
    """An image cannot be used; the message gives the reason."""


class Files(Protocol):
    """The files of an image, in a folder or in an archive."""

    def names(self) -> set[str]:
        """The plain files there are, as relative paths."""

    def open(self, name: str) -> IO[bytes]:
        """The content of one of them."""


class Folder:
    """An image that lies unpacked in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> set[str]:
        return {
            str(path.relative_to(self._root))
            for path in self._root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def open(self, name: str) -> IO[bytes]:
        return (self._root / name).open("rb")


class Archive:
    """An image in a tar file."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members = {
            str(PurePosixPath(member.name)): member for member in tar.getmembers() if member.isreg()
        }

    def names(self) -> set[str]:
        return set(self._members)

    def open(self, name: str) -> IO[bytes]:
        content = self._tar.extractfile(self._members[name])
        assert content is not None  # only plain files are members
        return content


@contextmanager
def open_image(path: Path) -> Iterator[Files | None]:
    """Give the files of an OCI layout or archive; None if `path` is neither."""
    if path.is_dir():
        yield Folder(path)
    elif _is_archive(path):
        try:
            with tarfile.open(path) as tar:
                yield Archive(tar)
        except _UNREADABLE as error:
            raise ImageError(f"{path} is a damaged archive: {error}") from error
    else:
        yield None


def _is_archive(path: Path) -> bool:
    """Whether it is a tar file; a disk of zeros would pass for an empty one."""
    try:
        with tarfile.open(path) as tar:
            return tar.next() is not None
    except _UNREADABLE:
        return False


def extract_disk(files: Files, target: IO[bytes]) -> str | None:
    """Write the image's one disk into `target`; return the digest of its manifest, if any."""
    names = files.names()
    digest = None
    if "index.json" in names:
        digest, layers = _oci_layers(files, names)
    elif "manifest.json" in names:
        layers = _docker_layers(files, names)
    else:
        raise ImageError("neither an OCI image layout (index.json) nor a docker archive")
    disks = _disks(layers)
    if not disks:
        raise ImageError("no file found in folder /disk, no disk present")
    if len(disks) > 1:
        found = ", ".join(f"/{name}" for name in sorted(disks))
        raise ImageError(
            f"more than one file found in folder /disk, only one disk is allowed: {found}"
        )
    ((name, layer),) = disks.items()
    layer.copy(name, target)
    return digest


class _Layer:
    """One layer of the image's file system: a tar file, perhaps compressed."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name

    def members(self) -> Iterator[tuple[PurePosixPath, tarfile.TarInfo]]:
        with self._open() as tar:
            for member in tar:
                yield _inside(member.name), member

    def copy(self, name: str, target: IO[bytes]) -> None:
        with self._open() as tar:
            # A later entry of the same name replaces an earlier one.
            latest = None
            for member in tar:
                if member.isreg() and str(_inside(member.name)) == name:
                    latest = member
            assert latest is not None  # `members` has seen it
            content = tar.extractfile(latest)
            assert content is not None
            while chunk := content.read(_CHUNK):
                target.write(chunk)

    @contextmanager
    def _open(self) -> Iterator[tarfile.TarFile]:
        try:
            with self._files.open(self._name) as raw:
                magic = raw.read(4)
                raw.seek(0)
                if magic == b"\x28\xb5\x2f\xfd":
                    raise ImageError("a layer is packed with zstd; repack the image with gzip")
                with tarfile.open(fileobj=raw, mode="r:*") as tar:
                    yield tar
        except _UNREADABLE as error:
            raise ImageError(f"a layer is not a readable tar file: {error}") from error


def _inside(name: str) -> PurePosixPath:
    """A layer's path, relative to the image's root."""
    path = PurePosixPath("/", name)
    if ".." in path.parts:
        raise ImageError(f"a layer has a path that leads out of it: {name}")
    return PurePosixPath(*path.parts[1:])


def _disks(layers: list[_Layer]) -> dict[str, _Layer]:
    """Map each file below /disk, as the stacked layers show it, to the layer it is in."""
    disks: dict[str, _Layer] = {}
    for layer in layers:
        added: set[str] = set()
        for path, member in layer.members():
            if path.parts[:1] == (f"{_WHITEOUT}{DISK_FOLDER}",):
                _hide(disks, added, DISK_FOLDER)
            if path.parts[:1] != (DISK_FOLDER,):
                continue
            if path.name == _OPAQUE:
                _hide(disks, added, str(path.parent))
            elif path.name.startswith(_WHITEOUT):
                _hide(disks, added, str(path.with_name(path.name.removeprefix(_WHITEOUT))))
            elif member.isreg():
                disks[str(path)] = layer
                added.add(str(path))
            elif not member.isdir():
                raise ImageError(f"/{path} is neither a plain file nor a folder")
    return disks


def _hide(disks: dict[str, _Layer], added: set[str], path: str) -> None:
    """Drop what lower layers have at or below `path`."""
    for name in list(disks):
        if name not in added and (name == path or name.startswith(f"{path}/")):
            del disks[name]


def _oci_layers(files: Files, names: set[str]) -> tuple[str, list[_Layer]]:
    digest, manifest = _manifest(files, names)
    blobs = [_blob(files, names, descriptor) for descriptor in _list(manifest, "layers")]
    return digest, [_Layer(files, blob) for blob in blobs]


def _manifest(files: Files, names: set[str]) -> tuple[str, dict[str, Any]]:
    """Follow indexes down to the one manifest for this machine."""
    document = _document(files, "index.json")
    for _ in range(_MAX_NESTING):
        entries = [entry for entry in _list(document, "manifests") if _runs_here(entry)]
        if len(entries) != 1:
            raise ImageError(f"the layout holds {len(entries)} images for amd64, expected one")
        document = _document(files, _blob(files, names, entries[0]))
        if "layers" in document:
            return entries[0]["digest"], document
    raise ImageError("the layout's indexes are nested too deeply")


def _runs_here(entry: Any) -> bool:
    platform = entry.get("platform") if isinstance(entry, dict) else None
    return not isinstance(platform, dict) or platform.get("architecture", "amd64") == "amd64"


def _docker_layers(files: Files, names: set[str]) -> list[_Layer]:
    """The layers of a docker archive, checked against the digests its configuration lists."""
    manifests = _document(files, "manifest.json")
    if not isinstance(manifests, list) or len(manifests) != 1:
        raise ImageError("the docker archive does not hold exactly one image")
    manifest = manifests[0]
    config = manifest.get("Config") if isinstance(manifest, dict) else None
    if config not in names:
        raise ImageError(f"the archive has no file {config}")
    digests = _document(files, config).get("rootfs", {}).get("diff_ids", [])
    paths = _list(manifest, "Layers")
    if len(paths) != len(digests):
        raise ImageError("the docker archive's layers do not match its configuration")
    for path, digest in zip(paths, digests, strict=True):
        if path not in names:
            raise ImageError(f"the archive has no file {path}")
        with files.open(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            _check(cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw, digest, None)
    return [_Layer(files, path) for path in paths]


def _blob(files: Files, names: set[str], descriptor: Any) -> str:
    """The file of a blob, after checking its digest and size."""
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    size = descriptor.get("size") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str) or not isinstance(size, int):
        raise ImageError("the layout has an entry without digest or size")
    algorithm, _, value = digest.partition(":")
    name = f"blobs/{algorithm}/{value}"
    if name not in names:
        raise ImageError(f"the layout has no blob {digest}")
    with files.open(name) as content:
        _check(content, digest, size)
    return name


def _check(content: IO[bytes], digest: str, size: int | None) -> None:
    """Refuse content that is not what its digest and size say."""
    algorithm, _, value = digest.partition(":")
    if algorithm not in ("sha256", "sha512"):
        raise ImageError(f"digest {digest} is of a kind that is not supported")
    hasher = hashlib.new(algorithm)
    length = 0
    while chunk := content.read(_CHUNK):
        hasher.update(chunk)
        length += len(chunk)
    if size is not None and length != size:
        raise ImageError(f"blob {digest} has {length} bytes, expected {size}")
    if hasher.hexdigest() != value:
        raise ImageError(f"blob {digest} is damaged: it has digest {hasher.hexdigest()}")


def _document(files: Files, name: str) -> Any:
    with files.open(name) as content:
        data = content.read(_MAX_DOCUMENT + 1)
    if len(data) > _MAX_DOCUMENT:
        raise ImageError(f"{name} is too large")
    try:
        return json.loads(data)
    except ValueError as error:
        raise ImageError(f"{name} is not JSON: {error}") from error


def _list(document: Any, key: str) -> list[Any]:
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, list):
        raise ImageError(f"the image has no list of {key}")
    return value
