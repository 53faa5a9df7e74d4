"""How much a client may ask of its server: a rate, a deadline, and when to send again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

WAITS = 10  # before we give up on a server that asks us to send a request again later
#: Answers after which a request is sent again even without `Retry-After`. Of a write that ended
#: in another of them it is unknown whether it was done.
RETRIED_READS = frozenset((429, 502, 503, 504))
RETRIED_WRITES = frozenset((429, 503))
FIRST_WAIT, LONGEST_WAIT = 0.25, 10.0  # seconds, without `Retry-After`
JITTER = 0.2  # of the wait that a server asks for, so that not all clients return at once

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client allows itself; by default it is not limited, as fits a command."""

    qps: float = 0.0  # requests per second on average; 0: any number
    burst: int = 1  # requests that may be sent at once
    timeout: float | None = None  # seconds for an answer to arrive; a watch may last longer
    retries: int = 0  # after an overload that the server does not give a time for


UNLIMITED = Limits()
#: For components that run all the time.
COMPONENT = Limits(qps=50.0, burst=100, timeout=60.0, retries=4)


class RateLimiter:
    """A token bucket: `burst` requests at once, then `qps` per second, in the order they came."""

    def __init__(self, limits: Limits, sleep: Sleep = asyncio.sleep) -> None:
        self._limits, self._sleep = limits, sleep
        self._tokens, self._at = float(limits.burst), 0.0

    async def wait(self) -> float:
        """Wait until one more request may be sent; return the seconds that took."""
        if not self._limits.qps:
            return 0.0
        time = asyncio.get_running_loop().time()
        earned = (time - self._at) * self._limits.qps
        self._tokens, self._at = min(float(self._limits.burst), self._tokens + earned), time
        self._tokens -= 1  # may be negative: a request that has not been earned yet
        seconds = max(0.0, -self._tokens / self._limits.qps)
        if seconds:
            await self._sleep(seconds)
        return seconds


def retry_after(limits: Limits, write: bool, code: int, asked: str, waits: int) -> float | None:
    """Return the seconds to wait before a request is sent again, None if it is not.

    `asked` is the server's `Retry-After`, and `waits` counts earlier waits for this request.
    """
    if (code == 429 or code >= 500) and asked.isdecimal():
        return float(asked) * random.uniform(1.0, 1.0 + JITTER) if waits < WAITS else None
    if code in (RETRIED_WRITES if write else RETRIED_READS) and waits < limits.retries:
        longest = min(FIRST_WAIT * 2.0**waits, LONGEST_WAIT)
        return longest * random.uniform(0.5, 1.0)
    return None
