"""Keeps the certificates of a component current: in its Secret, its server and its clients.

Every replica runs this. They meet at the Secret, which is only written if it has not changed since
it was read, so one of them issues a certificate and all of them use it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from livevirt.cluster import certificates
from livevirt.cluster.certificates import Lifetimes, Material
from livevirt.errors import AlreadyExists, ApiError, Conflict
from livevirt.kube.client.access import load_pair
from livevirt.kube.client.interface import Client, Patch, if_unchanged
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.informer import Informer
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.x509 import Pair

log = logging.getLogger(__name__)

RETRY = timedelta(seconds=1)  # after a write that was refused
LONGEST = timedelta(hours=1)  # between looks at the clock


@dataclass(frozen=True, slots=True)
class Trusting:
    """An object by which kube-apiserver knows whom to trust when it calls the component."""

    kind: Kind
    name: str
    #: Return a patch that sets a CA bundle, given as base64; None if the object has it already.
    patch: Callable[[Object, str], Patch | None]


@dataclass(frozen=True, slots=True)
class Identity:
    """A component that serves HTTPS: its Secret and the names it is reached by."""

    secret: str
    namespace: str
    labels: dict[str, str]
    names: tuple[str, ...]


class CertificateRotation:
    """Issues, renews, serves and publishes the certificates of one component."""

    def __init__(
        self,
        client: Client,
        identity: Identity,
        trusting: Iterable[Trusting],
        now: Now,
        lifetimes: Lifetimes,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.serving = asyncio.Event()  # set once the context has a certificate
        self._client, self._identity = client, identity
        self._now, self._lifetimes = now, lifetimes
        self._wake = asyncio.Event()
        self.pair: Pair | None = None  # that the context shows
        self._secrets = self._informer(core.SECRET, identity.secret, identity.namespace)
        self._trusting = [(each, self._informer(each.kind, each.name)) for each in trusting]

    async def run(self) -> None:
        """Keep everything current until cancelled."""
        informers = [self._secrets, *(informer for _, informer in self._trusting)]
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                informer.on_change(lambda _: self._wake.set())
                group.create_task(informer.run(), name=f"informer-{informer.kind.resource}")
            for informer in informers:
                await informer.synced.wait()
            while True:
                self._wake.clear()
                wait = await self._attempt()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait.total_seconds()):
                        await self._wake.wait()

    async def _attempt(self) -> timedelta:
        """Bring everything up to date; return how long that lasts."""
        try:
            return await self._reconcile()
        except (AlreadyExists, Conflict):
            log.debug("another replica has written meanwhile", extra=self._facts())
        except ApiError as error:
            log.warning("certificates cannot be updated", extra=self._facts(error))
        return RETRY

    async def _reconcile(self) -> timedelta:
        key = Key(self._identity.namespace, self._identity.secret)
        secret = self._secrets.get(key)
        held = certificates.from_secret(secret)
        published = held is not None and not self._unpublished(held)
        wanted = certificates.renewed(
            held, self._identity.names, self._now(), self._lifetimes, published=published
        )
        if wanted != held:
            await self._store(secret, wanted)
        self._serve(wanted.serving)
        await self._publish(wanted)
        return min(certificates.due(wanted, self._now(), self._lifetimes) + RETRY, LONGEST)

    async def _store(self, secret: Object | None, material: Material) -> None:
        identity = self._identity
        wanted = certificates.to_secret(
            material, identity.secret, identity.namespace, identity.labels
        )
        if secret is None:
            await self._client.create(core.SECRET, wanted, identity.namespace)
        else:
            meta = secret["metadata"]
            wanted["metadata"]["resourceVersion"] = meta["resourceVersion"]
            wanted["metadata"]["uid"] = meta["uid"]
            await self._client.update(core.SECRET, {**wanted, "type": secret.get("type")})
        log.info("certificates renewed", extra=self._facts())

    def _serve(self, pair: Pair) -> None:
        if pair != self.pair:
            load_pair(self.context, pair.certificate, pair.key)
            self.pair = pair
            self.serving.set()
            log.info("serving certificate loaded", extra=self._facts())

    async def _publish(self, material: Material) -> None:
        for each, obj, patch in self._unpublished(material):
            guarded = Patch(patch.type_, if_unchanged(obj, patch.body))
            await self._client.patch(each.kind, each.name, "", guarded)
            facts = {"resource": each.kind.resource, "object": each.name}
            log.info("CA bundle published", extra=self._facts() | facts)

    def _unpublished(self, material: Material) -> list[tuple[Trusting, Object, Patch]]:
        """Return the objects that have another bundle, with the patch that gives them this one."""
        bundle = base64.b64encode(material.trusted).decode()
        found = []
        for each, informer in self._trusting:
            obj = informer.get(Key("", each.name))
            patch = None if obj is None else each.patch(obj, bundle)
            if obj is not None and patch is not None:
                found.append((each, obj, patch))
        return found

    def _informer(self, kind: Kind, name: str, namespace: str = "") -> Informer:
        return Informer(self._client, kind, namespace, fields=f"metadata.name={name}")

    def _facts(self, error: ApiError | None = None) -> dict[str, str]:
        facts = {"secret": f"{self._identity.namespace}/{self._identity.secret}"}
        return facts if error is None else facts | {"error": str(error)}


def webhook_bundle(obj: Object, bundle: str) -> Patch | None:
    """Return the patch that sets the CA bundle of every webhook of a configuration."""
    webhooks = [
        {"name": each["name"], "clientConfig": {"caBundle": bundle}}
        for each in obj.get("webhooks") or ()
        if each["clientConfig"].get("caBundle") != bundle
    ]
    return Patch("strategic", {"webhooks": webhooks}) if webhooks else None


def conversion_bundle(obj: Object, bundle: str) -> Patch | None:
    """Return the patch that sets the CA bundle of the conversion webhook of a CRD."""
    conversion = obj["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    config = (conversion.get("webhook") or {}).get("clientConfig") or {}
    if config.get("caBundle") == bundle:
        return None
    webhook = {"clientConfig": {"caBundle": bundle}}
    return Patch("merge", {"spec": {"conversion": {"webhook": webhook}}})
