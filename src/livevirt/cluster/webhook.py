"""`livevirt webhook`: admission, defaulting, warnings, evictions and conversion over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from livevirt.cluster import reviews
from livevirt.cluster.certificate_rotation import (
    CertificateRotation,
    Identity,
    Trusting,
    conversion_bundle,
    webhook_bundle,
)
from livevirt.cluster.certificates import Lifetimes
from livevirt.cluster.crds import CONVERTED
from livevirt.cluster.reviews import Admission
from livevirt.cluster.webhook_manifests import (
    CONVERT_PATH,
    DEFAULT_PATH,
    EVICT_PATH,
    LABELS,
    MUTATING,
    VALIDATE_PATH,
    VALIDATING,
    WARN_PATH,
    Endpoint,
)
from livevirt.errors import ApiError, BadRequest, LivevirtError
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import admission, kinds
from livevirt.vm.migration.eviction import Guard

log = logging.getLogger(__name__)

SECRET = "livevirt-webhook-certificates"
HEALTH_PATH, READY_PATH = "/healthz", "/readyz"
_LARGEST_BODY = 16 * 1024 * 1024  # old and new object, each as large as etcd takes, with room
_SHUTDOWN_SECONDS = 5.0
#: What the rules look up, besides the kinds that the room of a pod depends on.
LOOKED_UP: tuple[Kind, ...] = (
    kinds.KUBEVIRT, kinds.VMI, kinds.MIGRATION, kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE,
    kinds.PREFERENCE, kinds.CLUSTER_PREFERENCE, core.REVISION,
)  # fmt: skip

_FAILED = ApiError("an internal error occurred; the log of the webhook has the details")

Handler = Callable[[web.Request], Awaitable[web.Response]]
Answer = Callable[[Object], Awaitable[Object]]


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the webhook listens and how kube-apiserver reaches it."""

    host: str
    port: int
    endpoint: Endpoint
    names: tuple[str, ...]  # DNS names and addresses besides those of the Service
    lifetimes: Lifetimes


class CachedReader(InformerReader):
    """A reader that holds no objects of kinds without an informer, which then are fetched."""

    def __init__(self, informers: Informers) -> None:
        super().__init__(informers, *LOOKED_UP)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object; None does not mean that there is none."""
        return super().get(kind, name, namespace) if kind.resource in self._informers else None


async def serve(settings: Settings, client: Client, now: Now, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; call `ready` with the port once requests are answered."""
    marking = client.for_component("eviction-guard")
    try:
        await _serve(settings, client, marking, now, ready)
    finally:
        await marking.close()
        await client.close()


async def _serve(
    settings: Settings, client: Client, marking: Client, now: Now, ready: Callable[[int], None]
) -> None:
    informers = Informers(client)
    reader = CachedReader(informers)
    rotation = CertificateRotation(client, _identity(settings), _trusting(settings), now,
                                   settings.lifetimes)  # fmt: skip
    answering = Admission(
        kinds={(kind.group, kind.plural): kind for kind in kinds.KINDS},
        rules=admission.RULES,
        informers=reader,
        client=client,
        guard=Guard(marking),
        now=now,
    )
    synced = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        informers.start(group)
        group.create_task(rotation.run(), name="certificate-rotation")
        await rotation.serving.wait()
        async with _listening(settings, rotation, application(answering, synced)) as port:
            await reader.wait_synced()
            synced.set()
            log.info("ready", extra={"port": port})
            ready(port)
            await asyncio.Event().wait()


def application(answering: Admission, synced: asyncio.Event) -> web.Application:
    """Return the paths of the webhook; `synced` is set once the caches are complete."""

    async def convert(body: Object) -> Object:
        return reviews.convert(CONVERTED, body)

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def is_ready(_: web.Request) -> web.Response:
        if synced.is_set():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the caches are not complete yet\n")

    def synchronised(answer: Answer) -> Answer:
        async def answered(body: Object) -> Object:
            await synced.wait()  # the caller's timeout bounds it
            return await answer(body)

        return answered

    app = web.Application(client_max_size=_LARGEST_BODY)
    app.router.add_get(HEALTH_PATH, healthy)
    app.router.add_get(READY_PATH, is_ready)
    app.router.add_post(CONVERT_PATH, _handler(convert))
    for path, answer in (
        (DEFAULT_PATH, answering.default),
        (VALIDATE_PATH, answering.validate),
        (WARN_PATH, answering.warn),
        (EVICT_PATH, answering.evict),
    ):
        app.router.add_post(path, _handler(synchronised(answer)))
    return app


def _handler(answer: Answer) -> Handler:
    """Return the handler of a path: JSON in, JSON out; what fails is refused with a Status."""

    async def handle(request: web.Request) -> web.Response:
        try:
            try:
                body = msgspec.json.decode(await request.read())
            except msgspec.DecodeError as error:
                raise BadRequest(f"the body is not JSON: {error}") from error
            found, status = await answer(body), 200
        except ApiError as error:
            found, status = error.status(), error.status_code
        except Exception:
            log.exception("review failed", extra={"path": request.path})
            found, status = _FAILED.status(), _FAILED.status_code
        return web.Response(
            body=msgspec.json.encode(found), status=status, content_type="application/json"
        )

    return handle


@contextlib.asynccontextmanager
async def _listening(
    settings: Settings, rotation: CertificateRotation, app: web.Application
) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(
            runner, settings.host, settings.port, ssl_context=rotation.context, reuse_address=True
        )
        try:
            await site.start()
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise LivevirtError(f"cannot listen on {where}: {error.strerror}") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _identity(settings: Settings) -> Identity:
    endpoint = settings.endpoint
    names = (*endpoint.server_names, *settings.names)
    return Identity(SECRET, endpoint.namespace, LABELS, tuple(dict.fromkeys(names)))


def _trusting(settings: Settings) -> list[Trusting]:
    name = settings.endpoint.name
    return [
        *(Trusting(kind, name, webhook_bundle) for kind in (MUTATING, VALIDATING)),
        *(Trusting(core.CRD, kind.resource, conversion_bundle) for kind in CONVERTED),
    ]
