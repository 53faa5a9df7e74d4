"""Prometheus metrics of the API server."""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from livevirt.kube.control import metrics
from livevirt.kube.control.metrics import Histogram, Sample, Source
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

    def __init__(self, store: Store) -> None:
        self.registry = CollectorRegistry()
        self.sources: list[Source] = []  # filled by the composition root
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        durations = _Durations()
        self.registry.register(durations)
        self.observe = durations.observe
        revision = Gauge("store_revision", "Newest revision", registry=self.registry)
        revision.set_function(lambda: store.revision)
        commits = Gauge("store_commits", "Transactions since the start", registry=self.registry)
        commits.set_function(lambda: store.commits)
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
