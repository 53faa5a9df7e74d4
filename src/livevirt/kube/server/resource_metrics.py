"""NodeMetrics and PodMetrics (`kubectl top`): measured when asked for, never stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta

from livevirt.kube.objects import core, refusals, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.objects.usage import Usage, Use
from livevirt.kube.server.options import Selection
from livevirt.kube.server.services import Services


async def nodes(services: Services, request: Request) -> Answer:
    """Answer a get or a list of NodeMetrics."""
    return await _answer(services, request, core.NODE, _node_metrics)


async def pods(services: Services, request: Request) -> Answer:
    """Answer a get or a list of PodMetrics."""
    return await _answer(services, request, core.POD, _pod_metrics)


_Measured = Callable[[Object, Usage], Object | None]


async def _answer(services: Services, request: Request, of: Kind, made: _Measured) -> Answer:
    """Answer with the metrics of the nodes or pods that a request selects."""
    kind, reader = request.kind, services.reader
    if request.verb == "get":
        found = reader.get(of, request.name, request.namespace)
        if found is None:
            raise refusals.not_found(kind, request.name)
        listed = list(_made([found], await _measured(services), made))
        if not listed:
            raise refusals.not_found(kind, request.name)
        return Answer(200, {**_type(kind), **listed[0]})
    selection = Selection(kind, request.options)
    wanted = [each for each in reader.list(of, request.namespace) if selection.matches(each)]
    items = list(_made(wanted, await _measured(services), made)) if wanted else []
    head = {**_type(kind), "kind": f"{kind.kind}List", "metadata": {}}
    return Answer(200, {**head, "items": items})


async def _measured(services: Services) -> list[Usage]:
    return await asyncio.gather(*(source() for source in services.usage_sources))


def _made(objects: Iterable[Object], usages: list[Usage], made: _Measured) -> Iterator[Object]:
    for obj in objects:
        for usage in usages:
            measured = made(obj, usage)
            if measured is not None:
                yield _head(obj, usage) | measured
                break


def _node_metrics(node: Object, usage: Usage) -> Object | None:
    used = usage.nodes.get(node["metadata"]["name"])
    return None if used is None else {"usage": _amounts(used)}


def _pod_metrics(pod: Object, usage: Usage) -> Object | None:
    used = usage.pods.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
    if used is None:
        return None
    return {"containers": [{"name": name, "usage": _amounts(use)} for name, use in used.items()]}


def _head(obj: Object, usage: Usage) -> Object:
    meta = obj["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels") if meta.get(key)}
    return {
        "metadata": {**kept, "creationTimestamp": times.format_time(usage.at)},
        "timestamp": times.format_time(usage.at),
        "window": times.format_duration(timedelta(seconds=usage.window)),
    }


def _amounts(used: Use) -> Mapping[str, str]:
    """Return the quantities as metrics-server writes them: nanocores and kibibytes."""
    memory = Quantity.from_int(used.memory // 1024 * 1024, Format.BINARY_SI)
    return {"cpu": f"{used.cpu_nano}n", "memory": str(memory)}


def _type(kind: Kind) -> Object:
    return {"kind": kind.kind, "apiVersion": kind.api_version}
