"""Who is asking: by client certificate or by a service account token, which is issued here too."""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from livevirt.errors import Forbidden, Unauthorized
from livevirt.kube.objects import core
from livevirt.kube.objects.request import User
from livevirt.kube.objects.review import Reader

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


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_IMPERSONATE = "impersonate-"  # what the headers of --as, --as-group and the like begin with
_KEPT_TOKENS = 1024  # signatures checked once


class Authenticator:
    """Identifies users by the certificate of their connection or the token of their request."""

    def __init__(self, tokens: Tokens, read: Reader, now: Callable[[], datetime]) -> None:
        self._claims = functools.lru_cache(maxsize=_KEPT_TOKENS)(tokens.read)
        self._read = read
        self._now = now

    def user(self, authorization: str, certificate: dict[str, Any] | None) -> User:
        """Return the user; a wrong token is refused, no credentials at all are anonymous."""
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer":
                raise Unauthorized("Unauthorized")
            return self._bearer(token.strip())
        if certificate:
            return _of_subject(certificate.get("subject", ()))
        return ANONYMOUS

    def _bearer(self, token: str) -> User:
        claims = self._claims(token)
        if claims is None or claims["exp"] <= self._now().timestamp():
            raise Unauthorized("Unauthorized")
        bound = claims["kubernetes.io"]
        account = self._read.get(
            core.SERVICE_ACCOUNT, bound["serviceaccount"]["name"], bound["namespace"]
        )
        if account is None or account["metadata"]["uid"] != bound["serviceaccount"]["uid"]:
            raise Unauthorized("Unauthorized")
        return user_of(claims)


def check_own_name(user: User, headers: Mapping[str, str]) -> None:
    """Refuse impersonation: all users have the same rights, so the answer would be wrong."""
    if any(name.lower().startswith(_IMPERSONATE) for name in headers):
        raise Forbidden(
            f'User "{user.name}" cannot impersonate: livevirt does not enforce RBAC yet, and would'
            " answer as if nothing had been said. Leave out --as, --as-group and --as-uid (in a"
            " kubeconfig: as, as-groups, as-uid, as-user-extra), or use that user's credentials"
        )


@functools.lru_cache(maxsize=256)
def _of_subject(subject: tuple[tuple[tuple[str, str], ...], ...]) -> User:
    parts = [pair for rdn in subject for pair in rdn]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    return User(name, (*groups, "system:authenticated"))
