"""Readiness and liveness probes of a guest, made through its agent.

`guestAgentPing` and `exec` are supported; what probes over the network is not run. A probe that is
edited starts over with what the previous one has found, so a ready guest stays ready until the new
probe has failed often enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from livevirt.kube.objects.request import Object
from livevirt.node.guest import Guest
from livevirt.qemu.agent import GuestAgent
from livevirt.qemu.errors import AgentUnavailable, CommandFailed

log = logging.getLogger(__name__)

READINESS, LIVENESS = "readinessProbe", "livenessProbe"


@dataclass(frozen=True, slots=True)
class Probe:
    """How a guest is probed. Without a command its agent is pinged."""

    command: tuple[str, ...] = ()
    initial_delay: float = 0  # seconds, since the guest was started
    period: float = 10
    timeout: float = 1
    successes: int = 1  # in a row, until it counts as healthy
    failures: int = 3  # in a row, until it does not


@dataclass(frozen=True, slots=True)
class Reports:
    """What is called when a guest is found to be otherwise."""

    readiness_changed: Callable[[], None]
    failed: Callable[[str, str], None]  # given the probe and why
    end: Callable[[str], None]  # ends the guest, given why


@dataclass(frozen=True, slots=True)
class Health:
    """What a probe has found so far."""

    healthy: bool
    contrary: int = 0  # results in a row that say otherwise


def read(spec: Object | None) -> Probe | None:
    """Return the probe of an instance's spec, None if there is none that is run."""
    given = spec or {}
    command = tuple((given.get("exec") or {}).get("command") or ())
    if not command and given.get("guestAgentPing") is None:
        return None
    usual = Probe()
    return Probe(
        command,
        initial_delay=given.get("initialDelaySeconds") or usual.initial_delay,
        period=given.get("periodSeconds") or usual.period,
        timeout=given.get("timeoutSeconds") or usual.timeout,
        successes=given.get("successThreshold") or usual.successes,
        failures=given.get("failureThreshold") or usual.failures,
    )


def counted(health: Health, probe: Probe, *, succeeded: bool) -> Health:
    """Return the health of a guest after one more result."""
    if succeeded == health.healthy:
        return Health(health.healthy)
    threshold = probe.successes if succeeded else probe.failures
    if health.contrary + 1 >= threshold:
        return Health(succeeded)
    return Health(health.healthy, health.contrary + 1)


async def ask(agent: GuestAgent, probe: Probe) -> str:
    """Probe the guest once; return why it failed, empty if it succeeded."""
    try:
        async with asyncio.timeout(probe.timeout):
            if not probe.command:
                await agent.ping()
                return ""
            ended = await agent.exec(probe.command[0], probe.command[1:])
    except TimeoutError:
        return f"no answer within {probe.timeout:g}s"
    except (AgentUnavailable, CommandFailed) as error:
        return str(error)
    return "" if ended.exit_code == 0 else f"the command ended with status {ended.exit_code}"


class Prober:
    """Runs the probes of one guest until stopped."""

    def __init__(self, guest: Guest, started: datetime, reports: Reports, *, ready: bool) -> None:
        """`ready` is what was last reported."""
        self._guest, self._started, self._reports = guest, started, reports
        self._health = {READINESS: Health(ready), LIVENESS: Health(True)}
        self._probes: dict[str, Probe | None] = {READINESS: None, LIVENESS: None}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun = False  # whether the probes of the instance are known

    @property
    def ready(self) -> bool:
        """Whether the guest is ready; without a probe it is."""
        return self._probes[READINESS] is None or self._health[READINESS].healthy

    def want(self, spec: Object, now: datetime) -> None:
        """Run the probes of an instance's spec, from now on."""
        ready, begun, self._begun = self.ready, self._begun, True
        for kind, known in self._probes.items():
            probe = read(spec.get(kind))
            if probe == known:
                continue
            if begun:  # by an edit: what was reported stays until the new probe finds otherwise
                self._health[kind] = Health(ready if kind == READINESS else True)
            if (task := self._tasks.pop(kind, None)) is not None:
                task.cancel()
            self._probes[kind] = probe
            if probe is not None:
                left = probe.initial_delay - (now - self._started).total_seconds()
                self._tasks[kind] = asyncio.create_task(self._run(kind, probe, max(left, 0.0)))

    def stop(self) -> None:
        """Probe no longer."""
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, kind: str, probe: Probe, delay: float) -> None:
        await asyncio.sleep(delay)
        while True:
            if self._runs():  # a paused guest cannot answer
                self._count(kind, probe, await ask(self._guest.agent, probe))
            await asyncio.sleep(probe.period)

    def _runs(self) -> bool:
        observed = self._guest.view.observed
        return observed is not None and observed.run_state == "running"

    def _count(self, kind: str, probe: Probe, failure: str) -> None:
        before = self._health[kind]
        after = self._health[kind] = counted(before, probe, succeeded=not failure)
        if after.healthy == before.healthy:
            return
        log.info("guest probed", extra=self._fields(kind) | {"failure": failure})
        if failure:
            self._reports.failed(kind, failure)
        if kind == READINESS:
            self._reports.readiness_changed()
        elif failure:
            self._reports.end(f"its liveness probe failed: {failure}")

    def _fields(self, kind: str) -> dict[str, object]:
        intent = self._guest.intent
        return {"vmi": f"{intent.namespace}/{intent.vmi}", "probe": kind}
