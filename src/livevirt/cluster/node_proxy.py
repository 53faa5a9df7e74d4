"""Passes subresources that reach into a guest on to the agent of its node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable

import aiohttp
import msgspec
from aiohttp import WSMsgType, web

from livevirt.cluster import api_manifests, certificates
from livevirt.cluster.guests import NoNodeAgent, unreachable
from livevirt.cluster.node_endpoint import AUDIENCE, GUEST_VERBS, RESOURCE, SECRET, SERVER_NAME
from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Answer, Object, status_of
from livevirt.node.node_labels import AGENT_ADDRESS
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.subresources import router
from livevirt.vm.subresources.call import Call, Verb

log = logging.getLogger(__name__)

_TOKEN_SECONDS = 600  # the shortest that Kubernetes issues
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
_LARGEST_FRAME = 4 * 2**20


class NodeProxy:
    """Knows the way to the node agents; `verbs` replaces those that need one."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._token, self._renew_at = "", 0.0
        self._contexts: dict[bytes, ssl.SSLContext] = {}

    def verbs(self) -> dict[tuple[str, str], Verb]:
        """Return the verbs by resource and name."""
        refusing = {**router.VERBS, **router.guest_verbs(NoNodeAgent())}
        forwarded = {
            (RESOURCE, name): self._forwarding(refusing[RESOURCE, name]) for name in GUEST_VERBS
        }
        return {**refusing, **forwarded}

    def _forwarding(self, refusing: Verb) -> Verb:
        async def verb(call: Call) -> Answer | web.StreamResponse:
            vmi = await call.instance()
            address = await self._address(vmi)
            # Without a guest or an agent the verb itself knows the reason to refuse.
            return await (self._forward(call, address) if address else refusing(call))

        return verb

    async def _address(self, vmi: Object) -> str:
        """Return where the agent of a guest's node listens; nothing if there is none."""
        name = status_of(vmi).get("nodeName")
        if not name or status_of(vmi).get("phase") != "Running":
            return ""
        try:
            node = await self._client.get(core.NODE, name)
        except NotFound:
            return ""
        return str((node["metadata"].get("annotations") or {}).get(AGENT_ADDRESS) or "")

    async def _forward(self, call: Call, address: str) -> web.StreamResponse:
        headers = {"Authorization": f"Bearer {await self._bearer()}"}
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS)
        url = f"https://{address}{call.http.raw_path}"
        socket = web.WebSocketResponse(
            protocols=_protocols(call.http), compress=False, max_msg_size=_LARGEST_FRAME
        )
        try:
            connector = aiohttp.TCPConnector(ssl=await self._tls(call.name))
            async with aiohttp.ClientSession(
                connector=connector, headers=headers, timeout=timeout
            ) as session:
                if socket.can_prepare(call.http).ok:
                    return await _relay(session, url, call.http, socket)
                return await _request(session, url, call)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            log.warning("node agent not reached", extra={"address": address, "error": str(error)})
            raise unreachable(call.name, str(error) or "it does not answer") from error

    async def _bearer(self) -> str:
        """Return a token of our service account that only node agents accept."""
        if self._clock() >= self._renew_at:
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_SECONDS},
            }
            answer = await self._client.create(
                core.SERVICE_ACCOUNT, request, NAMESPACE, name=api_manifests.NAME,
                subresource="token",
            )  # fmt: skip
            self._token = answer["status"]["token"]
            self._renew_at = self._clock() + _TOKEN_SECONDS / 2
        return self._token

    async def _tls(self, vmi: str) -> ssl.SSLContext:
        """Return a context that trusts certificates of node agents and no others."""
        try:
            secret = await self._client.get(core.SECRET, SECRET, NAMESPACE)
        except NotFound as error:
            raise unreachable(vmi, str(error)) from error
        material = certificates.from_secret(secret)
        if material is None:
            raise unreachable(vmi, f"Secret {SECRET} has no certificates")
        trusted = material.trusted
        if trusted not in self._contexts:
            context = _NodeContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_verify_locations(cadata=trusted.decode())
            self._contexts = {trusted: context}
        return self._contexts[trusted]


class _NodeContext(ssl.SSLContext):
    """Expects the name of node agents in the certificate, whatever their address is."""

    def wrap_bio(self, *arguments: object, **options: object) -> ssl.SSLObject:
        """Wrap a connection, with that name."""
        options["server_hostname"] = SERVER_NAME
        return super().wrap_bio(*arguments, **options)  # type: ignore[arg-type]


def _protocols(http: web.BaseRequest) -> tuple[str, ...]:
    asked = http.headers.get("Sec-WebSocket-Protocol", "")
    return tuple(each.strip() for each in asked.split(",") if each.strip())


async def _request(session: aiohttp.ClientSession, url: str, call: Call) -> web.Response:
    body = None if call.body is None else msgspec.json.encode(call.body)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    async with session.request(call.http.method, url, data=body, headers=headers) as answer:
        kept = {
            name: answer.headers[name]
            for name in ("Content-Type", "Retry-After")
            if name in answer.headers
        }
        found = web.Response(status=answer.status, body=await answer.read(), headers=kept)
        for warning in answer.headers.getall("Warning", ()):
            found.headers.add("Warning", warning)
        return found


async def _relay(
    session: aiohttp.ClientSession, url: str, http: web.BaseRequest, client: web.WebSocketResponse
) -> web.StreamResponse:
    """Connect a client's WebSocket to the node agent's, until one of them is closed."""
    timeout = aiohttp.ClientWSTimeout(ws_close=2.0)
    try:
        connecting = session.ws_connect(
            url, protocols=_protocols(http), timeout=timeout, max_msg_size=_LARGEST_FRAME
        )
        agent = await connecting
    except aiohttp.WSServerHandshakeError as error:
        # The agent refuses; a plain request has the reason.
        async with session.get(url) as answer:
            status = answer.status if answer.status >= 400 else error.status
            kind = answer.headers.get("Content-Type", "application/json")
            body = await answer.read()
            return web.Response(status=status, body=body, headers={"Content-Type": kind})
    async with agent:
        await client.prepare(http)
        pumps = [
            asyncio.create_task(_pump(client, agent)), asyncio.create_task(_pump(agent, client)),
        ]  # fmt: skip
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        with contextlib.suppress(TimeoutError, ConnectionError):
            await client.close(code=agent.close_code or 1000)
    return client


async def _pump(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    async for message in source:
        if message.type == WSMsgType.BINARY:
            await target.send_bytes(message.data)
        elif message.type == WSMsgType.TEXT:
            await target.send_str(message.data)
