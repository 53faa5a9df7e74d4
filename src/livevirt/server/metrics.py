"""Prometheus metrics of the API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    """Counts requests, their duration and open watches."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._duration = Histogram(
            "apiserver_request_duration_seconds", "Time to answer a request", ("verb", "resource"),
            registry=self.registry, buckets=_BUCKETS,
        )  # fmt: skip
        self._watches = Gauge(
            "apiserver_longrunning_requests", "Watches open now", registry=self.registry
        )
        self._children: dict[tuple[str, str], Histogram] = {}

    def observe(self, verb: str, resource: str, seconds: float) -> None:
        """Count one request."""
        child = self._children.get((verb, resource))
        if child is None:
            child = self._duration.labels(verb, resource)
            self._children[verb, resource] = child
        child.observe(seconds)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count a watch while it is open."""
        self._watches.inc()
        try:
            yield
        finally:
            self._watches.dec()

    def text(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        return generate_latest(self.registry)
