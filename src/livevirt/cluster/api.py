"""`livevirt api`: the aggregated API server of `subresources.kubevirt.io`.

It serves the same verbs as the embedded server (`vm.subresources.router`). It keeps no objects: a
verb reads and changes them in kube-apiserver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from livevirt.cluster import api_manifests, front_proxy
from livevirt.cluster.api_manifests import API_SERVICE
from livevirt.cluster.certificate_rotation import CertificateRotation, Identity, Trusting
from livevirt.cluster.certificates import Lifetimes
from livevirt.cluster.front_proxy import FrontProxy, ProxyGuard
from livevirt.cluster.guests import NoNodeAgent
from livevirt.cluster.node_proxy import NodeProxy
from livevirt.cluster.serving import ServingTls, listening_context
from livevirt.errors import ApiError
from livevirt.kube.client.interface import Client, Patch
from livevirt.kube.control.clock import Now
from livevirt.kube.control.metrics import Source
from livevirt.kube.objects import core
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import Object
from livevirt.kube.server.actions import ActionFront
from livevirt.kube.server.listen import listening_with
from livevirt.kube.server.metrics import Metrics
from livevirt.vm.config.settings import NAMESPACE
from livevirt.vm.kinds import subresources
from livevirt.vm.kinds.subresources import ACTIONS
from livevirt.vm.subresources.router import Actions

log = logging.getLogger(__name__)

SECRET = "livevirt-api-certificates"
REGISTRY = Registry((), ACTIONS)
_REFRESH_SECONDS = 60.0  # between looks at the front proxy's settings


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the API server listens and how long its certificates are valid."""

    host: str
    port: int
    lifetimes: Lifetimes
    sources: tuple[Source, ...] = ()  # of metrics besides those of requests


async def serve(settings: Settings, client: Client, now: Now, ready: Callable[[int], None]) -> None:
    """Serve until cancelled; call `ready` with the port once requests are answered."""
    guard = ProxyGuard(client, await _proxy(client))
    rotation = CertificateRotation(client, _identity(), _trusting(), now, settings.lifetimes)
    guests, metrics, nodes = NoNodeAgent(), Metrics(), NodeProxy(client)
    metrics.sources += settings.sources
    actions = Actions(client.for_component("subresources"), guests, nodes.verbs())
    front = ActionFront(REGISTRY, guard, metrics, actions.handle)

    def tls() -> ServingTls:
        assert rotation.pair is not None
        return ServingTls(rotation.pair, guard.proxy.authority)

    async with asyncio.TaskGroup() as group:
        group.create_task(rotation.run(), name="certificate-rotation")
        await rotation.serving.wait()
        context = listening_context(tls)
        async with listening_with(front.handle, context, settings.host, settings.port) as port:
            log.info("ready", extra={"port": port})
            ready(port)
            await _follow(client, guard)


async def _follow(client: Client, guard: ProxyGuard) -> None:
    """Keep the settings of the front proxy current until cancelled."""
    while True:
        await asyncio.sleep(_REFRESH_SECONDS)
        try:
            found = await _proxy(client)
        except ApiError as error:  # what we have is still good
            log.warning("front proxy not read", extra={"error": str(error)})
            continue
        if found != guard.proxy:
            guard.proxy = found
            log.info("settings of the front proxy changed")


async def _proxy(client: Client) -> FrontProxy:
    found = await client.get(core.CONFIG_MAP, front_proxy.CONFIG_MAP, front_proxy.NAMESPACE)
    return FrontProxy.read(found)


def _identity() -> Identity:
    names = api_manifests.SERVER_NAMES
    return Identity(SECRET, NAMESPACE, api_manifests.LABELS, names)


def _trusting() -> list[Trusting]:
    return [
        Trusting(API_SERVICE, api_manifests.registration_name(version), registration_bundle)
        for version in subresources.VERSIONS
    ]


def registration_bundle(obj: Object, bundle: str) -> Patch | None:
    """Return the patch that sets the CA bundle of an APIService."""
    if obj["spec"].get("caBundle") == bundle:
        return None
    return Patch("merge", {"spec": {"caBundle": bundle}})
