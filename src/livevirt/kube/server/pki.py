"""Where certificates and keys lie, and whether they are all there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


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
        """Tell whether nothing has to be made for a server at these addresses."""
        files = (self.ca, self.server, self.admin, self.token_key, self.names)
        return all(path.exists() for path in files) and (
            set(addresses) <= set(self.names.read_text().split())
        )


def ensure(folder: Path, addresses: tuple[str, ...], now: datetime) -> Pki:
    """Return the certificates in `folder`, making what is missing."""
    pki = Pki(folder)
    if not pki.complete(addresses):
        # Only here: a start with certificates in place need not wait for x509 to be imported.
        from livevirt.kube.server import certificates

        certificates.make(pki, addresses, now)
    return pki
