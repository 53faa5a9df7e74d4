from __future__ import annotations

from livevirt.kube.control import metrics
from livevirt.kube.control.requests import Requests


async def test_given_requests_then_they_are_counted_by_component_and_answer() -> None:
    requests = Requests()
    for component, code in (("one", 200), ("one", 200), ("one", 409), ("two", 0)):
        requests.answered(component, "get", "pods", code)
    requests.throttled("two", 0.2)
    text = metrics.text(await requests.samples())
    family = "livevirt_api_requests_total"
    for component, code, count in (("one", 200, 2), ("one", 409, 1), ("two", 0, 1)):
        labels = f'component="{component}",verb="get",resource="pods",code="{code}"'
        assert f"{family}{{{labels}}} {count}\n" in text
    assert 'livevirt_api_request_throttled_seconds_count{component="two"} 1\n' in text
