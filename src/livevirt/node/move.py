"""A migration as its instance tells it, seen from one of its two pods, and what to tell of it.

Pure. Who may say what: the source that the target waits and it begins, that its stream broke, or
that it takes too long; the target that the guest has come, or that it never will. Both only until
the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from livevirt.kube.objects import quantity
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.times import format_time, parse_time
from livevirt.qemu.migration import Limits, Transfer
from livevirt.vm.migration.migratability import NODE_NAME

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Move:
    """One migration, as far as it is known."""

    uid: str
    role: Literal["source", "target"]
    started: bool = False  # the source sends it
    abort: bool = False
    failed: bool = False
    ended: bool = False  # failed, or the guest has arrived
    completed: bool = False  # it has arrived
    node: str = ""  # where the guest is
    settings: Object = field(default_factory=dict)
    since: datetime | None = None  # when the source began to send it

    @property
    def wanted(self) -> bool:
        """Whether the guest should still get there."""
        return not (self.abort or self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a node has of a pod, as far as migrations are concerned."""

    node: str
    target: bool = False  # its guest comes from elsewhere
    begun: bool = False  # a QEMU was intended
    ended: bool = False  # and is no more
    awaits: bool = False  # it is there for a guest that has not come yet
    left: bool = False  # its guest is known to run elsewhere


@dataclass(frozen=True, slots=True)
class Part:
    """A pod's part in a migration; all False for one that takes part in none."""

    awaited: bool = False  # its guest is to come from elsewhere, and has not
    unneeded: bool = False  # and will not
    left: bool = False  # its guest runs elsewhere
    offered: bool = False  # its guest can be received now


@dataclass(frozen=True, slots=True)
class Sent:
    """What the source has to say."""

    ready: bool = False  # to begin
    failed: str = ""  # why the guest is still here
    late: str = ""  # why it should be called off


@dataclass(frozen=True, slots=True)
class Got:
    """What the target has to say."""

    arrived: bool = False


def of(vmi: Object | None, pod: str) -> Move | None:
    """Return the migration that a pod takes part in, None if it takes part in none."""
    status = (vmi or {}).get("status") or {}
    state = status.get("migrationState") or {}
    if pod not in (state.get("sourcePod"), state.get("targetPod")):
        return None
    return Move(
        uid=state.get("migrationUid", ""),
        role="source" if pod == state.get("sourcePod") else "target",
        started=bool(state.get("startTimestamp")),
        abort=bool(state.get("abortRequested")),
        failed=bool(state.get("failed")),
        ended=bool(state.get("endTimestamp")),
        completed=bool(state.get("completed")),
        node=status.get("nodeName") or "",
        settings=state.get("migrationConfiguration") or {},
        since=parse_time(state["startTimestamp"]) if state.get("startTimestamp") else None,
    )


def passed(vmi: Object | None, pod: str, noted: str) -> bool:
    """Tell whether the guest that a pod sent in a migration, by its uid, runs elsewhere since.

    The next one begins where the guest is. Nobody may have seen the end of the one before.
    """
    state = ((vmi or {}).get("status") or {}).get("migrationState") or {}
    later = state.get("migrationUid") not in (None, "", noted)
    return bool(noted) and later and state.get("sourcePod") != pod


def part(move: Move | None, side: Side, *, offered: bool) -> Part:
    """Return what part a pod has in a migration, if in one; `offered` if its guest is on offer."""
    wanted = move is not None and move.wanted
    if side.target and not side.begun:
        return Part(awaited=True, offered=wanted and offered)
    if side.awaits and not side.ended:
        return Part(awaited=True, unneeded=not wanted)
    elsewhere = (
        move is not None
        and move.role == "source"
        and move.completed
        and move.node != side.node
        and side.begun
    )
    return Part(left=side.left or elsewhere)


def limits(settings: Object) -> Limits:
    """Return how a guest may be sent."""
    bandwidth = settings.get("bandwidthPerMigration")
    return Limits(
        bandwidth=quantity.parse(str(bandwidth)).bytes if bandwidth else 0,
        auto_converge=bool(settings.get("allowAutoConverge")),
        downtime_ms=settings.get("maxDowntimeMs") or None,
    )


def most_seconds(settings: Object, memory: int) -> float:
    """Return how long sending that many bytes of memory may take in all, 0 if for ever."""
    return float(settings.get("completionTimeoutPerGiB") or 0) * max(1.0, memory / _GIB)


class Patience:
    """Tells when a transfer takes too long: in all, or without getting any nearer to its end."""

    def __init__(self, settings: Object, began: float) -> None:
        self._settings = settings
        self._stalled = float(settings.get("progressTimeout") or 0)
        self._began = self._moved = began
        self._least: int | None = None

    def over(self, transfer: Transfer, now: float) -> str:
        """Return why there is no point in waiting any longer, nothing if there is."""
        nearer = self._least is None or transfer.remaining < self._least
        if transfer.total and nearer:  # while it sets itself up, QEMU tells no sizes
            self._least, self._moved = transfer.remaining, now
        most = most_seconds(self._settings, transfer.total)
        if most and now - self._began > most:
            return f"the guest was not sent within {most:.0f} s (completionTimeoutPerGiB)"
        if self._stalled and now - self._moved > self._stalled:
            return f"nothing more of the guest was sent for {self._stalled:.0f} s (progressTimeout)"
        return ""


def source_patch(move: Move, told: Sent, now: datetime) -> Object:
    """Return the patch of the instance with what its source has to say."""
    if move.ended:
        return {}
    if told.failed:
        return _state(_failure(move, told.failed, now))
    if told.late and not move.abort:
        return _state({"abortRequested": True, "failureReason": told.late})
    if told.ready and not move.started:  # the target has told the source that it waits
        waits = {"targetNodeAddress": "127.0.0.1", "targetNodeDomainDetected": True}
        return _state({**waits, "startTimestamp": format_time(now)})
    return {}


def begins(patch: Object) -> bool:
    """Tell whether a patch of the instance says that its guest is being sent."""
    return "startTimestamp" in ((patch.get("status") or {}).get("migrationState") or {})


def target_patch(vmi: Object, move: Move, told: Got, node: str, now: datetime) -> Object:
    """Return the patch of the instance with what its target has to say."""
    if told.arrived and (vmi.get("status") or {}).get("nodeName") != node:
        at = format_time(now)
        state: Object = {"completed": True, "endTimestamp": at}
        state |= {"targetNodeDomainReadyTimestamp": at, "failed": None, "failureReason": None}
        if move.abort:
            state["abortStatus"] = "Failed"
        return {
            "metadata": {"labels": {NODE_NAME: node}},
            "status": {"nodeName": node, "migrationState": state},
        }
    return {}


def lost_patch(vmi: Object, move: Move, why: str, now: datetime) -> Object:
    """Return the patch of the instance whose guest will not arrive: its place has ended."""
    if move.ended:
        return {}
    state = vmi["status"]["migrationState"]
    return _state(_failure(move, state.get("failureReason") or why, now))


def _failure(move: Move, why: str, now: datetime) -> Object:
    found: Object = {"failed": True, "failureReason": why, "endTimestamp": format_time(now)}
    return found | ({"abortStatus": "Succeeded"} if move.abort else {})


def _state(changes: Object) -> Object:
    return {"status": {"migrationState": changes}}
