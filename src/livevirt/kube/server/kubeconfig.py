"""The administrator's kubeconfig."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import yaml

from livevirt.kube.server.pki import Pki

_KEY = b"-----BEGIN PRIVATE KEY-----"


def write(path: Path, url: str, keys: Pki) -> None:
    """Write a kubeconfig with the administrator's certificate, readable by its owner only."""
    admin = keys.admin.read_bytes()
    cut = admin.index(_KEY)
    user = {
        "client-certificate-data": _packed(admin[:cut]),
        "client-key-data": _packed(admin[cut:]),
    }
    cluster = {"server": url, "certificate-authority-data": _packed(keys.ca.read_bytes())}
    context = {"cluster": "livevirt", "user": "admin", "namespace": "default"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "livevirt", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "livevirt", "context": context}],
        "current-context": "livevirt",
    }
    temporary = path.with_suffix(".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        yaml.safe_dump(content, file, sort_keys=False)
    os.replace(temporary, path)


def _packed(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
