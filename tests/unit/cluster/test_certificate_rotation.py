"""Certificates in a Secret, in the server and in what kube-apiserver trusts, kept the same."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from livevirt.cluster import certificates
from livevirt.cluster.certificate_rotation import (
    CertificateRotation,
    Identity,
    Trusting,
    conversion_bundle,
    webhook_bundle,
)
from livevirt.cluster.certificates import DEFAULT, Material
from livevirt.kube.client.interface import Patch
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, User

from ..kube.control.memory_handler import UNREACHABLE, MemoryHandler, until

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
IDENTITY = Identity("certificates", "kubevirt", {"a": "b"}, ("webhook.kubevirt.svc",))
CONFIGURATION = Kind("", "Configuration", "configurations", ("v1",), "", namespaced=False)


def bundle_of(obj: Object, bundle: str) -> Patch | None:
    return None if obj.get("caBundle") == bundle else Patch("merge", {"caBundle": bundle})


def a_rotation(server: MemoryHandler) -> CertificateRotation:
    client = LocalClient(server, User("webhook"))
    trusting = [Trusting(CONFIGURATION, "webhook", bundle_of)]
    return CertificateRotation(client, IDENTITY, trusting, lambda: NOON, DEFAULT)


@asynccontextmanager
async def running(*rotations: CertificateRotation) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.run()) for each in rotations]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.fixture
def server() -> MemoryHandler:
    """A server with one object that trusts nothing yet."""
    made = MemoryHandler()
    made.put(CONFIGURATION.resource, "", "webhook")
    return made


def stored(server: MemoryHandler) -> Material | None:
    secret = server.objects.get((core.SECRET.resource, "kubevirt", "certificates"))
    return certificates.from_secret(secret)


def is_published(server: MemoryHandler) -> bool:
    material = stored(server)
    trusted = server.objects[CONFIGURATION.resource, "", "webhook"].get("caBundle", "")
    return material is not None and base64.b64decode(trusted) == material.trusted


def writes(server: MemoryHandler) -> list[str]:
    reading = ("get", "list", "watch")
    return [each.verb for each in server.requests if each.verb not in reading]


async def test_given_nothing_then_certificates_are_stored_served_and_published(
    server: MemoryHandler,
) -> None:
    rotation = a_rotation(server)
    async with running(rotation):
        await until(lambda: is_published(server))
        assert rotation.serving.is_set()
        assert writes(server) == ["create", "patch"]


async def test_given_valid_certificates_then_a_start_writes_nothing(server: MemoryHandler) -> None:
    async with running(a_rotation(server)):
        await until(lambda: is_published(server))
    server.requests.clear()
    again = a_rotation(server)
    async with running(again):
        await until(again.serving.is_set)
    assert writes(server) == []


async def test_given_two_replicas_then_both_serve_the_certificate_of_the_first(
    server: MemoryHandler,
) -> None:
    one, other = a_rotation(server), a_rotation(server)
    async with running(one, other):
        await until(lambda: one.serving.is_set() and other.serving.is_set())
        await until(lambda: is_published(server))
        material = stored(server)
        assert material is not None
        assert one.pair == other.pair == material.serving


async def test_given_a_lost_secret_then_new_certificates_are_published(
    server: MemoryHandler,
) -> None:
    async with running(a_rotation(server)):
        await until(lambda: is_published(server))
        before = stored(server)
        server.drop(core.SECRET.resource, "kubevirt", "certificates")
        await until(lambda: stored(server) not in (None, before) and is_published(server))


async def test_given_a_bundle_that_was_removed_then_it_is_published_again(
    server: MemoryHandler,
) -> None:
    async with running(a_rotation(server)):
        await until(lambda: is_published(server))
        server.put(CONFIGURATION.resource, "", "webhook")
        assert not is_published(server)
        await until(lambda: is_published(server))


async def test_given_an_api_server_that_is_away_then_it_is_tried_again(
    server: MemoryHandler,
) -> None:
    server.refuse = lambda request: UNREACHABLE if request.verb == "create" else None
    async with running(a_rotation(server)):
        await until(lambda: "create" in writes(server))
        server.refuse = lambda request: None
        await until(lambda: is_published(server))


def test_the_bundle_of_every_webhook_is_set_and_nothing_else() -> None:
    webhooks = [
        {"name": "one", "clientConfig": {"url": "https://a", "caBundle": "old"}},
        {"name": "two", "clientConfig": {"url": "https://b"}},
        {"name": "three", "clientConfig": {"url": "https://c", "caBundle": "new"}},
    ]
    patch = webhook_bundle({"webhooks": webhooks}, "new")
    assert patch is not None
    config = {"caBundle": "new"}
    named = [{"name": name, "clientConfig": config} for name in ("one", "two")]
    assert (patch.type_, patch.body) == ("strategic", {"webhooks": named})
    assert webhook_bundle({"webhooks": webhooks[2:]}, "new") is None


def test_the_bundle_of_a_conversion_is_set_if_a_webhook_converts() -> None:
    def definition(**conversion: object) -> Object:
        return {"spec": {"conversion": conversion}}

    assert conversion_bundle(definition(strategy="None"), "new") is None
    config = {"url": "https://a"}
    patch = conversion_bundle(
        definition(strategy="Webhook", webhook={"clientConfig": config}), "new"
    )
    assert patch is not None
    wanted = {"conversion": {"webhook": {"clientConfig": {"caBundle": "new"}}}}
    assert (patch.type_, patch.body) == ("merge", {"spec": wanted})
    held = definition(strategy="Webhook", webhook={"clientConfig": config | {"caBundle": "new"}})
    assert conversion_bundle(held, "new") is None
