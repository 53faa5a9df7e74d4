"""The remote client against a real socket: requests as Kubernetes wants them, answers as given."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from livevirt.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from livevirt.kube.client.access import Access, Plugin, Tls
from livevirt.kube.client.errors import ConfigError, Unreachable
from livevirt.kube.client.interface import Client, Patch
from livevirt.kube.client.limits import WAITS, Limits
from livevirt.kube.client.remote import RemoteClient
from livevirt.kube.client.transport import Transport
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.request import WatchEvent
from livevirt.vm.kinds import INSTANCETYPE, VM

from .certificates import Authority

AN_OBJECT = {"metadata": {"name": "web", "namespace": "ns"}}
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Answers with what is queued, then with an empty object; keeps what it was asked."""

    url: str = ""
    answers: list[web.Response | Answering] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(
            Seen(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(body) if body else None,
            )
        )
        answer = self.answers.pop(0) if self.answers else web.json_response({})
        return answer if isinstance(answer, web.Response) else await answer(request)


@asynccontextmanager
async def serving(context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    runner = web.ServerRunner(web.Server(server), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(access: Access, **more: Any) -> AsyncIterator[RemoteClient]:
    client = RemoteClient(access, **more)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[RemoteClient]:
    async with connected(Access(server.url), manager="test") as client:
        yield client


def refused(code: int, reason: str = "", message: str = "no", **headers: str) -> web.Response:
    status = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.json_response(status | {"code": code}, status=code, headers=more)


# ---------------------------------------------------------------- requests

REQUESTS: dict[str, tuple[Callable[[Client], Awaitable[Any]], tuple[str, str, dict[str, str], Any]]]
REQUESTS = {
    "get": (
        lambda c: c.get(VM, "web", "ns"),
        ("GET", "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/web", {}, None),
    ),
    "list of all namespaces": (
        lambda c: c.list(POD, labels="a in (b,c)", fields="d=e", limit=2, continue_="x"),
        (
            "GET",
            "/api/v1/pods",
            {"labelSelector": "a in (b,c)", "fieldSelector": "d=e", "limit": "2", "continue": "x"},
            None,
        ),
    ),
    "create, in the version the object says": (
        lambda c: c.create(
            INSTANCETYPE, AN_OBJECT | {"apiVersion": "instancetype.kubevirt.io/v1beta1"}
        ),
        (
            "POST",
            "/apis/instancetype.kubevirt.io/v1beta1/namespaces/ns/virtualmachineinstancetypes",
            {},
            AN_OBJECT | {"apiVersion": "instancetype.kubevirt.io/v1beta1"},
        ),
    ),
    "create, to see what would come of it": (
        lambda c: c.create(POD, AN_OBJECT, dry_run=True),
        ("POST", "/api/v1/namespaces/ns/pods", {"dryRun": "All"}, AN_OBJECT),
    ),
    "post to a subresource": (
        lambda c: c.create(POD, {"a": 1}, "ns", name="pod", subresource="binding"),
        ("POST", "/api/v1/namespaces/ns/pods/pod/binding", {}, {"a": 1}),
    ),
    "update": (
        lambda c: c.update(POD, AN_OBJECT, subresource="status"),
        ("PUT", "/api/v1/namespaces/ns/pods/web/status", {}, AN_OBJECT),
    ),
    "delete unchanged": (
        lambda c: c.delete_unchanged(POD, "web", "ns", uid="u", resource_version="3"),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods/web",
            {},
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": {"uid": "u", "resourceVersion": "3"},
            },
        ),
    ),
    "delete": (
        lambda c: c.delete(POD, "web", "ns", uid="u", grace_seconds=0),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods/web",
            {},
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "preconditions": {"uid": "u"},
                "gracePeriodSeconds": 0,
            },
        ),
    ),
}


