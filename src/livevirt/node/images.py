"""The local image store: disks by digest, found by the names manifests use.

A store is a folder that any number of processes share:

    disks/<sha256>   read-only disk files, never changed
    index.json       name -> disk, replaced as a whole
    lock             held while the index changes
    tmp/             imports under way; leftovers go with the next import

The format of a disk is decided once, at import, and recorded. Later a guest may have written any
header it likes into an overlay, so nothing may be probed again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from livevirt import programs
from livevirt.files import durable, private
from livevirt.node import process
from livevirt.node.oci import ImageError, extract_disk, open_image
from livevirt.paths import default_data_dir
from livevirt.vm.datavolumes import qemu_img
from livevirt.vm.datavolumes.filling import ImportRefused

__all__ = ["Image", "ImageError", "ImageStore", "Reference"]

FOLDER = "images"  # of the default data directory: the store of every server without another
_CHUNK = 1 << 20
_HEADER = 104  # bytes of a qcow2 header, version 3
_EXTERNAL_DATA = 1 << 2  # in its incompatible features
_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_DISK_MODE = 0o440  # shared by guests, so QEMU reads it by its group and owns none of it
_DISKS_MODE = 0o710
_LOCK_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
_INSPECT_TIMEOUT = 60  # seconds; qemu-img reads a header

_WORD = "[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(
    rf"(?P<repository>(?:{_WORD}(?::[0-9]+)?/)?{_WORD}(?:/{_WORD})*)"  # a port only before a path
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@sha256:(?P<digest>[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An image name taken apart: `[registry/]path[:tag][@sha256:digest]`."""

    repository: str
    tag: str | None
    digest: str | None

    @staticmethod
    def parse(text: str) -> Reference:
        match = _NAME.fullmatch(text.removeprefix("docker://"))
        if match is None:
            raise ImageError(f"{text!r} is not an image name")
        repository, tag, digest = match.group("repository", "tag", "digest")
        for default in ("docker.io/library/", "docker.io/", "index.docker.io/"):
            repository = repository.removeprefix(default)
        return Reference(repository, tag if tag or digest else "latest", digest)

    @property
    def name(self) -> str:
        """The part a name in the store consists of: repository and tag."""
        return f"{self.repository}:{self.tag or 'latest'}"


@dataclass(frozen=True, slots=True)
class Image:
    """A disk in the store, under one of its names."""

    name: str
    digest: str  # of the disk file: sha256:<hex>
    format: str  # qcow2 or raw
    virtual_size: int
    path: Path
    imported_at: str  # RFC 3339
    manifest: str | None = None  # digest of the OCI manifest it came in


class ImageStore:
    """The images below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def missing(self, name: str) -> str:
        """Return the message that an image is not in this store, and how to import it."""
        command = f"livevirt image import PATH --name {name}"
        if self.root != default_data_dir() / FOLDER:  # where the command would put it
            command += f" --image-store {shlex.quote(str(self.root))}"
        return f"image {name} is not in the image store {self.root}; import it with `{command}`"

    def import_(self, path: Path, name: str) -> Image:
        """Copy a disk into the store under `name`, replacing what had the name before.

        `path` is an OCI image layout, a tar of one, a `docker save` archive, or a disk file (qcow2
        or raw).
        """
        reference = Reference.parse(name)
        if reference.digest is not None:
            raise ImageError("an image is imported under a name and tag, not under a digest")
        if not path.exists():
            raise ImageError(f"{path} does not exist")
        with self._scratch() as folder:
            disk = folder / "disk"
            with disk.open("wb") as file:
                manifest = _copy_disk(path, file)
                file.flush()
                os.fsync(file.fileno())
            format_, virtual_size = inspect(disk)
            digest = _digest(disk)
            with self._locked():
                image = Image(
                    name=reference.name,
                    digest=f"sha256:{digest}",
                    format=format_,
                    virtual_size=virtual_size,
                    path=self._path(digest),
                    imported_at=datetime.now(UTC).isoformat(timespec="seconds"),
                    manifest=manifest,
                )
                if not image.path.exists():
                    disks = image.path.parent
                    private.folder(disks)
                    _share(disks, _DISKS_MODE)
                    _share(disk, _DISK_MODE)
                    disk.rename(image.path)
                    durable.sync(disks)
                index = self._read()
                index[image.name] = image
                self._write(index)
                self._drop_unnamed(index)
        return image

    def find(self, reference: str) -> Image | None:
        """The image a manifest's reference means, if it is here.

        A digest decides alone, whatever the name: that of the manifest or of the disk file.
        """
        wanted = Reference.parse(reference)
        index = self._read()
        if wanted.digest is None:
            return index.get(wanted.name)
        digest = f"sha256:{wanted.digest}"
        return next(
            (image for image in index.values() if digest in (image.manifest, image.digest)), None
        )

    def list(self) -> Sequence[Image]:
        """Every image, by name."""
        return [image for _, image in sorted(self._read().items())]

    def remove(self, name: str) -> None:
        """Forget a name; its disk goes with the last name it has."""
        wanted = Reference.parse(name).name
        with self._locked():
            index = self._read()
            if wanted not in index:
                raise ImageError(
                    f"there is no image {wanted} in {self.root}; `livevirt image list` shows what"
                    " there is"
                )
            del index[wanted]
            self._write(index)
            self._drop_unnamed(index)

    def restrict(self) -> None:
        """Take away the permissions with which earlier releases stored images."""
        disks = self.root / "disks"
        private.restrict(self.root / name for name in ("index.json", "lock", "tmp"))
        if disks.exists():
            _share(disks, _DISKS_MODE)
            for disk in disks.iterdir():
                _share(disk, _DISK_MODE)

    def _drop_unnamed(self, index: dict[str, Image]) -> None:
        """Delete disks without a name, unless a guest runs from them: it may still migrate."""
        named = {image.path for image in index.values()}
        for path in (self.root / "disks").iterdir():
            if path not in named and not _has_locks(path):
                path.unlink()

    def _path(self, digest: str) -> Path:
        return self.root / "disks" / digest

    def _read(self) -> dict[str, Image]:
        file = self.root / "index.json"
        try:
            entries = json.loads(file.read_bytes())["images"]
            return {
                entry["name"]: Image(path=self._path(entry["digest"].split(":")[1]), **entry)
                for entry in entries
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ImageError(f"the image index {file} cannot be read: {error}") from error

    def _write(self, index: dict[str, Image]) -> None:
        entries = [asdict(image) for _, image in sorted(index.items())]
        for entry in entries:
            del entry["path"]  # follows from the digest, so a store can be moved
        index_ = json.dumps({"version": 1, "images": entries}, indent=1)
        durable.write(self.root / "index.json", index_.encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private.folders(self.root)
        with os.fdopen(os.open(self.root / "lock", _LOCK_FLAGS, private.FILE), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A folder for one import, locked while in use, so that leftovers can be recognised."""
        parent = self.root / "tmp"
        with self._locked():
            private.folder(parent, 0o700)
            for leftover in parent.iterdir():
                if not _in_use(leftover):
                    shutil.rmtree(leftover, ignore_errors=True)  # who had it may remove it too
            folder = Path(tempfile.mkdtemp(dir=parent))
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)
            os.close(handle)


