"""ES256 signatures with one key, in the form tokens carry them."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

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
        """Tell whether a signature of a text is ours."""
        if len(signature) != 2 * _HALF:
            return False
        r, s = (int.from_bytes(half, "big") for half in (signature[:_HALF], signature[_HALF:]))
        try:
            key = self._key.public_key()
            key.verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True
