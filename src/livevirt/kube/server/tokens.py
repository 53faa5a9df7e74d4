"""Service account tokens: signed, bound to the account's uid, valid for a time."""

from __future__ import annotations

import base64
import binascii
import functools
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from livevirt.kube.objects.request import User

if TYPE_CHECKING:
    from livevirt.kube.server.keys import Signer

ISSUER = "https://kubernetes.default.svc"
_HEADER = {"alg": "ES256", "typ": "JWT"}


class Tokens:
    """Makes and reads tokens with one key."""

    def __init__(self, key_path: Path) -> None:
        self._key_path = key_path

    @functools.cached_property
    def _signer(self) -> Signer:
        from livevirt.kube.server.keys import Signer  # slow to import, and many never need it

        return Signer(self._key_path)

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
        return f"{signed}.{_pack(self._signer.sign(signed.encode()))}"

    def read(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token with our signature, expired or not."""
        signed, _, signature = token.rpartition(".")
        header, _, claims = signed.partition(".")
        try:
            if msgspec.json.decode(_unpack(header)) != _HEADER:
                return None
            if not self._signer.signed(signed.encode(), _unpack(signature)):
                return None
            found = msgspec.json.decode(_unpack(claims))
        except (ValueError, binascii.Error, msgspec.MsgspecError):
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
