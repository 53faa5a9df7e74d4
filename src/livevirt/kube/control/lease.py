"""Leader election on a Lease: one holder works at a time, the others wait their turn.

No wall clock is trusted. A candidate counts, on its own monotonic clock, how long a
holder's record has not changed, and takes over after the duration that record promises. The
holder gives up well before that if it cannot renew, counting from before it last asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Literal

from livevirt.errors import ApiError, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Clock, Now, before, sleep
from livevirt.kube.objects.core import LEASE
from livevirt.kube.objects.request import Object

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Each must be well below the one before it."""

    duration: float = 15.0  # others wait so long for a silent holder
    renew: float = 10.0  # a holder that could not renew for so long stops its work
    retry: float = 2.0  # between attempts

    def __post_init__(self) -> None:
        if not self.duration > self.renew > self.retry > 0:
            raise ValueError(f"need duration > renew > retry > 0, not {self}")


@dataclass(frozen=True, slots=True)
class Observed:
    """A lease as last read, and since when, by our clock, it has not changed."""

    lease: Object | None
    since: float

    def again(self, lease: Object | None, time: float) -> Observed:
        """Return what is observed once the lease has been read again."""
        return self if self._same(lease) else Observed(lease, time)

    def _same(self, lease: Object | None) -> bool:
        if lease is None or self.lease is None:
            return lease is self.lease
        return bool(lease.get("spec") == self.lease.get("spec"))


Move = Literal["create", "take", "renew", "wait"]


def move(observed: Observed, identity: str, time: float, patience: float = 15.0) -> Move:
    """Return what a candidate, or the holder, does next.

    `patience` is for a holder that did not say how long its record is good for.
    """
    if observed.lease is None:
        return "create"
    spec = observed.lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    if holder == identity:
        return "renew"
    if not holder or time >= expires(observed, patience):
        return "take"
    return "wait"


def expires(observed: Observed, patience: float = 15.0) -> float:
    """Return the moment from which the observed lease may be taken if it does not change."""
    spec = (observed.lease or {}).get("spec") or {}
    return observed.since + (spec.get("leaseDurationSeconds") or patience)


