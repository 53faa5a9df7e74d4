"""The client over HTTP: any Kubernetes API server, reached through an `Access`."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from livevirt import __version__
from livevirt.errors import BadRequest
from livevirt.kube.client import connection, wire
from livevirt.kube.client.access import Access, tls_context
from livevirt.kube.client.credentials import Credentials, Issued
from livevirt.kube.client.errors import ConfigError, Unreachable
from livevirt.kube.client.interface import Patch
from livevirt.kube.objects import names
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Page, User, WatchEvent

WAITS = 10  # before we give up on a server that asks us to send a request again later
WATCH_SECONDS = (
    300,
    600,
)  # after which the server ends a watch; spread, so that not all end at once
Headers = list[tuple[str, str]]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class RemoteClient:
    """Given `warn`, passes on the server's warnings. Close it when done.

    Waits and retries only where the server gives a time (`Retry-After`) and, once,
    where new credentials may help; a failed connection raises `Unreachable`.
    """

    def __init__(
        self,
        access: Access,
        *,
        manager: str = "livevirt",
        warn: Callable[[str], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.access = access
        self.user = User(access.user)
        self._manager = manager
        self._warn = warn
        self._sleep = sleep
        self._credentials = Credentials(access)
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[tuple[bytes | None, bytes | None], ssl.SSLContext] | None = None
        self._server = _url_of(access.server.rstrip("/"))
        self._proxy = _proxy_for(access.proxy, self._server)
        _check_host(access.tls.server_name, access.tls.server_name)

    def for_component(self, name: str) -> RemoteClient:
        """Return this client under the name of a component, with connections of its own."""
        return RemoteClient(self.access, manager=name, warn=self._warn, sleep=self._sleep)

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return the object; raises NotFound."""
        return await self._object("GET", _path(kind, namespace, name))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_: str = "",
    ) -> Page:
        """Return the matching objects of a namespace, or of all with `namespace=""`."""
        options = wire.selection(labels=labels, fields=fields, limit=limit, continue_=continue_)
        return wire.page_of(kind, await self._object("GET", _path(kind, namespace), options))

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
    ) -> AsyncIterator[WatchEvent]:
        """Stream changes after `resource_version`; raises Expired when that is too old."""
        options = wire.watching(resource_version, bookmarks)
        options |= wire.selection(labels=labels, fields=fields)
        options["timeoutSeconds"] = str(random.randint(*WATCH_SECONDS))
        response = await self._send("GET", _path(kind, namespace), options)
        async with response:
            connection.keep_alive(response)
            async for line in connection.lines(response):
                event = connection.event_of(line)
                if event.type == "ERROR":
                    raise wire.refusal(event.object, event.object.get("code") or 500)
                yield event

    async def create(
        self,
        kind: Kind,
        obj: Any,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Create an object, or POST to a subresource of `name`."""
        namespace = namespace or wire.namespace_of(obj)
        version = kind.version if subresource else wire.version_for(kind, obj)
        path = _path(kind, namespace, name, subresource, version)
        return await self._object("POST", path, {"dryRun": "All"} if dry_run else {}, obj)

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "") -> Object:
        """Replace the object; its resourceVersion, when set, must be current."""
        version = wire.version_for(kind, obj)
        name = obj["metadata"]["name"]
        path = _path(kind, wire.namespace_of(obj), name, subresource, version)
        return await self._object("PUT", path, {}, obj)

    async def patch(
        self,
        kind: Kind,
        name: str,
        namespace: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Change an object by a merge patch, or by a `Patch` of another type."""
        typed = Patch.of(patch)
        path = _path(kind, namespace, name, subresource, wire.version_for(kind, typed.body))
        options = wire.patching(typed.type_, self._manager, dry_run)
        content_type = wire.PATCH_TYPES[typed.type_]
        return await self._object("PATCH", path, options, typed.body, content_type)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete the object; raises Conflict if it is another one than `uid` names."""
        options = wire.delete_options(uid=uid, grace_seconds=grace_seconds, propagation=propagation)
        await self._object("DELETE", _path(kind, namespace, name), {}, options)

    async def delete_unchanged(
        self, kind: Kind, name: str, namespace: str = "", *, uid: str, resource_version: str
    ) -> None:
        """Delete the object; raises Conflict if it has changed since that version."""
        options = wire.delete_options(uid=uid, resource_version=resource_version)
        await self._object("DELETE", _path(kind, namespace, name), {}, options)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        options: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = wire.JSON,
    ) -> bytes:
        """Send any request to a path of the server, such as `/version`; return the answer."""
        response = await self._send(method, path, options or {}, body, content_type)
        return await _read(response)

    async def websocket(
        self, path: str, *, options: Mapping[str, str] | None = None, protocols: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to a path of the server, such as a console; the caller closes it."""
        issued = await self._credentials.current()
        try:
            opened: aiohttp.ClientWebSocketResponse = await self._connected().ws_connect(
                self._url(path).update_query(options or {}),
                protocols=protocols,
                headers=self._headers(issued),
                proxy=self._proxy,
                max_msg_size=0,
                **self._verification(issued),
            )
            return opened
        except aiohttp.WSServerHandshakeError as error:
            message = f"{self.access.server} refused a WebSocket: {error.status} {error.message}"
            raise wire.refusal({"message": message}, error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(self.access, error) from error

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()

    async def _object(
        self,
        method: str,
        path: str,
        options: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = wire.JSON,
    ) -> Object:
        response = await self._send(method, path, options or {}, body, content_type)
        return wire.decoded(await _read(response))

    async def _send(
        self,
        method: str,
        path: str,
        options: Mapping[str, str],
        body: Any = None,
        content_type: str = wire.JSON,
    ) -> aiohttp.ClientResponse:
        """Return an answer that is no refusal, still to be read."""
        data = None if body is None else wire.encode(body)
        content = {"Content-Type": content_type} if data is not None else {}
        may_renew, waits = True, 0
        while True:
            issued = await self._credentials.current()
            try:
                response = await self._connected().request(
                    method,
                    self._url(path),
                    params=options,
                    data=data,
                    headers=[*self._headers(issued), *content.items()],
                    proxy=self._proxy,
                    allow_redirects=False,
                    **self._verification(issued),
                )
            except (aiohttp.ClientError, OSError) as error:
                raise _unreachable(self.access, error) from error
            self._pass_on(response)
            if response.status < 300:
                return response
            status = _status_of(await _read(response))
            if response.status == 401 and may_renew and self._credentials.refused(issued):
                may_renew = False
                continue
            wait = _wait_of(response)
            if wait is None or waits == WAITS:
                raise wire.refusal(status, response.status)
            waits += 1
            await self._sleep(wait)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Watches hold a connection each, for as long as they last.
                connector=aiohttp.TCPConnector(limit=0),
                # Callers set deadlines; only a host that does not answer at all is given up here.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _url(self, path: str) -> URL:
        # Joined as text: the server's URL may have a path of its own, as behind a gateway.
        return URL(f"{self._server}{path}")

    def _headers(self, issued: Issued) -> Headers:
        headers = [
            ("Accept", wire.JSON),
            ("User-Agent", f"{self._manager}/{__version__}"),
            *self.access.impersonate,
        ]
        if issued.authorization:
            headers.append(("Authorization", issued.authorization))
        if not self.access.compress:
            headers.append(("Accept-Encoding", "identity"))
        for name, value in headers:
            if _CONTROL.search(name + value):
                which = _CONTROL.split(name)[0]  # the value may be a secret
                why = "must be one line of text; see to the user of the kubeconfig"
                raise ConfigError(f"the header {which} {why}")
        return headers

    def _verification(self, issued: Issued) -> dict[str, Any]:
        if self._server.scheme != "https":
            return {}
        pair = (issued.certificate, issued.key)
        if self._tls is None or self._tls[0] != pair:
            tls = self.access.tls
            if issued.certificate:
                tls = replace(tls, certificate=issued.certificate, key=issued.key)
            self._tls = (pair, tls_context(tls))
        name = self.access.tls.server_name
        return {"ssl": self._tls[1]} | ({"server_hostname": name} if name else {})

    def _pass_on(self, response: aiohttp.ClientResponse) -> None:
        if self._warn is not None:
            for header in response.headers.getall("Warning", ()):
                for text in _WARNING.findall(header):
                    self._warn(re.sub(r"\\(.)", r"\1", text))


def _unreachable(access: Access, error: Exception) -> Unreachable:
    return Unreachable(f"{access.server} cannot be reached: {connection.cause(error)}")


def _path(
    kind: Kind, namespace: str = "", name: str = "", subresource: str = "", version: str = ""
) -> str:
    for segment in (namespace, name):
        wrong = names.validate_path_segment(segment) if segment else []
        if wrong:
            raise BadRequest(f'invalid resource name "{segment}": {wrong}')
    return kind.path(namespace, name, subresource, version)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    async with response:
        try:
            return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the answer broke off: {error or repr(error)}") from error


def _status_of(body: bytes) -> Object:
    """Return the Status in the body of a refusal, or as much of one as there is."""
    with suppress(msgspec.DecodeError):
        status = wire.decode(body)
        if status.get("kind") == "Status":
            return status
    text = " ".join(body[:200].decode(errors="replace").split())
    return {"message": text} if text else {}


def _wait_of(response: aiohttp.ClientResponse) -> float | None:
    """Return in how many seconds the server wants the same request again, if it does."""
    after = response.headers.get("Retry-After", "")
    if (response.status == 429 or response.status >= 500) and after.isdecimal():
        return float(after)
    return None


def _url_of(text: str) -> URL:
    try:
        url = URL(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is no URL: {error}") from error
    _check_host(url.host or "", text)
    return url


def _check_host(host: str, of: str) -> None:
    """Refuse a name that no resolver takes; `of` is what it is part of, for the message."""
    try:
        host.encode("idna")
    except UnicodeError as error:
        why = "each part of a host's name must have 1 to 63 characters"
        raise ConfigError(f"{of!r} names no host: {why}") from error


def _proxy_for(configured: str, server: URL) -> str | None:
    """Return the proxy for the server: the configured one, else the environment's."""
    host = server.host
    if not host or server.scheme not in ("http", "https"):
        raise ConfigError(f"{str(server)!r} is no http or https URL of a server")
    proxy = configured
    if not proxy and not _loopback(host) and not proxy_bypass(host):
        proxy = getproxies().get(server.scheme, "")
    scheme = _url_of(proxy).scheme if proxy else "http"
    if scheme not in ("http", "https"):
        raise ConfigError(f"a proxy of this kind is not supported: {scheme}")
    return proxy or None


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
