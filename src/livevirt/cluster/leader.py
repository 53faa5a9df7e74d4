"""Leader election of a component with several replicas.

One replica holds a Lease and works; the others keep their caches warm. Three things keep two of
them from performing the same step. A replica that cannot renew its lease stops before another may
take it, and exits at once. Writes are refused as soon as the lease is not ours for certain, also
in a process that was suspended. And a write that was under way by then carries a precondition or
creates an object of a fixed name.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from livevirt.errors import LivevirtError
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Key
from livevirt.kube.control.clock import Now
from livevirt.kube.control.lease import Election, Timing, Work

log = logging.getLogger(__name__)


class NotLeading(LivevirtError):
    """Another replica may be leading by now, so this one must not write."""


CLIENT_GO = Timing(duration=15.0, renew=10.0, retry=2.0)


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Which lease a replica stands for, and under which name; client-go's times by default."""

    lease: Key
    identity: str
    timing: Timing = CLIENT_GO


def unique_identity() -> str:
    """Return a name that no other replica has: the host's, which is the pod's, and a UUID."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def exit_at_once() -> None:
    """End the process without another step."""
    os._exit(1)


class Leader:
    """Runs the work of a component while its replica is the leader."""

    def __init__(
        self,
        client: Client,
        candidacy: Candidacy,
        now: Now,
        lost: Callable[[], None] = exit_at_once,
    ) -> None:
        """Create it; the client must not share the rate limit of the work."""
        self.identity = candidacy.identity
        self._election = Election(
            client, candidacy.lease, candidacy.identity, now, timing=candidacy.timing
        )
        self._lost = lost

    @property
    def leading(self) -> bool:
        """Whether this replica is the leader."""
        return self._election.leading

    @property
    def healthy(self) -> bool:
        """Whether this replica waits, or leads with a lease that it has renewed in time."""
        return not self._election.leading or self._election.may_write

    def check(self) -> None:
        """Raise NotLeading unless this replica is the leader for certain."""
        if not self._election.may_write:
            raise NotLeading("this replica does not hold the lease")

    async def run(self, work: Work) -> None:
        """Do the work once this replica leads; losing the lease ends the process."""
        await self._election.run(work, lost=self._end)

    def _end(self) -> None:
        log.error("leadership lost, exiting", extra={"identity": self.identity})
        self._lost()
