"""`livevirt webhook`: admission, defaulting, warnings, evictions and conversion over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from livevirt.cluster import fields, reviews
from livevirt.cluster.certificate_rotation import (
    CertificateRotation,
    Identity,
    Trusting,
    conversion_bundle,
    webhook_bundle,
)
from livevirt.cluster.certificates import Lifetimes
from livevirt.cluster.crds import CONVERTED
from livevirt.cluster.endpoints import Endpoints
from livevirt.cluster.reviews import Admission, LookupFailed
from livevirt.cluster.webhook_manifests import (
    CONVERT_PATH,
    DEFAULT_PATH,
    DETACH_PATH,
    EVICT_PATH,
    LABELS,
    MUTATING,
    VALIDATE_PATH,
    VALIDATING,
    WARN_PATH,
    Endpoint,
)
from livevirt.errors import ApiError, BadRequest, LivevirtError, Unauthorized
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.metrics import Family, Histogram, Sample, Source
from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import admission, kinds
from livevirt.vm.migration.eviction import Guard

log = logging.getLogger(__name__)

SECRET = "livevirt-webhook-certificates"
_LARGEST_BODY = 16 * 1024 * 1024  # old and new object, each as large as etcd takes, with room
_SHUTDOWN_SECONDS = 5.0
#: What the rules look up, besides the kinds that the room of a pod depends on. Revisions are as
#: large as VMs and read once per edit, so they are not cached.
LOOKED_UP: tuple[Kind, ...] = (
    kinds.KUBEVIRT, kinds.VMI, kinds.MIGRATION, kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE,
    kinds.PREFERENCE, kinds.CLUSTER_PREFERENCE, core.PRIORITY_CLASS, core.STORAGE_CLASS,
)  # fmt: skip

_FAILED = ApiError("an internal error occurred; the log of the webhook has the details")

Handler = Callable[[web.Request], Awaitable[web.Response]]
Answer = Callable[[Object], Awaitable[Object]]
Ready = Callable[[int], None]

SECONDS = Family(
    "livevirt_webhook_review_seconds", "histogram",
    "How long the webhook took to answer kube-apiserver, by path and outcome: accepted, refused or"
    " error.",
    ("webhook", "outcome"),
)  # fmt: skip
FAMILIES: tuple[Family, ...] = (SECONDS,)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the webhook listens and how kube-apiserver reaches it."""

    host: str
    port: int
    endpoint: Endpoint
    names: tuple[str, ...]  # DNS names and addresses besides those of the Service
    lifetimes: Lifetimes
    client_authority: str = ""  # PEM; of the certificates that kube-apiserver must show, if any


class CachedReader(InformerReader):
    """A reader that holds no objects of kinds without an informer, which then are fetched."""

    def __init__(self, informers: Informers) -> None:
        super().__init__(informers, *LOOKED_UP)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object; None does not mean that there is none."""
        return super().get(kind, name, namespace) if kind.resource in self._informers else None


class Reviews:
    """Answers reviews over HTTP and counts them."""

    def __init__(
        self, admission_: Admission, synced: asyncio.Event, *, authenticate: bool = False
    ) -> None:
        self._admission, self._synced, self._authenticate = admission_, synced, authenticate
        self._seconds = Histogram(SECONDS)

    def routes(self) -> list[web.RouteDef]:
        """Return the paths that kube-apiserver calls."""
        answers: dict[str, Answer] = {
            DEFAULT_PATH: self._admission.default,
            VALIDATE_PATH: self._admission.validate,
            WARN_PATH: self._admission.warn,
            EVICT_PATH: self._admission.evict,
            DETACH_PATH: self._admission.detach,
        }
        admitting = [web.post(path, self._handler(answer)) for path, answer in answers.items()]
        # Informers of an older version need conversion before they are complete. kube-apiserver has
        # no setting for a client certificate here; nothing is read or written.
        return [*admitting, web.post(CONVERT_PATH, self._handler(_convert, admission=False))]

    async def samples(self) -> list[Sample | Histogram]:
        """Return the current metrics."""
        return [self._seconds]

    def _handler(self, answer: Answer, *, admission: bool = True) -> Handler:
        """Return the handler of a path: JSON in, JSON out; what fails is refused with a Status."""

        async def handle(request: web.Request) -> web.Response:
            began = asyncio.get_running_loop().time()
            try:
                if admission:
                    self._check_caller(request)
                    await self._synced.wait()  # as long as the caller is willing to
                found, status = await answer(_decoded(await request.read())), 200
            except ApiError as error:
                found, status = error.status(), error.status_code
            except LookupFailed as error:
                log.warning("review failed", extra={"path": request.path, "error": str(error)})
                found, status = _FAILED.status(), _FAILED.status_code
            except Exception:
                log.exception("review failed", extra={"path": request.path})
                found, status = _FAILED.status(), _FAILED.status_code
            labels = (request.path.removeprefix("/"), _outcome(found))
            self._seconds.observe(labels, asyncio.get_running_loop().time() - began)
            body = msgspec.json.encode(found)
            return web.Response(body=body, status=status, content_type="application/json")

        return handle

    def _check_caller(self, request: web.Request) -> None:
        """Raise Unauthorized unless the caller has shown a certificate, if one is required."""
        transport = request.transport
        shown = transport.get_extra_info("peercert") if transport is not None else None
        if self._authenticate and not shown:
            raise Unauthorized("a client certificate is required")


async def _convert(body: Object) -> Object:
    return reviews.convert(CONVERTED, body)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error


def _outcome(answer: Object) -> str:
    """Return what an answer is counted as."""
    response = answer.get("response")
    if response is None:
        return "error"
    result = (response.get("result") or {}).get("status") == "Success"
    return "accepted" if response.get("allowed") or result else "refused"


async def serve(
    settings: Settings, client: Client, now: Now, sources: Sequence[Source], ready: Ready
) -> None:
    """Serve until cancelled; call `ready` with the port once requests are answered.

    `sources` are the metrics of others that are shown with our own.
    """
    informers = Informers(client, fields.transform)
    reader = CachedReader(informers)
    rotation = CertificateRotation(
        client, _identity(settings), _trusting(settings), now, settings.lifetimes
    )
    answering = Admission(
        kinds={(kind.group, kind.plural): kind for kind in kinds.KINDS},
        rules=admission.RULES,
        informers=reader,
        client=client,
        guard=Guard(client.for_component("eviction-guard")),
        now=now,
    )
    synced = asyncio.Event()
    served = Reviews(answering, synced, authenticate=bool(settings.client_authority))
    if settings.client_authority:
        rotation.context.verify_mode = ssl.CERT_OPTIONAL  # probes show none
        rotation.context.load_verify_locations(cadata=settings.client_authority)
    endpoints = Endpoints(
        ready=lambda: "" if synced.is_set() else "the caches are not complete yet",
        sources=(served.samples, *sources),
    )
    app = web.Application(client_max_size=_LARGEST_BODY)
    app.add_routes([*endpoints.routes(), *served.routes()])
    try:
        async with asyncio.TaskGroup() as group:
            informers.start(group)
            group.create_task(rotation.run(), name="certificate-rotation")
            await rotation.serving.wait()
            async with _listening(settings, rotation, app) as port:
                await reader.wait_synced()
                synced.set()
                log.info("ready", extra={"port": port})
                ready(port)
                await asyncio.Event().wait()
    finally:
        await client.close()


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
