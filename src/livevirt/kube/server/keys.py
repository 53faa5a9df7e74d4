"""Keys in use: the server's own certificate authority, and the signatures of tokens (ES256).

Only this module needs `cryptography`, which is slow to import: import it where it is used.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from livevirt import x509
from livevirt.kube.server.pki import Pki
from livevirt.x509 import Pair, Subject

# ---------------------------------------------------------------- certificates

_LIFETIME = dt.timedelta(days=3650)
_CA_NAME = "livevirt-ca"


def create_missing(pki: Pki, addresses: tuple[str, ...], now: dt.datetime) -> None:
    """Create what is missing, and a new server certificate for addresses it does not cover."""
    folder = pki.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key_path = folder / "ca.key"
    if not (pki.ca.exists() and ca_key_path.exists()):
        made = x509.new_authority(_CA_NAME, now, _LIFETIME)
        _write(ca_key_path, made.key)
        _write(pki.ca, made.certificate)
    ca = Pair(pki.ca.read_bytes(), ca_key_path.read_bytes())

    def issue(path: Path, subject: Subject) -> None:
        issued = x509.issue(ca, subject, now, _LIFETIME)
        _write(path, issued.certificate + issued.key)

    if not pki.complete(addresses):
        names = ("localhost", "kubernetes.default.svc", *addresses)
        issue(pki.server, Subject("livevirt", x509.SERVER, addresses=names))
    if not pki.admin.exists():
        issue(pki.admin, Subject("kubernetes-admin", x509.CLIENT, groups=("system:masters",)))
    if not pki.token_key.exists():
        _write(pki.token_key, x509.new_key())
    _write(pki.names, "\n".join(addresses).encode())


def _write(path: Path, content: bytes) -> None:
    """Write a file only its owner can read, whole or not at all."""
    temporary = path.with_suffix(f"{path.suffix}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# ---------------------------------------------------------------- signatures

_HALF = 32  # bytes of each of the two numbers


class Signer:
    """Signs and checks with a private key."""

    def __init__(self, key_path: Path) -> None:
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        r, s = decode_dss_signature(self._key.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")

    def signed(self, text: bytes, signature: bytes) -> bool:
        """Return whether a signature of a text is ours."""
        if len(signature) != 2 * _HALF:
            return False
        r, s = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
        try:
            key = self._key.public_key()
            key.verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True
