"""Service account tokens: signed, bound to the account's uid, valid for a time."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from livevirt.api.request import User

ISSUER = "https://kubernetes.default.svc"
_HEADER = {"alg": "ES256", "typ": "JWT"}
_SIZE = 32  # bytes of each half of an ES256 signature


class Tokens:
    """Makes and reads tokens with one key."""

    def __init__(self, key_path: Path) -> None:
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def issue(
        self, account: dict[str, Any], audiences: list[str], now: datetime, seconds: int
    ) -> str:
        """Return a token for a ServiceAccount."""
        meta = account["metadata"]
        claims = {
            "aud": audiences,
            "exp": int(now.timestamp()) + seconds,
            "iat": int(now.timestamp()),
            "iss": ISSUER,
            "kubernetes.io": {
                "namespace": meta["namespace"],
                "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
            },
            "nbf": int(now.timestamp()),
            "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
        }
        signed = f"{_pack(msgspec.json.encode(_HEADER))}.{_pack(msgspec.json.encode(claims))}"
        signature = self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
        r, s = decode_dss_signature(signature)
        return f"{signed}.{_pack(r.to_bytes(_SIZE, 'big') + s.to_bytes(_SIZE, 'big'))}"

    def read(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token with our signature, expired or not."""
        signed, _, signature = token.rpartition(".")
        header, _, claims = signed.partition(".")
        try:
            raw = _unpack(signature)
            if len(raw) != 2 * _SIZE or msgspec.json.decode(_unpack(header)) != _HEADER:
                return None
            r, s = (int.from_bytes(half, "big") for half in (raw[:_SIZE], raw[_SIZE:]))
            self._key.public_key().verify(
                encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256())
            )
            found = msgspec.json.decode(_unpack(claims))
        except (InvalidSignature, ValueError, binascii.Error, msgspec.MsgspecError):
            return None
        return found if isinstance(found, dict) else None


def user_of(claims: dict[str, Any]) -> User:
    """Return who a token's claims speak for."""
    bound = claims["kubernetes.io"]
    namespace = bound["namespace"]
    return User(
        claims["sub"],
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
        bound["serviceaccount"]["uid"],
    )


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