@pytest.mark.parametrize(("call", "expected"), REQUESTS.values(), ids=REQUESTS)
async def test_requests(
    server: Server,
    client: RemoteClient,
    call: Callable[[Client], Awaitable[Any]],
    expected: tuple[str, str, dict[str, str], Any],
) -> None:
    await call(client)
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.query, seen.body) == expected
    assert seen.headers["Accept"] == "application/json"
    assert seen.headers["User-Agent"].startswith("test/")
    if seen.body is not None:
        assert seen.headers["Content-Type"] == "application/json"


PATCHES = {
    "merge": ("application/merge-patch+json", {}),
    "json": ("application/json-patch+json", {}),
    "strategic": ("application/strategic-merge-patch+json", {}),
    "apply": ("application/apply-patch+yaml", {"fieldManager": "test", "force": "true"}),
}


@pytest.mark.parametrize("type_", PATCHES)
async def test_patches(server: Server, client: RemoteClient, type_: Any) -> None:
    patch = Patch(type_, [{"op": "test"}])
    await client.patch(VM, "web", "ns", patch, subresource="status")
    (seen,) = server.seen
    assert (seen.headers["Content-Type"], seen.query) == PATCHES[type_]
    assert seen.path == "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/web/status"


async def test_a_name_that_leads_elsewhere_is_never_sent(
    server: Server, client: RemoteClient
) -> None:
    for name in ("../secrets", "..", "a%2Fb"):
        with pytest.raises(BadRequest, match="invalid resource name"):
            await client.get(POD, name, "ns")
    assert server.seen == []


async def test_the_servers_url_may_have_a_path(server: Server) -> None:
    async with connected(Access(f"{server.url}/k8s/clusters/c-1/")) as client:
        await client.get(POD, "web", "ns")
    assert server.seen[0].path == "/k8s/clusters/c-1/api/v1/namespaces/ns/pods/web"


async def test_any_path_can_be_asked(server: Server, client: RemoteClient) -> None:
    server.answers = [web.Response(body=b"ok")]
    assert await client.raw("PUT", "/readyz", options={"a": "b"}, body={"c": 1}) == b"ok"
    (seen,) = server.seen
    assert (seen.method, seen.path, seen.query, seen.body) == (
        "PUT", "/readyz", {"a": "b"}, {"c": 1},
    )  # fmt: skip


# ---------------------------------------------------------------- answers


