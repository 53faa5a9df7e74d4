"""How fast and for how long a guest may be sent, from the instance's migrationConfiguration. Pure.

The limits are those of `status.migrationState.migrationConfiguration`; 0 or no value is no limit.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from livevirt.kube.control.clock import Now
from livevirt.kube.objects import quantity
from livevirt.kube.objects.request import Object
from livevirt.node.migration.facts import Migration
from livevirt.qemu.migration import Limits, Transfer

PREPARE_SECONDS = 120.0  # for the target to listen; it takes a second or two
EXTRA_SECONDS = 30.0  # beyond every limit, for a QEMU that does not answer
_GIB = 1024**3


def limits(settings: Object) -> Limits:
    """Return the limits that QEMU itself enforces."""
    bandwidth = settings.get("bandwidthPerMigration")
    return Limits(
        bandwidth=quantity.parse(str(bandwidth)).bytes if bandwidth else 0,
        auto_converge=bool(settings.get("allowAutoConverge")),
        downtime_ms=settings.get("maxDowntimeMs") or None,
    )


def may_stop_guest(settings: Object) -> bool:
    """Return whether the guest may be stopped when it cannot be sent in time."""
    return bool(settings.get("allowWorkloadDisruption"))


def completion_seconds(settings: Object, memory: int) -> float:
    """Return how long sending so many bytes of memory may take in all, 0 if there is no limit."""
    return float(settings.get("completionTimeoutPerGiB") or 0) * max(1.0, memory / _GIB)


def progress_seconds(settings: Object) -> float:
    """Return how long a transfer may make no progress, 0 if there is no limit."""
    return float(settings.get("progressTimeout") or 0)


class TransferTimer:
    """Detects a transfer that takes too long, in all or without progress."""

    def __init__(self, settings: Object, began: float) -> None:
        self._settings = settings
        self._began = self._progressed = began
        self._least_remaining: int | None = None

    def exceeded(self, transfer: Transfer, now: float) -> str:
        """Return which limit the transfer exceeds, "" if none."""
        least = self._least_remaining
        # QEMU reports no sizes during its state `setup`.
        if transfer.total and (least is None or transfer.remaining < least):
            self._least_remaining, self._progressed = transfer.remaining, now
        most = completion_seconds(self._settings, transfer.total)
        if most and now - self._began > most:
            return f"the guest was not sent within {most:.0f} s (completionTimeoutPerGiB)"
        stalled = progress_seconds(self._settings)
        if stalled and now - self._progressed > stalled:
            return f"nothing more of the guest was sent for {stalled:.0f} s (progressTimeout)"
        return ""


class SourceTimer:
    """The deadlines of one migration at its source.

    `clock` is monotonic and in seconds; `now` is what the instance's timestamps are compared with.
    """

    def __init__(self, memory: int, clock: Callable[[], float], now: Now) -> None:
        self._memory, self._clock, self._now = memory, clock, now
        self._created = self._last_answer = clock()
        self._began_sending: float | None = None
        self._transfer: TransferTimer | None = None

    def unprepared(self, extra: float = 0.0) -> str:
        """Return that the target took too long to listen, "" if it did not."""
        if self._clock() - extra - self._created <= PREPARE_SECONDS:
            return ""
        return f"the target did not listen for the guest within {PREPARE_SECONDS:.0f} s"

    def overdue(self, transfer: Transfer, migration: Migration, *, stopped: bool) -> str:
        """Return which limit a transfer that is under way exceeds, "" if none."""
        self._last_answer = now = self._clock()
        if self._transfer is None:
            # A guest that was stopped to be sent has that time once more.
            began = now if stopped else self._sending_since(migration)
            self._transfer = TransferTimer(migration.settings, began)
        return self._transfer.exceeded(transfer, now)

    def restart(self) -> None:
        """Give the transfer its time once more, because the guest was stopped."""
        self._transfer = None

    def hangs(self, migration: Migration) -> str:
        """Return which limit is exceeded by `EXTRA_SECONDS`, whatever QEMU answers, "" if none.

        A guest that may be stopped has the completion limit twice: once running, once stopped.
        """
        now = self._clock() - EXTRA_SECONDS
        if now < self._created:
            return ""  # first observe what an earlier agent left
        if not migration.started:
            return self.unprepared(EXTRA_SECONDS)
        began, settings = self._sending_since(migration), migration.settings
        times = 2 if may_stop_guest(settings) else 1
        most = times * completion_seconds(settings, self._memory)
        if most and now - began > most:
            return f"the guest did not arrive within {most:.0f} s (completionTimeoutPerGiB)"
        silent = progress_seconds(settings)
        if silent and now - max(began, self._last_answer) > silent:
            return f"QEMU reported no progress for {silent:.0f} s (progressTimeout)"
        return ""

    def _sending_since(self, migration: Migration) -> float:
        """Return when sending began, also if another agent began it."""
        if self._began_sending is None:
            since = migration.since
            sent_for = self._now() - since if since is not None else timedelta(0)
            self._began_sending = self._clock() - max(sent_for.total_seconds(), 0.0)
        return self._began_sending
