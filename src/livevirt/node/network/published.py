"""Follows Services, their endpoints and instances, and publishes them on the node network."""

from __future__ import annotations

import asyncio

from livevirt.kube.control.runtime import Factory, Runtime
from livevirt.kube.objects import core
from livevirt.node.network import forwarding
from livevirt.node.network.network import NodeNetwork
from livevirt.vm import kinds

SETTLE_SECONDS = 0.02  # in which changes that belong together arrive


def factory(network: NodeNetwork) -> Factory:
    """Return what publishes the objects of an API server on a network."""

    async def service_proxy(runtime: Runtime) -> None:
        changed = asyncio.Event()
        informers = [
            runtime.informers.of(kind) for kind in (core.SERVICE, core.ENDPOINT_SLICE, kinds.VMI)
        ]
        for informer in informers:
            informer.on_change(lambda change: changed.set())
        for informer in informers:
            await informer.synced.wait()  # or Services would break while the server starts
        services, slices, instances = informers
        while True:
            changed.clear()
            network.publish(
                forwarding.forwards(services.list(), slices.list()),
                forwarding.names(services.list(), slices.list(), instances.list()),
            )
            await changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)

    return service_proxy
