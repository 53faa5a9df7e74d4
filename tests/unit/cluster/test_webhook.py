"""The webhook's HTTP: reviews in, answers out, whatever is sent."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from livevirt import x509
from livevirt.cluster.reviews import Admission, LookupFailed
from livevirt.cluster.webhook import Reviews
from livevirt.errors import Forbidden
from livevirt.kube.client.access import load_pair
from livevirt.kube.control import metrics
from livevirt.x509 import Pair, Subject

UID = "u-1"
NOW = datetime.now(UTC)


class Answers:
    """Answers reviews as told."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def validate(self, body: Any) -> Any:
        if self.error is not None:
            raise self.error
        return {"response": {"uid": UID, "allowed": body.get("allowed", True)}}

    default = warn = evict = detach = validate


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def synced() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@pytest.fixture
def reviews(answers: Answers, synced: asyncio.Event) -> Reviews:
    return Reviews(cast(Admission, answers), synced)


@pytest.fixture
async def url(reviews: Reviews) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(reviews.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def post(url: str, data: bytes) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, data=data) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("path", ["default", "validate", "warn", "evict"])
async def test_given_a_review_then_its_answer_is_json(url: str, path: str) -> None:
    status, body = await post(f"{url}/{path}", b"{}")
    assert (status, body["response"]["allowed"]) == (200, True)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b'"text"', b"null"])
async def test_given_what_is_no_review_then_it_is_a_bad_request(url: str, data: bytes) -> None:
    status, body = await post(f"{url}/convert", data)
    assert (status, body["kind"], body["reason"]) == (400, "Status", "BadRequest")


async def test_given_a_failure_then_kube_apiserver_sees_an_error_without_its_text(
    url: str, answers: Answers
) -> None:
    answers.error = KeyError("a secret")
    status, body = await post(f"{url}/validate", b"{}")
    assert (status, body["code"]) == (500, 500)
    assert "a secret" not in str(body)
    answers.error = LookupFailed("cannot read a secret")
    status, body = await post(f"{url}/validate", b"{}")
    assert (status, "a secret" in str(body)) == (500, False)
    answers.error = Forbidden("no")
    assert (await post(f"{url}/validate", b"{}"))[0] == 403


async def test_given_incomplete_caches_then_admission_waits_and_conversion_does_not(
    url: str, synced: asyncio.Event
) -> None:
    synced.clear()
    waiting = asyncio.create_task(post(f"{url}/validate", b"{}"))
    assert (await post(f"{url}/convert", b"{}"))[0] == 400
    assert not waiting.done()
    synced.set()
    assert (await waiting)[0] == 200


async def test_given_reviews_then_they_are_counted_by_outcome(
    url: str, reviews: Reviews, answers: Answers
) -> None:
    await post(f"{url}/validate", b"{}")
    await post(f"{url}/validate", b'{"allowed": false}')
    answers.error = ValueError()
    await post(f"{url}/warn", b"{}")
    text = metrics.text(await reviews.samples())
    for webhook, outcome in (("validate", "accepted"), ("validate", "refused"), ("warn", "error")):
        labels = f'{{webhook="{webhook}",outcome="{outcome}"}}'
        assert f"livevirt_webhook_review_seconds_count{labels} 1\n" in text


@contextlib.asynccontextmanager
async def serving_by_tls(reviews: Reviews, clients: Pair) -> AsyncIterator[tuple[str, Pair]]:
    """Serve reviews by TLS as the webhook does, and verify certificates of clients."""
    servers = x509.new_authority("servers", NOW, timedelta(days=1))
    subject = Subject("server", x509.SERVER, (), ("localhost",))
    pair = x509.issue(servers, subject, NOW, timedelta(days=1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=clients.certificate.decode())
    load_pair(context, pair.certificate, pair.key)
    app = web.Application()
    app.add_routes(reviews.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://localhost:{runner.addresses[0][1]}", servers
    await runner.cleanup()


@pytest.mark.parametrize("path", ["default", "validate", "warn", "evict"])
async def test_given_a_client_authority_then_only_its_clients_are_answered(
    answers: Answers, synced: asyncio.Event, path: str
) -> None:
    reviews = Reviews(cast(Admission, answers), synced, authenticate=True)
    clients = x509.new_authority("clients", NOW, timedelta(days=1))
    shown = x509.issue(clients, Subject("kube-apiserver", x509.CLIENT), NOW, timedelta(days=1))
    async with serving_by_tls(reviews, clients) as (url, servers):
        for pair, expected in ((None, 401), (shown, 200)):
            context = ssl.create_default_context(cadata=servers.certificate.decode())
            if pair is not None:
                load_pair(context, pair.certificate, pair.key)
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{url}/{path}", data=b"{}", ssl=context) as response,
            ):
                assert response.status == expected
