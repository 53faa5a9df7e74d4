"""Write container images as a docker archive, which `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An image of one layer: files by their path in the image, and symbolic links."""

    name: str
    files: Mapping[str, Path]
    links: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()


def write_archive(path: Path, images: Sequence[Image]) -> None:
    """Write the images into one archive."""
    unfinished = path.with_suffix(".part")
    manifest = []
    with tarfile.open(unfinished, "w") as archive:
        for image in images:
            layer = _layer(image)
            config = _config(image, layer)
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            layer_name = f"{hashlib.sha256(layer).hexdigest()}/layer.tar"
            _add(archive, config_name, config)
            _add(archive, layer_name, layer)
            manifest.append(
                {"Config": config_name, "RepoTags": [image.name], "Layers": [layer_name]}
            )
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    unfinished.rename(path)


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        folders = {Path(name).parent for name in (*image.files, *image.links)} - {Path(".")}
        for folder in ["tmp", *sorted(str(folder) for folder in folders)]:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            layer.addfile(entry)
        for name, source in image.files.items():
            content = source.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            layer.addfile(entry, io.BytesIO(content))
        for name, target in image.links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)
    return buffer.getvalue()


def _config(image: Image, layer: bytes) -> bytes:
    machine = os.uname().machine
    return json.dumps(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Cmd": list(image.command), "Env": ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
    ).encode()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
