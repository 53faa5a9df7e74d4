"""Disks that end with a guest: overlays of images, empty disks, and the cloud-init disk."""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pycdlib

from livevirt.files import private
from livevirt.kube.objects.request import Object

LABEL = "cidata"


class BadCloudInit(ValueError):
    """The volume does not say what it must; the message names the field."""


def secret_names(source: Object) -> list[str]:
    """List the secrets a `cloudInitNoCloud` source reads."""
    refs = (source.get("secretRef"), source.get("networkDataSecretRef"))
    return [ref["name"] for ref in refs if ref and ref.get("name")]


def files(
    source: Object, metadata: Mapping[str, Any], secrets: Mapping[str, Object]
) -> dict[str, bytes]:
    """Return the files of the image from a `cloudInitNoCloud` source and the secrets it names."""
    found = {"meta-data": json.dumps(dict(metadata)).encode()}
    user = _data(source, secrets, "userData", "secretRef", ("userdata", "userData"))
    network = _data(
        source, secrets, "networkData", "networkDataSecretRef", ("networkdata", "networkData")
    )
    found["user-data"] = user or b""
    if network is not None:
        found["network-config"] = network
    return found


def _data(
    source: Object, secrets: Mapping[str, Object], field: str, ref: str, keys: tuple[str, ...]
) -> bytes | None:
    if source.get(field):
        return str(source[field]).encode()
    if source.get(f"{field}Base64"):
        return _decoded(source[f"{field}Base64"], f"{field}Base64")
    name = (source.get(ref) or {}).get("name")
    if not name:
        return None
    data = (secrets.get(name) or {}).get("data") or {}
    for key in keys:
        if key in data:
            return _decoded(data[key], f"secret {name}, key {key}")
    raise BadCloudInit(f"secret {name} has none of the keys {', '.join(keys)}")


def encoded(data: bytes) -> str:
    """Return a value as a Secret has it."""
    return base64.b64encode(data).decode()


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadCloudInit(f"{what} is not base64") from error


def iso(label: str, content: Mapping[str, bytes]) -> bytes:
    """Return an ISO image with these files in its root."""
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    try:
        for number, (name, data) in enumerate(content.items()):
            image.add_fp(
                io.BytesIO(data),
                len(data),
                f"/FILE{number}.;1",
                rr_name=name,
                joliet_path=f"/{name}",
            )
        out = io.BytesIO()
        image.write_fp(out)
        return out.getvalue()
    finally:
        image.close()


class Scratch:
    """The directories of all guests of one machine, by the uid of their instance."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, uid: str) -> Path:
        """Return the directory of one guest, which need not be there."""
        if not uid or "/" in uid or uid.startswith("."):
            raise ValueError(f"{uid!r} is not a uid")
        return self._root / uid

    def create(self, uid: str) -> Path:
        """Make the directory of one guest, if it is not there."""
        found = self.of(uid)
        for folder in (self._root, found):
            private.folder(folder)
        return found

    def remove(self, uid: str) -> None:
        """Remove what a guest wrote to disks that do not outlive it."""
        shutil.rmtree(self.of(uid), ignore_errors=True)

    def sweep(self, used: Collection[str]) -> None:
        """Remove the disks of guests without a start intent: starts that failed."""
        with contextlib.suppress(FileNotFoundError):
            for folder in self._root.iterdir():
                if folder.name not in used:
                    shutil.rmtree(folder, ignore_errors=True)