async def test_a_list_is_a_page_whose_items_say_their_kind(
    server: Server, client: RemoteClient
) -> None:
    metadata = {"resourceVersion": "7", "continue": "more"}
    body = {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": [AN_OBJECT]}
    server.answers = [web.json_response(body)]
    page = await client.list(POD)
    assert page == ([{"apiVersion": "v1", "kind": "Pod"} | AN_OBJECT], "7", "more")


REFUSALS: dict[str, tuple[web.Response | Answering, type[ApiError], str]] = {
    "a Status": (refused(409, "Conflict", "read again"), Conflict, "read again"),
    "gone": (refused(410, "Gone"), Expired, "no"),
    "expired": (refused(410, "Expired"), Expired, "no"),
    "no Status": (web.Response(status=404, text="404 page not found\n"), NotFound, "404 page"),
    "nothing": (web.Response(status=502), ApiError, "the server answered 502"),
    "other JSON": (web.json_response([1], status=401), Unauthorized, r"\[1\]"),
    "elsewhere": (web.Response(status=302, headers={"Location": "/login"}), ApiError, "302"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_refusals(server: Server, client: RemoteClient, name: str) -> None:
    response, kind, message = REFUSALS[name]
    server.answers = [response]
    with pytest.raises(kind, match=message) as caught:
        await client.get(POD, "web", "ns")
    assert type(caught.value) is kind
    assert isinstance(response, web.Response)
    assert caught.value.status_code == response.status


async def test_warnings_reach_who_asked_for_them(server: Server) -> None:
    seen: list[str] = []
    text = r'299 - "a \"quoted\" \\ thing", 299 - "another"'
    server.answers = [web.json_response({}, headers={"Warning": text})]
    async with connected(Access(server.url), warn=seen.append) as client:
        await client.get(POD, "web", "ns")
    assert seen == ['a "quoted" \\ thing', "another"]


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with serving() as server:
        pass  # its port is free again
    async with connected(Access(server.url)) as client:
        with pytest.raises(Unreachable) as error:
            await client.get(POD, "web", "ns")
        port = server.url.rpartition(":")[2]
        cause = f"127.0.0.1 port {port}: Connection refused"
        assert error.value.message == f"{server.url} cannot be reached: {cause}"
        with pytest.raises(Unreachable):
            await anext(client.watch(POD))


async def test_a_server_without_tls_is_named_so(server: Server) -> None:
    async with connected(Access(server.url.replace("http:", "https:"))) as client:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1 port [0-9]+: TLS failed: ") as error:
            await client.get(POD, "web", "ns")
    assert "object at" not in error.value.message


async def test_an_answer_that_breaks_off_is_unreachable(
    server: Server, client: RemoteClient
) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"a":')
        assert request.transport is not None
        request.transport.close()
        return response

    server.answers = [half]
    with pytest.raises(Unreachable, match="broke off"):
        await client.get(POD, "web", "ns")


# ---------------------------------------------------------------- trying again


async def test_when_told_to_come_back_later_it_does(server: Server) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    later = [refused(429, "TooManyRequests", Retry_After=str(n)) for n in (1, 2)]
    server.answers = [*later, web.json_response(AN_OBJECT)]
    async with connected(Access(server.url), sleep=sleep) as client:
        assert await client.create(POD, AN_OBJECT) == AN_OBJECT
        assert 1.0 <= waits[0] <= 1.2
        assert 2.0 <= waits[1] <= 2.4
        assert len(waits) == 2
        assert [seen.body for seen in server.seen] == [AN_OBJECT] * 3
        server.answers = [refused(429, "TooManyRequests")]  # not told when: the caller decides
        with pytest.raises(TooManyRequests):
            await client.get(POD, "web", "ns")


@dataclass
class Counted:
    """Counts what a transport does."""

    answers: list[tuple[str, str, str, int]] = field(default_factory=list)
    waits: int = 0

    def answered(self, component: str, verb: str, resource: str, code: int) -> None:
        self.answers.append((component, verb, resource, code))

    def throttled(self, component: str, seconds: float) -> None:
        self.waits += 1


async def test_given_components_then_they_share_connections_and_are_counted_apart(
    server: Server,
) -> None:
    counted, access = Counted(), Access(server.url)
    transport = Transport(access, allowed=Limits(qps=50, burst=1), observer=counted)
    async with connected(access, manager="one", transport=transport) as one:
        other = one.for_component("other")
        await one.list(POD)
        await other.patch(POD, "web", "ns", {}, subresource="resize")
        server.answers = [refused(404, "NotFound")]
        with pytest.raises(NotFound):
            await other.get(VM, "web", "ns")
    assert counted.answers == [
        ("one", "list", "pods", 200),
        ("other", "patch", "pods/resize", 200),
        ("other", "get", "virtualmachines.kubevirt.io", 404),
    ]
    assert counted.waits == 2
    agents = [seen.headers["User-Agent"].partition("/")[0] for seen in server.seen]
    assert agents == ["one", "other", "other"]


async def test_given_a_component_when_the_server_is_overloaded_then_it_backs_off(
    server: Server,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    access = Access(server.url)
    transport = Transport(access, allowed=Limits(retries=2), sleep=sleep)
    async with connected(access, transport=transport) as client:
        server.answers = [refused(503), refused(429), web.json_response(AN_OBJECT)]
        assert await client.create(POD, AN_OBJECT) == AN_OBJECT
        server.answers = [refused(503) for _ in range(3)]
        with pytest.raises(ApiError):
            await client.create(POD, AN_OBJECT)
    assert len(waits) == 4


async def test_given_a_deadline_when_no_answer_comes_then_the_server_is_unreachable(
    server: Server,
) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.json_response({})

    counted, access = Counted(), Access(server.url)
    transport = Transport(access, allowed=Limits(timeout=0.1), observer=counted)
    async with connected(access, transport=transport) as client:
        server.answers = [hang]
        with pytest.raises(Unreachable):
            await client.get(POD, "web", "ns")
    assert counted.answers == [("livevirt", "get", "pods", 0)]


async def test_given_a_fence_then_nothing_is_written_and_reads_go_on(server: Server) -> None:
    class Fenced(Exception):
        pass

    def fence() -> None:
        raise Fenced

    access = Access(server.url)
    async with connected(access, transport=Transport(access, fence=fence)) as client:
        await client.get(POD, "web", "ns")
        for write in (client.create(POD, AN_OBJECT), client.delete(POD, "web", "ns")):
            with pytest.raises(Fenced):
                await write
    assert [seen.method for seen in server.seen] == ["GET"]


async def test_a_server_that_always_says_later_is_given_up(server: Server) -> None:
    async def sleep(seconds: float) -> None: ...

    server.answers = [refused(429, "TooManyRequests", Retry_After="1") for _ in range(WAITS + 2)]
    async with connected(Access(server.url), sleep=sleep) as client:
        with pytest.raises(TooManyRequests):
            await client.get(POD, "web", "ns")
    assert len(server.seen) == WAITS + 1


# ---------------------------------------------------------------- who we are


async def test_credentials_and_impersonation_are_headers(server: Server) -> None:
    access = Access(server.url, token="t", impersonate=(("Impersonate-User", "jane"),))
    async with connected(access) as client:
        await client.get(POD, "web", "ns")
    headers = server.seen[0].headers
    assert (headers["Authorization"], headers["Impersonate-User"]) == ("Bearer t", "jane")


async def test_given_an_exec_plugin_when_its_token_is_refused_then_it_is_asked_once_more(
    server: Server, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    code = f"""
calls = open({str(calls)!r}, "a+"); calls.write("x"); calls.seek(0)
print('{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
      '"status": {{"token": "%d"}}}}' % len(calls.read()))
"""
    access = Access(server.url, plugin=Plugin(sys.executable, ("-c", code)))
    async with connected(access) as client:
        server.answers = [refused(401, "Unauthorized"), web.json_response(AN_OBJECT)]
        assert await client.get(POD, "web", "ns") == AN_OBJECT
        server.answers = [refused(401, "Unauthorized"), refused(401, "Unauthorized")]
        with pytest.raises(Unauthorized):
            await client.get(POD, "web", "ns")
    tokens = [seen.headers["Authorization"] for seen in server.seen]
    assert tokens == ["Bearer 1", "Bearer 2", "Bearer 2", "Bearer 3"]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def server_context(authority: Authority, folder: Path, name: str) -> ssl.SSLContext:
    pair = authority.sign(name)
    file = folder / "server.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode()
    )
    context.load_cert_chain(file)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def common_name(request: web.Request) -> web.Response:
    assert request.transport is not None
    peer = request.transport.get_extra_info("peercert") or {}
    names = [value for part in peer.get("subject", ()) for _, value in part]
    return web.json_response({"names": names})


async def test_tls_with_an_authority_a_client_certificate_and_another_name(
    authority: Authority, tmp_path: Path
) -> None:
    context = server_context(authority, tmp_path, "inner.test")
    pair = authority.sign("jane")
    async with serving(context) as server:
        tls = Tls(authority.certificate, pair.certificate, pair.key, server_name="inner.test")
        server.answers = [common_name, common_name]
        async with connected(Access(server.url, tls=tls)) as client:
            assert await client.get(POD, "web", "ns") == {"names": ["jane"]}
        tls = Tls(insecure=True)
        async with connected(Access(server.url, tls=tls)) as client:
            assert await client.get(POD, "web", "ns") == {"names": []}


UNTRUSTED = {
    "the name is wrong": lambda authority: Tls(authority.certificate),
    "the authority is unknown": lambda authority: Tls(server_name="inner.test"),
    "the authority is another": lambda authority: Tls(
        Authority().certificate, server_name="inner.test"
    ),
}


@pytest.mark.parametrize("name", UNTRUSTED)
async def test_a_server_we_cannot_trust_is_told_nothing(
    authority: Authority, tmp_path: Path, name: str
) -> None:
    async with serving(server_context(authority, tmp_path, "inner.test")) as server:
        access = Access(server.url, tls=UNTRUSTED[name](authority), token="secret")
        async with connected(access) as client:
            with pytest.raises(Unreachable, match="its certificate is not trusted: ") as error:
                await client.get(POD, "web", "ns")
    assert "object at" not in error.value.message
    assert server.seen == []


async def test_a_plugin_may_give_a_client_certificate(authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign("from-plugin")
    status = {
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
    }
    printed = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    (tmp_path / "printed").write_text(json.dumps(printed))
    plugin = Plugin("cat", (str(tmp_path / "printed"),))
    async with serving(server_context(authority, tmp_path, "inner.test")) as server:
        server.answers = [common_name]
        tls = Tls(authority.certificate, server_name="inner.test")
        async with connected(Access(server.url, tls=tls, plugin=plugin)) as client:
            assert await client.get(POD, "web", "ns") == {"names": ["from-plugin"]}


@pytest.mark.parametrize(
    "tls", [Tls(b"nonsense"), Tls(certificate=b"nonsense", key=b"nonsense")], ids=["ca", "pair"]
)
async def test_pem_that_is_none_is_named_as_the_cause(tls: Tls) -> None:
    async with connected(Access("https://127.0.0.1:1", tls=tls)) as client:
        with pytest.raises(ConfigError, match="cannot be used"):
            await client.get(POD, "web", "ns")


# ---------------------------------------------------------------- proxies


async def test_requests_go_through_the_configured_proxy(server: Server) -> None:
    access = Access("http://cluster.invalid:80", proxy=server.url)
    async with connected(access) as client:
        await client.get(POD, "web", "ns")
    assert server.seen[0].headers["Host"].startswith("cluster.invalid")


async def test_the_environments_proxy_is_used_but_never_for_loopback(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with connected(Access(server.url)) as client:
        await client.get(POD, "web", "ns")
    async with connected(Access("http://cluster.invalid")) as client:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await client.get(POD, "web", "ns")


WRONG = {
    "no URL": Access("one:6443"),
    "another scheme": Access("ftp://one"),
    "a proxy we cannot speak to": Access("https://one", proxy="socks5://two"),
    "no port": Access("https://one:99999"),
    "a host with too long a part": Access(f"https://{'a' * 64}.example"),
    "a host with an empty part": Access("https://one..two"),
    "a proxy with too long a part": Access("https://one", proxy=f"http://{'a' * 64}"),
    "an expected name with too long a part": Access("https://one", tls=Tls(server_name="a" * 64)),
}


@pytest.mark.parametrize("access", WRONG.values(), ids=WRONG)
def test_addresses_that_cannot_work_are_refused_at_once(access: Access) -> None:
    wrong = access.tls.server_name or access.proxy.partition(":")[0] or access.server
    with pytest.raises(ConfigError, match=wrong):
        RemoteClient(access)


HEADERS = {
    "a token of two lines": {"token": "one\ntwo"},
    "a user of two lines": {"impersonate": (("Impersonate-User", "one\r\ntwo"),)},
    "a name of two lines": {"impersonate": (("Impersonate-Extra-one\ntwo", "x"),)},
}


@pytest.mark.parametrize("what", HEADERS.values(), ids=HEADERS)
async def test_what_cannot_be_a_header_is_refused_and_not_shown(
    server: Server, what: dict[str, Any]
) -> None:
    async with connected(Access(server.url, **what)) as client:
        with pytest.raises(ConfigError, match="one line of text") as error:
            await client.get(POD, "web", "ns")
    assert "two" not in str(error.value)
    assert server.seen == []


# ---------------------------------------------------------------- watch


def a_line(type_: str, **content: Any) -> bytes:
    return json.dumps({"type": type_, "object": content}).encode() + b"\n"


def streaming(*chunks: bytes, cut: bool = False) -> Answering:
    """Answer with chunks, each sent on its own; then end well, or cut the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


async def drained(client: RemoteClient, **more: Any) -> list[WatchEvent]:
    return [event async for event in client.watch(POD, "ns", **more)]


async def test_a_watch_yields_its_lines_until_the_server_ends_it(
    server: Server, client: RemoteClient
) -> None:
    server.answers = [streaming(a_line("ADDED", a=1), a_line("BOOKMARK", b=2))]
    events = await drained(client, resource_version="5", labels="a=b")
    assert events == [WatchEvent("ADDED", {"a": 1}), WatchEvent("BOOKMARK", {"b": 2})]
    query = server.seen[0].query
    assert 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert query == {
        "watch": "true", "resourceVersion": "5", "allowWatchBookmarks": "true",
        "labelSelector": "a=b",
    }  # fmt: skip


async def test_lines_may_be_cut_anywhere_and_be_long(server: Server, client: RemoteClient) -> None:
    long = "x" * 1_000_000
    text = a_line("ADDED", a=long) + a_line("MODIFIED", b="é") + b"\n" + a_line("DELETED", c=3)
    cuts = [0, 1, 7, 500_000, len(text) - 60, len(text) - 45, len(text) - 1, len(text)]
    server.answers = [streaming(*(text[a:b] for a, b in pairwise(cuts)))]
    assert await drained(client) == [
        WatchEvent("ADDED", {"a": long}),
        WatchEvent("MODIFIED", {"b": "é"}),
        WatchEvent("DELETED", {"c": 3}),
    ]


ERRORS: dict[str, tuple[web.Response | Answering, type[ApiError]]] = {
    "an event says it is too old": (
        streaming(a_line("ERROR", kind="Status", code=410, reason="Expired", message="old")),
        Expired,
    ),
    "an event says it is gone": (
        streaming(a_line("ERROR", kind="Status", code=410, reason="Gone", message="old")),
        Expired,
    ),
    "the answer says it is too old": (refused(410, "Expired"), Expired),
    "the connection breaks": (streaming(a_line("ADDED", a=1), cut=True), Unreachable),
    "it ends in the middle of a line": (streaming(a_line("ADDED", a=1)[:-5]), Unreachable),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_watches_that_fail(server: Server, client: RemoteClient, name: str) -> None:
    answer, kind = ERRORS[name]
    server.answers = [answer]
    with pytest.raises(kind) as caught:
        await drained(client)
    assert type(caught.value) is kind


async def test_when_a_watch_is_let_go_then_its_connection_is_closed(
    server: Server, client: RemoteClient
) -> None:
    gone = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(a_line("BOOKMARK", a=1))
                await asyncio.sleep(0)
        except ConnectionError:
            gone.set()
        return response

    server.answers = [endless]
    events = client.watch(POD)
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(5):
        await gone.wait()


# ---------------------------------------------------------------- websockets


async def test_a_websocket_speaks_the_protocol_asked_for(server: Server) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("plain.kubevirt.io",))
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data.upper())
        return socket

    server.answers = [echo]
    async with connected(Access(server.url, token="t")) as client:
        socket = await client.websocket("/console", protocols=("plain.kubevirt.io",))
        async with socket:
            assert socket.protocol == "plain.kubevirt.io"
            await socket.send_bytes(b"hello")
            assert await socket.receive_bytes() == b"HELLO"
        assert server.seen[0].headers["Authorization"] == "Bearer t"
        server.answers = [refused(404, "NotFound")]
        with pytest.raises(NotFound):
            await client.websocket("/console", protocols=())


async def test_an_access_can_be_changed_before_it_is_used(server: Server) -> None:
    access = replace(Access("http://other"), server=server.url, token="t")
    async with connected(access) as client:
        assert client.user.name == ""
        await client.get(POD, "web", "ns")
