"""Of a pod that a kubelet runs, only the readiness gate is written."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from livevirt.kube.client.interface import Patch
from livevirt.kube.objects.request import Object
from livevirt.node.pod_status import UNPAUSED, Waiting
from livevirt.node.readiness_gate import ReadinessGate
from livevirt.qemu.lifecycle import Standing

READY = {"type": "Ready", "status": "True"}


class Api:
    """Applies the patches of conditions, and keeps the reasons of events."""

    def __init__(self) -> None:
        self.pod: Object = {
            "metadata": {"name": "launcher", "namespace": "default"},
            "status": {"conditions": [READY]},
        }
        self.writes = 0
        self.events: list[str] = []
        self.client = self.recorder = self

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    async def patch(self, *_: Any, subresource: str) -> None:
        *_, patch = _
        assert isinstance(patch, Patch)
        assert patch.type_ == "strategic"
        assert subresource == "status"
        [condition] = patch.body["status"]["conditions"]
        assert set(patch.body["status"]) == {"conditions"}
        kept = [each for each in self.conditions if each["type"] != condition["type"]]
        self.pod["status"]["conditions"] = [*kept, condition]
        self.writes += 1

    def event(self, _: Object, __: str, reason: str, ___: str) -> None:
        self.events.append(reason)

    @property
    def conditions(self) -> list[Object]:
        found: list[Object] = self.pod["status"]["conditions"]
        return found


def a_local(condition: Any = "running", **changes: Any) -> Any:
    found: dict[str, Any] = {
        "folder": SimpleNamespace(uid="uid"),
        "waiting": None,
        "ending": None,
        "spawned": True,
        "guest": object(),
        "prober": None,
        "standing": Standing(condition, ""),
    }
    return SimpleNamespace(**found | changes)


def gate(api: Api) -> str:
    return next(each["status"] for each in api.conditions if each["type"] == UNPAUSED)


async def test_the_gate_follows_the_guest_and_is_written_when_it_changes() -> None:
    api: Any = Api()
    reporter = ReadinessGate(api)
    await reporter.report(a_local(), api.pod)
    await reporter.report(a_local(), api.pod)
    assert (gate(api), api.writes) == ("True", 1)
    await reporter.report(a_local("paused"), api.pod)
    assert (gate(api), api.writes) == ("False", 2)
    assert READY in api.conditions


async def test_nothing_is_written_before_a_guest_runs_and_after_it_ended() -> None:
    api: Any = Api()
    for changes in ({"guest": None}, {"spawned": False}, {"ending": object()}):
        await ReadinessGate(api).report(a_local(**changes), api.pod)
    await ReadinessGate(api).remove(api.pod)
    await ReadinessGate(api).refuse(api.pod)
    assert api.writes == 0


async def test_what_a_start_waits_for_is_an_event_of_the_pod() -> None:
    api: Any = Api()
    reporter = ReadinessGate(api)
    for reason in ("InvalidImage", "InvalidImage", "FailedMount"):
        waiting = a_local(guest=None, waiting=Waiting(reason, "why"))
        await reporter.report(waiting, api.pod)
    assert api.events == ["InvalidImage", "FailedMount"]
