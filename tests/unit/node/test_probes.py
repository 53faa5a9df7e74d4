"""Probes: how results are counted, and what an edit of a probe keeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from livevirt.kube.objects.request import Object
from livevirt.node.guest import Guest
from livevirt.node.probes import Health, Probe, Prober, Reports, ask, counted, read
from livevirt.qemu.errors import AgentUnavailable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PING: Object = {"guestAgentPing": {}, "periodSeconds": 0.001, "failureThreshold": 1}
PROBES = {
    "none": (None, None),
    "over the network, which is not run": ({"tcpSocket": {"port": 22}}, None),
    "a ping": ({"guestAgentPing": {}}, Probe()),
    "a command": (
        {"exec": {"command": ["a", "b"]}, "periodSeconds": 3, "initialDelaySeconds": 9},
        Probe(("a", "b"), period=3, initial_delay=9),
    ),
    "zeros are defaults": ({"guestAgentPing": {}, "failureThreshold": 0}, Probe()),
}


@pytest.mark.parametrize(("spec", "probe"), PROBES.values(), ids=PROBES)
def test_read(spec: Object | None, probe: Probe | None) -> None:
    assert read(spec) == probe


def test_a_state_changes_once_a_threshold_is_reached_in_a_row() -> None:
    probe, health, found = Probe(successes=2, failures=3), Health(True), []
    for result in (False, False, True, False, False, False, True, False, True, True):
        health = counted(health, probe, succeeded=result)
        found.append(health.healthy)
    assert found == [True] * 5 + [False] * 4 + [True]


class PlayedAgent:
    """An agent that answers, or does not."""

    def __init__(self) -> None:
        self.answers, self.asked, self.status = True, 0, 0

    async def ping(self) -> None:
        self.asked += 1
        if not self.answers:
            raise AgentUnavailable("nobody answers")

    async def exec(self, path: str, args: Any) -> Any:
        if path == "hang":
            await asyncio.Event().wait()
        return SimpleNamespace(exit_code=self.status)


@pytest.mark.parametrize(
    ("command", "status", "fails"),
    [(("true",), 0, False), (("false",), 1, True), (("hang",), 0, True)],
)
async def test_a_command_succeeds_with_status_zero_in_time(
    command: tuple[str, ...], status: int, fails: bool
) -> None:
    agent = PlayedAgent()
    agent.status = status
    assert bool(await ask(cast(Any, agent), Probe(command, timeout=0.05))) is fails


class PlayedGuest:
    """A guest that runs, with an agent."""

    def __init__(self) -> None:
        self.agent, self.ended = PlayedAgent(), ""
        self.view = SimpleNamespace(observed=SimpleNamespace(run_state="running"))
        self.intent = SimpleNamespace(namespace="default", vmi="web")

    def end(self, why: str) -> None:
        self.ended = why


class Watched:
    """A prober, and what it reports."""

    def __init__(self, *, ready: bool) -> None:
        self.guest, self.failed = PlayedGuest(), list[str]()
        self.changed = asyncio.Event()
        reports = Reports(self.changed.set, self._fail, self.guest.end)
        self.prober = Prober(cast(Guest, self.guest), NOON, reports, ready=ready)

    def _fail(self, kind: str, why: str) -> None:
        self.failed.append(kind)
        self.changed.set()

    async def next_change(self) -> None:
        async with asyncio.timeout(5):
            await self.changed.wait()
        self.changed.clear()


async def test_a_guest_with_a_probe_is_ready_once_it_answers_and_no_longer_if_it_does_not() -> None:
    seen = Watched(ready=False)
    seen.prober.want({"readinessProbe": PING}, NOON)
    assert not seen.prober.ready
    await seen.next_change()
    assert seen.prober.ready
    seen.guest.agent.answers = False
    await seen.next_change()
    assert (seen.prober.ready, seen.failed) == (False, ["readinessProbe"])
    seen.prober.want({}, NOON)
    assert seen.prober.ready  # without a probe
    seen.prober.stop()


async def test_a_probe_that_is_added_or_edited_keeps_a_guest_ready_until_it_fails() -> None:
    seen = Watched(ready=False)
    seen.prober.want({}, NOON)
    assert seen.prober.ready
    slow = {**PING, "initialDelaySeconds": 60}
    seen.prober.want({"readinessProbe": slow}, NOON)
    assert seen.prober.ready
    seen.guest.agent.answers = False
    seen.prober.want({"readinessProbe": PING}, NOON)
    await seen.next_change()
    assert not seen.prober.ready
    seen.prober.stop()


async def test_a_paused_guest_is_not_probed() -> None:
    seen = Watched(ready=True)
    seen.guest.view.observed.run_state = "paused"
    seen.prober.want({"readinessProbe": PING}, NOON)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert seen.guest.agent.asked == 0
    seen.prober.stop()


async def test_a_guest_that_fails_its_liveness_probe_is_ended() -> None:
    seen = Watched(ready=True)
    seen.guest.agent.answers = False
    seen.prober.want({"livenessProbe": PING}, NOON)
    await seen.next_change()
    assert seen.failed == ["livenessProbe"]
    assert seen.guest.ended
    assert seen.prober.ready
    seen.prober.stop()