def held(lease: Object, identity: str, seconds: float, now: datetime) -> Object:
    """Return the lease as it reads once `identity` has taken or renewed it."""
    spec = lease.get("spec") or {}
    new = spec | {
        "holderIdentity": identity,
        "leaseDurationSeconds": ceil(seconds),
        "renewTime": _stamp(now),
    }
    if spec.get("holderIdentity") != identity:
        new["acquireTime"] = _stamp(now)
        if spec:  # the first holder is no transition
            new["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1
    new.setdefault("leaseTransitions", 0)
    return lease | {"spec": new}


def released(lease: Object, now: datetime) -> Object:
    """Return the lease as its holder leaves it on release: any candidate may take it at once."""
    spec = (lease.get("spec") or {}) | {"holderIdentity": "", "renewTime": _stamp(now)}
    return lease | {"spec": spec | {"leaseDurationSeconds": 1}}


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Election:
    """One candidate for a lease. `identity` must be unique."""

    def __init__(
        self,
        client: Client,
        lease: Key,
        identity: str,
        now: Now,
        *,
        timing: Timing | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._key = lease
        self._identity = identity
        self._now = now
        self._timing = timing or Timing()
        self._given_clock = clock
        self._observed = Observed(None, 0.0)
        self._renewed = 0.0  # when, at the latest, the lease was surely ours
        self.leading = False

    @property
    def may_write(self) -> bool:
        """Whether the lease is ours for certain: held, and renewed within the renew deadline.

        A process that was suspended finds out here, before its first renewal fails.
        """
        return self.leading and self._clock.time() < self._renewed + self._timing.renew

    async def run(
        self,
        work: Work,
        *,
        started: Callable[[], None] = lambda: None,
        stopped: Callable[[], None] = lambda: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Do the work whenever, and only while, this candidate holds the lease.

        Losing the lease calls `lost` and cancels the work; once it has ended we stand again.
        Returns, or raises, when the work ends; then, and when cancelled, the lease is released.
        """
        while True:
            await self._acquire()
            log.info("leadership acquired", extra=self._facts())
            self.leading = True
            started()
            try:
                ended = await self._lead(work, lost)
            finally:
                self.leading = False
                stopped()
                await self._release()
            if ended:
                return
            log.warning("leadership lost", extra=self._facts())

    async def _acquire(self) -> None:
        """Return once the lease is ours."""
        while True:
            asked = self._clock.time()
            if await self._attempt(asked + self._timing.renew):
                self._renewed = asked
                return
            await sleep(self._clock, self._until_next_attempt())

    def _until_next_attempt(self) -> float:
        """Return the seconds to wait: no longer than until the lease may be taken."""
        seconds = expires(self._observed, self._timing.duration) - self._clock.time()
        return min(self._timing.retry, seconds) if seconds > 0 else self._timing.retry

    async def _lead(self, work: Work, lost: Callable[[], None]) -> bool:
        """Return True when the work ended by itself, False when the lease was lost first."""
        task = asyncio.ensure_future(work())
        renewal = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait({task, renewal}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = task.done()
            if renewal.done() and not ended:
                lost()
            for other in (task, renewal):
                other.cancel()
            await asyncio.wait({task, renewal})
        for finished in (task, renewal):
            if not finished.cancelled():
                finished.result()
        return ended

    async def _renew(self) -> None:
        """Return when the lease is lost."""
        while True:
            await sleep(self._clock, self._timing.retry)
            asked = self._clock.time()
            deadline = self._renewed + self._timing.renew
            if asked < deadline and await self._attempt(deadline):
                self._renewed = asked
            elif self._clock.time() >= deadline or self._somebody_else():
                return

    async def _attempt(self, deadline: float) -> bool:
        """Return whether the lease is ours now; not knowing by the deadline counts as no."""
        try:
            return await before(self._clock, deadline, self._try())
        except TimeoutError:
            log.warning("lease not answered in time", extra=self._facts())
        except ApiError as error:
            log.warning("lease not written", extra=self._facts() | {"error": str(error)})
        return False

    async def _try(self) -> bool:
        try:
            lease = await self._client.get(LEASE, self._key.name, self._key.namespace)
        except NotFound:
            lease = None
        self._observed = self._observed.again(lease, self._clock.time())
        time, patience = self._clock.time(), self._timing.duration
        match move(self._observed, self._identity, time, patience):
            case "wait":
                return False
            case "create":
                metadata = {"name": self._key.name, "namespace": self._key.namespace}
                new = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}
                new = held(new, self._identity, self._timing.duration, self._now())
                lease = await self._client.create(LEASE, new, self._key.namespace)
            case "take" | "renew":
                assert lease is not None
                new = held(lease, self._identity, self._timing.duration, self._now())
                lease = await self._client.update(LEASE, new)
        self._observed = Observed(lease, self._clock.time())
        return True

    def _somebody_else(self) -> bool:
        spec = (self._observed.lease or {}).get("spec") or {}
        return spec.get("holderIdentity") not in (None, "", self._identity)

    async def _release(self) -> None:
        if self._observed.lease is None or self._somebody_else():
            return
        gone = released(self._observed.lease, self._now())
        deadline = self._clock.time() + self._timing.retry
        try:
            lease = await before(self._clock, deadline, self._client.update(LEASE, gone))
            self._observed = Observed(lease, self._clock.time())
        except (ApiError, TimeoutError) as error:  # it runs out by itself
            log.debug("lease not released", extra=self._facts() | {"error": str(error)})

    @property
    def _clock(self) -> Clock:
        if self._given_clock is None:
            self._given_clock = asyncio.get_running_loop()
        return self._given_clock

    def _facts(self) -> dict[str, object]:
        return {"lease": str(self._key), "identity": self._identity}