def _share(path: Path, mode: int) -> None:
    """Let QEMU's group read an image; where we are not root, QEMU runs as who we are."""
    account = process.account(kvm=False)
    if account is not None:
        os.chown(path, -1, account.group, follow_symlinks=False)
    path.chmod(mode)


def inspect(disk: Path) -> tuple[str, int]:
    """The format and the virtual size of a disk that may be used; raises for any other.

    A qcow2 header can name other files, which QEMU would open with our rights: such a disk is
    refused, before qemu-img looks at it.
    """
    with disk.open("rb") as file:
        start = file.read(_HEADER)
    refuse_header(start)
    try:
        format_ = qemu_img.format_of(start)  # qemu-img would guess, from what a guest has written
    except ImportRefused as error:
        raise ImageError(str(error)) from error
    info = _qemu_img_info(disk, format_)
    if info.get("encrypted"):
        raise ImageError("the disk is encrypted")
    if info.get("format-specific", {}).get("data", {}).get("corrupt"):
        raise ImageError("the disk is marked as corrupt")
    return format_, int(info["virtual-size"])


def refuse_header(start: bytes) -> None:
    """Raise if the first bytes of a disk file say that it is not a disk that stands alone."""
    if not start:
        raise ImageError("the disk is empty")
    for magic, name in _PACKED.items():
        if start.startswith(magic):
            raise ImageError(f"the disk is packed with {name}: unpack it first")
    if start.startswith(b"# Disk DescriptorFile"):
        raise ImageError("unsupported image format: vmdk")
    if not start.startswith(b"QFI\xfb"):
        return
    if len(start) < _HEADER:
        raise ImageError("the disk ends within its header")
    version, backing = struct.unpack_from(">IQ", start, 4)
    if backing:
        raise ImageError("expected no backing file, but the disk has one")
    if version >= 3 and struct.unpack_from(">Q", start, 72)[0] & _EXTERNAL_DATA:
        raise ImageError("expected no external data file, but the disk has one")


def _qemu_img_info(disk: Path, format_: str) -> dict[str, Any]:
    # An absolute path cannot be taken for an option or a protocol.
    command = ["qemu-img", "info", "--output=json", "-U", "-f", format_]
    command += ["--", str(disk.absolute())]
    try:
        result = subprocess.run(command, capture_output=True, timeout=_INSPECT_TIMEOUT, check=False)
    except FileNotFoundError as error:
        raise ImageError(programs.advice("qemu-img")) from error
    except subprocess.TimeoutExpired as error:
        raise ImageError("qemu-img did not answer about the disk") from error
    if result.returncode:
        reason = (
            result.stderr.decode(errors="replace").strip().replace(str(disk.absolute()), "disk")
        )
        raise ImageError(f"qemu-img cannot read the disk: {reason}")
    info: dict[str, Any] = json.loads(result.stdout)
    return info


def _copy_disk(path: Path, target: IO[bytes]) -> str | None:
    """Write the disk `path` is or holds; return the digest of its manifest, if it has one."""
    with open_image(path) as files:
        if files is not None:
            return extract_disk(files, target)
    with path.open("rb") as source:
        shutil.copyfileobj(source, target, _CHUNK)
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _in_use(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False  # an import has just ended
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _has_locks(path: Path) -> bool:
    """Whether a process has the file locked, as QEMU has every file it uses."""
    with path.open("rb") as file:
        # struct flock, asking for the whole file; F_UNLCK in the answer means that it is free.
        query = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(file, fcntl.F_GETLK, query)
    return bool(struct.unpack_from("@h", answer)[0] != fcntl.F_UNLCK)
