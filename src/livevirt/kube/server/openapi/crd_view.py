"""CustomResourceDefinitions: made from the registry, for reading only."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from livevirt.errors import MethodNotAllowed
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


def refusal(registry: Registry, request: Request) -> MethodNotAllowed:
    """Return the refusal of a write: the definitions follow from the kinds that are built in."""
    name = request.name
    if not name and isinstance(request.body, dict):
        name = str((request.body.get("metadata") or {}).get("name") or "")
    what = f'{core.CRD.resource} "{name}"' if name else core.CRD.resource
    if name in _all(registry):
        why = "its kind is built in and served already, and definitions are read-only"
        advice = "leave the definition out of the manifest"
    else:
        why = "this server serves its built-in kinds only, and their definitions are read-only"
        advice = (
            "leave out the definition and its objects, or use a Kubernetes cluster for kinds of"
            " your own; `kubectl api-resources` lists the kinds there are"
        )
    return MethodNotAllowed(
        f"cannot {request.verb} {what}: {why}; {advice}", details=refusals.details(core.CRD, name)
    )


async def frames(registry: Registry, request: Request) -> AsyncIterator[list[Frame]]:
    """Send what there is, then stay silent: nothing ever changes."""
    selection = Selection(core.CRD, request.options)
    new = options.number(request.options, "resourceVersion") in (None, 0)
    yield [Frame("ADDED", crd) for crd in _all(registry).values() if new and selection.matches(crd)]
    seconds = options.number(request.options, "timeoutSeconds")
    await asyncio.sleep(3600.0 if seconds is None else seconds)
