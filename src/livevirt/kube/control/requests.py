"""Metrics of the requests that the components of a process send to an API server."""

from __future__ import annotations

from collections import Counter

from livevirt.kube.control.metrics import Family, Histogram, Sample

REQUESTS = Family(
    "livevirt_api_requests_total", "counter",
    "Requests to the API server, by the component that sent them and the status code of the"
    " answer. Code 0 is a connection that failed.",
    ("component", "verb", "resource", "code"),
)  # fmt: skip
THROTTLED = Family(
    "livevirt_api_request_throttled_seconds", "histogram",
    "Time that requests had to wait for the client's own rate limit. Those that did not wait are"
    " not counted.",
    ("component",),
)  # fmt: skip
FAMILIES: tuple[Family, ...] = (REQUESTS, THROTTLED)


class Requests:
    """Counts requests; the observer of a transport."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        self._throttled = Histogram(THROTTLED)

    def answered(self, component: str, verb: str, resource: str, code: int) -> None:
        """Count an answer; code 0 is a connection that failed."""
        self._counts[component, verb, resource, str(code)] += 1

    def throttled(self, component: str, seconds: float) -> None:
        """Count the time a request had to wait for the rate limit."""
        self._throttled.observe((component,), seconds)

    async def samples(self) -> list[Sample | Histogram]:
        """Return the current metrics."""
        counts = [Sample(REQUESTS, labels, count) for labels, count in self._counts.items()]
        return [*counts, self._throttled]
