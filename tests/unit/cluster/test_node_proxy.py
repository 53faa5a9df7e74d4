"""Subresources that reach into a guest go to the agent of its node, and to no other server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from livevirt.cluster import certificates
from livevirt.cluster.node_endpoint import AUDIENCE, GUEST_VERBS, SECRET, SERVER_NAME
from livevirt.cluster.node_proxy import NodeProxy
from livevirt.errors import ApiError, NotFound
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Answer, Object, User
from livevirt.node.node_labels import AGENT_ADDRESS
from livevirt.vm import kinds
from livevirt.vm.subresources.call import Call

PATH = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/web"


class Api:
    """The objects that the proxy reads; issues tokens."""

    def __init__(self, address: str, name: str = SERVER_NAME) -> None:
        self.material = certificates.renewed(None, (name,), datetime.now(UTC))
        self.status: Object = {"phase": "Running", "nodeName": "node-1"}
        self.address = address
        self.tokens = 0

    async def get(self, kind: Any, name: str, namespace: str = "") -> Object:
        if kind is core.NODE:
            return {"metadata": {"annotations": {AGENT_ADDRESS: self.address}}}
        if kind is core.SECRET:
            return certificates.to_secret(self.material, SECRET, "kubevirt", {})
        if kind is kinds.VMI:
            return {"metadata": {"name": name}, "spec": {"domain": {}}, "status": self.status}
        raise NotFound(name)

    async def create(self, _: Any, request: Object, *__: Any, **___: Any) -> Object:
        assert request["spec"]["audiences"] == [AUDIENCE]
        self.tokens += 1
        return {"status": {"token": "for-node-agents"}}


async def agent(http: web.Request) -> web.StreamResponse:
    """Answer as a node agent does: echo what arrives."""
    if http.headers.get("Authorization") != "Bearer for-node-agents":
        return web.Response(status=401)
    if http.path.endswith("/console"):
        socket = web.WebSocketResponse(protocols=("plain.kubevirt.io",))
        await socket.prepare(http)
        async for message in socket:
            await socket.send_bytes(b"echo " + message.data)
            await socket.close()
        return socket
    body = {"method": http.method, "path": http.path_qs, "body": await http.text()}
    return web.json_response(body, status=202, headers={"Warning": '299 - "careful"'})


@asynccontextmanager
async def served(application: web.Application, tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(api: Api, folder: Path) -> AsyncIterator[str]:
    """A node agent, and in front of it a server that passes everything on; yields its address."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = api.material.serving
    (folder / "crt").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    tls.load_cert_chain(folder / "crt", folder / "key")
    behind, front = web.Application(), web.Application()
    behind.router.add_route("*", "/{path:.*}", agent)
    client: Any = api
    verbs = NodeProxy(client).verbs()

    async def forward(http: web.Request) -> web.StreamResponse:
        nothing: Any = None
        body = await http.json() if http.can_read_body else None
        call = Call(client, nothing, "default", "web", User("jane"), http, body)
        try:
            answer = await verbs["virtualmachineinstances", http.path.rpartition("/")[2]](call)
        except ApiError as error:
            return web.json_response(error.status(), status=error.status_code)
        if isinstance(answer, Answer):
            return web.json_response({}, status=answer.code)
        return answer

    front.router.add_route("*", "/{path:.*}", forward)
    async with served(behind, tls) as address, served(front, None) as reached:
        api.address = api.address or address
        yield f"http://{reached}{PATH}"


async def test_a_request_reaches_the_agent_and_its_answer_returns(tmp_path: Path) -> None:
    api = Api("")
    async with running(api, tmp_path) as url, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.put(f"{url}/pause?a=b", json={"dryRun": []}) as answer:
                found = await answer.json()
            assert answer.status == 202
            assert answer.headers["Warning"] == '299 - "careful"'
            assert found == {"method": "PUT", "path": f"{PATH}/pause?a=b", "body": '{"dryRun":[]}'}
    assert api.tokens == 1


async def test_a_console_is_relayed_in_both_directions(tmp_path: Path) -> None:
    api = Api("")
    async with running(api, tmp_path) as url, aiohttp.ClientSession() as session:
        protocols = ("plain.kubevirt.io",)
        async with session.ws_connect(f"{url}/console", protocols=protocols) as console:
            assert console.protocol == "plain.kubevirt.io"
            await console.send_bytes(b"hello")
            assert (await console.receive()).data == b"echo hello"
            assert (await console.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)


@pytest.mark.parametrize("name", [SERVER_NAME, "kubernetes"])
async def test_a_server_without_the_certificate_of_node_agents_is_not_used(
    tmp_path: Path, name: str
) -> None:
    api = Api("", name)
    async with running(api, tmp_path) as url, aiohttp.ClientSession() as session:
        if name == SERVER_NAME:  # of another authority
            api.material = certificates.renewed(None, (SERVER_NAME,), datetime.now(UTC))
        async with session.put(f"{url}/pause") as answer:
            assert answer.status == 503


@pytest.mark.parametrize(
    ("status", "address", "code"),
    [
        ({"phase": "Running", "nodeName": "node-1"}, "127.0.0.1:1", 503),
        ({"phase": "Succeeded", "nodeName": "node-1"}, "", 409),
        ({"phase": "Scheduling"}, "", 409),
    ],
    ids=["no agent listens", "it has ended", "it has no node"],
)
async def test_without_an_agent_it_is_refused(
    tmp_path: Path, status: Object, address: str, code: int
) -> None:
    api = Api(address)
    api.status = status
    async with (
        running(api, tmp_path) as url,
        aiohttp.ClientSession() as session,
        session.put(f"{url}/reset") as answer,
    ):
        assert answer.status == code


def test_all_subresources_of_guests_are_passed_on() -> None:
    nothing: Any = None
    verbs = NodeProxy(nothing).verbs()
    assert {("virtualmachineinstances", name) for name in GUEST_VERBS} <= verbs.keys()
    assert ("", "version") in verbs
