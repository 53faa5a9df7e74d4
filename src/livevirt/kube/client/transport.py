"""HTTP to one API server: connections, credentials, limits, and what is sent a second time.

One transport serves the clients of all components in a process, so that they share connections
and the rate limit.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from livevirt import __version__
from livevirt.kube.client import connection, limits, wire
from livevirt.kube.client.access import Access, tls_context
from livevirt.kube.client.credentials import Credentials, Issued
from livevirt.kube.client.errors import ConfigError, Unreachable
from livevirt.kube.client.limits import UNLIMITED, Limits, RateLimiter, Sleep
from livevirt.kube.objects.request import Object

Headers = list[tuple[str, str]]
Warn = Callable[[str], None]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what it is counted as."""

    method: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = wire.JSON
    verb: str = ""  # as in Kubernetes' roles: get, list, watch, create …
    resource: str = ""  # with its group and subresource, such as `pods/resize`

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.method not in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Sender:
    """On whose behalf requests are sent."""

    component: str  # the field manager of its writes
    warn: Warn | None = None


class Observer(Protocol):
    """Counts what a transport does. Called in the middle of it: count, and return."""

    def answered(self, component: str, verb: str, resource: str, code: int) -> None:
        """Count an answer; code 0 is a connection that failed."""

    def throttled(self, component: str, seconds: float) -> None:
        """Count the time a request had to wait for the rate limit."""


class Transport:
    """Sends requests; waits and sends again where `limits` allows it, and raises refusals.

    `fence` is called right before each write and raises if this process may not write any more.
    """

    def __init__(
        self,
        access: Access,
        *,
        allowed: Limits = UNLIMITED,
        sleep: Sleep = asyncio.sleep,
        observer: Observer | None = None,
        fence: Callable[[], None] | None = None,
    ) -> None:
        self.access = access
        self._limits, self._limiter = allowed, RateLimiter(allowed, sleep)
        self._sleep, self._observer, self._fence = sleep, observer, fence
        self._credentials = Credentials(access)
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[tuple[bytes | None, bytes | None], ssl.SSLContext] | None = None
        self._server = _url_of(access.server.rstrip("/"))
        self._proxy = _proxy_for(access.proxy, self._server)
        _check_host(access.tls.server_name, access.tls.server_name)

    async def answer(self, call: Call, sender: Sender) -> bytes:
        """Return the body of an answer that is no refusal."""
        return await self._read(await self.send(call, sender))

    async def send(self, call: Call, sender: Sender) -> aiohttp.ClientResponse:
        """Return an answer that is no refusal, still to be read."""
        may_renew, waits = True, 0
        while True:
            await self._admit(call, sender)
            issued = await self._credentials.current()
            response = await self._exchange(call, sender, issued)
            _pass_on(response, sender.warn)
            if response.status < 300:
                return response
            status = _status_of(await self._read(response))
            if response.status == 401 and may_renew and self._credentials.refused(issued):
                may_renew = False
                continue
            asked = response.headers.get("Retry-After", "")
            code = response.status
            wait = limits.retry_after(self._limits, call.writes, code, asked, waits)
            if wait is None:
                raise wire.refusal(status, code)
            waits += 1
            await self._sleep(wait)

    async def websocket(
        self, path: str, options: Mapping[str, str], protocols: tuple[str, ...], sender: Sender
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket; the caller closes it."""
        issued = await self._credentials.current()
        try:
            opened: aiohttp.ClientWebSocketResponse = await self._connected().ws_connect(
                self._url(path).update_query(options),
                protocols=protocols,
                headers=self._headers(issued, sender.component),
                proxy=self._proxy,
                max_msg_size=0,
                **self._verification(issued),
            )
            return opened
        except aiohttp.WSServerHandshakeError as error:
            message = f"{self.access.server} refused a WebSocket: {error.status} {error.message}"
            raise wire.refusal({"message": message}, error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _admit(self, call: Call, sender: Sender) -> None:
        """Wait for the rate limit, and refuse a write that may not be made any more."""
        waited = await self._limiter.wait()
        if waited and self._observer is not None:
            self._observer.throttled(sender.component, waited)
        if call.writes and self._fence is not None:
            self._fence()

    async def _exchange(self, call: Call, sender: Sender, issued: Issued) -> aiohttp.ClientResponse:
        data = None if call.body is None else wire.encode(call.body)
        content = {"Content-Type": call.content_type} if data is not None else {}
        code = 0
        try:
            async with asyncio.timeout(self._limits.timeout):
                response = await self._connected().request(
                    call.method,
                    self._url(call.path),
                    params=call.options,
                    data=data,
                    headers=[*self._headers(issued, sender.component), *content.items()],
                    proxy=self._proxy,
                    allow_redirects=False,
                    **self._verification(issued),
                )
            code = response.status
            return response
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            if self._observer is not None:
                self._observer.answered(sender.component, call.verb, call.resource, code)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        async with response:
            try:
                async with asyncio.timeout(self._limits.timeout):
                    return await response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise Unreachable(f"the answer broke off: {error or repr(error)}") from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Watches hold a connection each, for as long as they last.
                connector=aiohttp.TCPConnector(limit=0),
                # The limits set deadlines; a host that does not answer at all is given up here.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _url(self, path: str) -> URL:
        # Joined as text: the server's URL may have a path of its own, as behind a gateway.
        return URL(f"{self._server}{path}")

    def _headers(self, issued: Issued, component: str) -> Headers:
        headers = [
            ("Accept", wire.JSON),
            # A Kubernetes API server takes what is before the slash as the field manager.
            ("User-Agent", f"{component}/{__version__}"),
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

    def _unreachable(self, error: Exception) -> Unreachable:
        cause = connection.cause(error)
        if type(error) is TimeoutError:
            cause = f"no answer within {self._limits.timeout:g} seconds"
        return Unreachable(f"{self.access.server} cannot be reached: {cause}")


def _pass_on(response: aiohttp.ClientResponse, warn: Warn | None) -> None:
    if warn is not None:
        for header in response.headers.getall("Warning", ()):
            for text in _WARNING.findall(header):
                warn(re.sub(r"\\(.)", r"\1", text))


def _status_of(body: bytes) -> Object:
    """Return the Status in the body of a refusal, or as much of one as there is."""
    with suppress(msgspec.DecodeError):
        status = wire.decode(body)
        if status.get("kind") == "Status":
            return status
    text = " ".join(body[:200].decode(errors="replace").split())
    return {"message": text} if text else {}


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
