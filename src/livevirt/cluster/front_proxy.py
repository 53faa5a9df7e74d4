"""Users of the aggregated API server, as the front proxy (kube-apiserver) names them.

The proxy authenticates users and names them in headers. The headers count only on a connection with
the proxy's own client certificate. Its authority, its names and the headers are published in the
ConfigMap `extension-apiserver-authentication`. Everybody else needs a bearer token, which a
TokenReview checks. What a user may do is decided by a SubjectAccessReview.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from livevirt.errors import Forbidden, Unauthorized
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import ActionPath, Object, User
from livevirt.kube.server.actions import PUBLIC
from livevirt.kube.server.authenticate import ANONYMOUS
from livevirt.kube.server.route import Target

NAMESPACE = "kube-system"
CONFIG_MAP = "extension-apiserver-authentication"

Headers = CIMultiDict[str] | CIMultiDictProxy[str]
_AUTHENTICATED = "system:authenticated"
_ALLOWED_SECONDS = 10.0  # for which a permission is remembered; kube-apiserver checks it every time
_REMEMBERED = 4096  # permissions


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Which client certificates belong to the proxy, and in which headers it names users."""

    authority: str  # PEM; empty if the cluster has no front proxy
    names: tuple[str, ...] = ()  # common names of its certificates; any if empty
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def read(cls, config: Object) -> FrontProxy:
        """Return the proxy that the ConfigMap describes."""
        data = config.get("data") or {}

        def listed(name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
            text = data.get(f"requestheader-{name}")
            return tuple(msgspec.json.decode(text, type=list[str])) if text else default

        return cls(
            data.get("requestheader-client-ca-file", ""),
            listed("allowed-names"),
            listed("username-headers"),
            listed("uid-headers", ("X-Remote-Uid",)),
            listed("group-headers"),
            listed("extra-headers-prefix"),
        )

    def user(self, certificate: Mapping[str, Any] | None, headers: Headers) -> User | None:
        """Return the user of a request, None if it was not sent by the proxy.

        `certificate` is the verified certificate of the connection.
        """
        if not self.authority or not certificate or not self._is_own(certificate):
            return None
        name = _first(headers, self.user_headers)
        if not name:
            return None
        groups = [group for header in self.group_headers for group in headers.getall(header, ())]
        if not {_AUTHENTICATED, *ANONYMOUS.groups}.intersection(groups):
            groups.append(_AUTHENTICATED)  # the proxy's own users come without it
        return User(name, tuple(groups), _first(headers, self.uid_headers), self._extra(headers))

    def _is_own(self, certificate: Mapping[str, Any]) -> bool:
        subject = [pair for rdn in certificate.get("subject", ()) for pair in rdn]
        return not self.names or any(
            key == "commonName" and value in self.names for key, value in subject
        )

    def _extra(self, headers: Headers) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for prefix in self.extra_prefixes:
            for header, value in headers.items():
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    found[key] = (*found.get(key, ()), value)
        return found


def _first(headers: Headers, names: Iterable[str]) -> str:
    return next((value for name in names if (value := headers.get(name))), "")


class ProxyGuard:
    """The `Guard` of the aggregated API server; `proxy` is replaced when its settings change."""

    def __init__(
        self, client: Client, proxy: FrontProxy, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self.proxy = proxy
        self._clock = clock
        self._allowed: dict[bytes, float] = {}  # until when, by the review

    async def authenticate(self, http: web.BaseRequest, path: str) -> User:
        """Return the user; everybody may read health checks and the version."""
        transport = http.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if user := self.proxy.user(certificate, http.headers):
            return user
        scheme, _, token = http.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return await self._bearer(token.strip())
        if path in PUBLIC:
            return ANONYMOUS
        raise Unauthorized("Unauthorized")

    async def _bearer(self, token: str) -> User:
        review = {
            "apiVersion": core.TOKEN_REVIEW.api_version,
            "kind": core.TOKEN_REVIEW.kind,
            "spec": {"token": token},
        }
        status = (await self._client.create(core.TOKEN_REVIEW, review)).get("status") or {}
        if not status.get("authenticated"):
            raise Unauthorized("Unauthorized")
        user = status.get("user") or {}
        extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
        groups = tuple(user.get("groups") or ())
        return User(user.get("username", ""), groups, user.get("uid", ""), extra)

    async def authorize(
        self, user: User, http: web.BaseRequest, target: Target | ActionPath | None
    ) -> None:
        """Raise Forbidden unless a SubjectAccessReview allows the request."""
        path = http.raw_path.partition("?")[0]
        if path in PUBLIC:
            return
        review = access_review(user, http.method, path, target)
        key = msgspec.json.encode(review["spec"], order="sorted")
        now = self._clock()
        if self._allowed.get(key, now) > now:
            return
        status = (await self._client.create(core.ACCESS_REVIEW, review)).get("status") or {}
        if not status.get("allowed"):
            raise Forbidden(refusal(review["spec"], status.get("reason") or ""))
        if len(self._allowed) >= _REMEMBERED:
            self._allowed = {k: until for k, until in self._allowed.items() if until > now}
        if len(self._allowed) < _REMEMBERED:
            self._allowed[key] = now + _ALLOWED_SECONDS


_VERBS = {
    "GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
    "DELETE": "delete",
}  # fmt: skip


def access_review(
    user: User, method: str, path: str, target: Target | ActionPath | None
) -> dict[str, Any]:
    """Return the review of a request, with the attributes kube-apiserver derives from its path."""
    spec: Object = {"user": user.name}
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if isinstance(target, ActionPath):
        spec["resourceAttributes"] = _attributes(target, method, path)
    else:
        verb = _VERBS.get(method, method.lower())
        spec["nonResourceAttributes"] = {"path": path, "verb": verb}
    return {
        "apiVersion": core.ACCESS_REVIEW.api_version,
        "kind": core.ACCESS_REVIEW.kind,
        "spec": spec,
    }


def _attributes(action: ActionPath, method: str, path: str) -> Object:
    group, version = path.strip("/").split("/")[1:3]
    verb = _VERBS.get(method, method.lower())
    name = action.action.partition("/")[0]
    attributes: Object = {"group": group, "version": version}
    if action.resource:
        attributes |= {"resource": action.resource, "subresource": name, "name": action.name}
    else:  # without a name, a GET is a list
        attributes |= {"resource": name}
        verb = "list" if verb == "get" else verb
    if action.namespace:
        attributes["namespace"] = action.namespace
    return {**attributes, "verb": verb}


def refusal(spec: Object, reason: str) -> str:
    """Return the message of a refusal, in kube-apiserver's form."""
    user, asked = spec["user"], spec.get("resourceAttributes")
    if asked is None:
        outside = spec["nonResourceAttributes"]
        text = f'forbidden: User "{user}" cannot {outside["verb"]} path "{outside["path"]}"'
    else:
        resource = asked["resource"]
        if asked.get("subresource"):
            resource += f"/{asked['subresource']}"
        text = (
            f'{resource}.{asked["group"]} "{asked.get("name", "")}" is forbidden: User "{user}"'
            f' cannot {asked["verb"]} resource "{resource}" in API group "{asked["group"]}"'
        )
        if asked.get("namespace"):
            text += f' in the namespace "{asked["namespace"]}"'
    return f"{text}: {reason}" if reason else text
