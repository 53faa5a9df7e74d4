"""Who is asking: by client certificate or bearer token."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from livevirt.errors import Forbidden, Unauthorized
from livevirt.kube.objects import core
from livevirt.kube.objects.request import User
from livevirt.kube.objects.review import Reader
from livevirt.kube.server.tokens import Tokens, user_of

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_IMPERSONATE = "impersonate-"  # what the headers of --as, --as-group and the like begin with
_KEPT_TOKENS = 1024  # signatures checked once


class Authenticator:
    """Tells users from the certificate of their connection or the token of their request."""

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
    """Refuse to act as somebody else: rights are not told apart, so the answer would be a lie."""
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
