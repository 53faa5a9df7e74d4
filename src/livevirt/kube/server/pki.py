"""The certificates and keys of the server, and the administrator's kubeconfig."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class Pki:
    """Paths of what TLS and tokens need; every key is readable by its owner only."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate, which clients trust."""
        return self.folder / "ca.crt"

    @property
    def server(self) -> Path:
        """The server's certificate and key."""
        return self.folder / "server.pem"

    @property
    def admin(self) -> Path:
        """The administrator's client certificate and key."""
        return self.folder / "admin.pem"

    @property
    def token_key(self) -> Path:
        """The key that signs service account tokens."""
        return self.folder / "tokens.key"

    @property
    def names(self) -> Path:
        """The addresses the server's certificate covers, one a line."""
        return self.folder / "server.names"

    def complete(self, addresses: tuple[str, ...]) -> bool:
        """Return whether nothing has to be made for a server at these addresses."""
        files = (self.ca, self.server, self.admin, self.token_key, self.names)
        return all(path.exists() for path in files) and (
            set(addresses) <= set(self.names.read_text().split())
        )


def ensure(folder: Path, addresses: tuple[str, ...], now: datetime) -> Pki:
    """Return the certificates in `folder`, making what is missing."""
    pki = Pki(folder)
    if not pki.complete(addresses):
        # Only here: a start with certificates in place need not wait for x509 to be imported.
        from livevirt.kube.server.keys import create_missing

        create_missing(pki, addresses, now)
    return pki


_KEY = b"-----BEGIN PRIVATE KEY-----"


def write_kubeconfig(path: Path, url: str, keys: Pki) -> None:
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
