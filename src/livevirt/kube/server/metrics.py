"""Prometheus metrics of the API server, and the API group metrics.k8s.io."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from livevirt.kube.control import metrics
from livevirt.kube.control.metrics import Histogram, Sample, Source
from livevirt.kube.objects import core, refusals, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Usage, Use
from livevirt.kube.objects.quantity import Format, Quantity
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server.options import Selection
from livevirt.kube.server.services import Services
from livevirt.kube.store import Store

log = logging.getLogger(__name__)

_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class _Durations(Collector):
    """Durations by verb and resource.

    Plain numbers, counted in the event loop's thread: every request is counted, and the library's
    own histogram takes a lock per bucket.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[float]] = {}

    def observe(self, verb: str, resource: str, seconds: float) -> None:
        row = self._found.get((verb, resource))
        if row is None:  # one number per bucket, the one beyond them, and the sum
            row = self._found[verb, resource] = [0] * (len(_BUCKETS) + 1) + [0.0]
        row[bisect_left(_BUCKETS, seconds)] += 1
        row[-1] += seconds

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "Time to answer a request",
            labels=("verb", "resource"),
        )  # fmt: skip
        bounds = [*map(str, _BUCKETS), "+Inf"]
        for labels, row in self._found.items():
            so_far, buckets = 0.0, []
            for bound, count in zip(bounds, row[:-1], strict=True):
                so_far += count
                buckets.append((bound, so_far))
            family.add_metric(labels, buckets, row[-1])
        yield family


class Metrics:
    """Counts requests, their duration and open watches; `sources` add the rest on every scrape."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, store: Store | None = None) -> None:
        self.registry = CollectorRegistry()
        self.sources: list[Source] = []  # filled by the composition root
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        durations = _Durations()
        self.registry.register(durations)
        self.observe = durations.observe
        if store is not None:
            revision = Gauge("store_revision", "Newest revision", registry=self.registry)
            revision.set_function(lambda: store.revision)
            commits = Gauge("store_commits", "Transactions since the start", registry=self.registry)
            commits.set_function(lambda: store.commits)
            failures = Gauge(
                "store_failed_commits", "Transactions that failed since the start",
                registry=self.registry,
            )  # fmt: skip
            failures.set_function(lambda: store.failures)
        self._watches = Gauge(
            "apiserver_longrunning_requests", "Watches open now", registry=self.registry
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count a watch while it is open."""
        self._watches.inc()
        try:
            yield
        finally:
            self._watches.dec()

    async def text(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        own = generate_latest(self.registry)
        parts: list[Sample | Histogram] = []
        for source in tuple(self.sources):
            try:
                parts += await source()
            except Exception:  # one source that fails must not hide the others
                log.exception("metrics source failed")
        return own + metrics.text(parts).encode()


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
