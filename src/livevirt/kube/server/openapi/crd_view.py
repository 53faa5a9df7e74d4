"""CustomResourceDefinitions: made from the registry, for reading only."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from livevirt.kube.objects import core, refusals, times
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import options
from livevirt.kube.server.options import Selection
from livevirt.kube.server.watch import Frame

_VERSION = "1"  # they never change while a server runs


@functools.cache
def _all(registry: Registry) -> dict[str, Object]:
    from livevirt.kube.objects import crds  # much to import for what few ever ask

    started = times.format_time(datetime.now(UTC))
    made = (crds.established(k, started, _VERSION) for k in registry.kinds if k.custom)
    return {crd["metadata"]["name"]: crd for crd in made}


def answer(registry: Registry, request: Request) -> Answer:
    """Answer a get or a list."""
    if request.verb == "get":
        if request.name not in _all(registry):
            raise refusals.not_found(core.CRD, request.name)
        return Answer(200, _all(registry)[request.name])
    selection = Selection(core.CRD, request.options)
    return Answer(
        200,
        {
            "kind": "CustomResourceDefinitionList",
            "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"resourceVersion": _VERSION},
            "items": [crd for crd in _all(registry).values() if selection.matches(crd)],
        },
    )


async def frames(registry: Registry, request: Request) -> AsyncIterator[list[Frame]]:
    """Send what there is, then stay silent: nothing ever changes."""
    selection = Selection(core.CRD, request.options)
    new = options.number(request.options, "resourceVersion") in (None, 0)
    yield [Frame("ADDED", crd) for crd in _all(registry).values() if new and selection.matches(crd)]
    seconds = options.number(request.options, "timeoutSeconds")
    await asyncio.sleep(3600.0 if seconds is None else seconds)
