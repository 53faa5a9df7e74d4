"""The state machines of a migration on a node, one for each side. Pure.

A state is never stored. It is the first rule of `SOURCE_RULES` or `TARGET_RULES` that matches the
facts, and every fact survives the agent: the instance's `status.migrationState`, the notes in the
pod's directory, QEMU's own answers. What is only in memory (an offer, a report on its way) is made
again. So an agent that was killed continues in the state that the world is in.

`docs/migration.md` shows the rules as tables; `tools/reference.py` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from livevirt.node.migration import limits
from livevirt.node.migration.facts import Migration, PodFacts
from livevirt.node.migration.handover import Departure
from livevirt.qemu.lifecycle import SENT_WHOLE
from livevirt.qemu.migration import COMPLETED, FAILED, NEVER

COMPLETING = "finish-migrate"  # run state for a moment: the guest is sent whole, or not at all
INCOMING = "inmigrate"  # run state of a QEMU that waits for a guest
_SENT = (SENT_WHOLE, COMPLETING)

F = TypeVar("F")  # facts
S = TypeVar("S", bound=Enum)  # states
T = TypeVar("T", bound=Enum)  # steps


@dataclass(frozen=True, slots=True)
class Rule(Generic[F, S, T]):
    """One row of a state machine: the state, the facts by which it is known, and what is done."""

    state: S
    when: str
    holds: Callable[[F], bool]
    steps: tuple[T, ...] = ()
    why: Callable[[F], str] = lambda _: ""  # what a step reports


@dataclass(frozen=True, slots=True)
class Decision(Generic[S, T]):
    """The state a side is in and the steps to take, in order."""

    state: S
    steps: tuple[T, ...]
    why: str = ""


def _first(rules: Sequence[Rule[F, S, T]], facts: F) -> Decision[S, T]:
    rule = next(rule for rule in rules if rule.holds(facts))
    return Decision(rule.state, rule.steps, rule.why(facts))


# ---------------------------------------------------------------- source


class SourceState(Enum):
    """The states of the side that a guest leaves."""

    PREPARING = "Preparing"
    OFFERED = "Offered"
    READY = "Ready"
    STARTING = "Starting"
    SENDING = "Sending"
    SENT = "Sent"
    COMPLETING = "Completing"
    FAILED = "Failed"
    STAYING = "Staying"
    LEFT = "Left"


class SourceStep(Enum):
    """What the source can do."""

    OFFER = "publish which machine can receive the guest"
    WRITE_NOTE = "note on disk that the guest leaves"
    REPORT_READY = "write `startTimestamp` to the instance"
    SEND = "`migrate`, once the note is on disk"
    STOP_GUEST = "note that the guest is stopped, then `stop` it"
    REQUEST_ABORT = "write `abortRequested` to the instance"
    REPORT_FAILURE = "write `failed` to the instance"
    RESUME = "`cont`, if the guest ran before and is stopped"
    REMOVE_NOTE = "remove the note"
    FINISH = "forget the migration"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What the source of one migration knows, read at one moment."""

    migration: Migration
    departure: Departure | None = None  # the note on disk, of this migration or an earlier one
    offered: bool = False  # the offer is published
    listening: bool = False  # the target has published its socket
    failure_reported: bool = False  # by this agent; the instance may not say so yet
    unprepared: str = ""  # why the target is no longer waited for
    overdue: str = ""  # which limit the transfer exceeds
    transfer: str = NEVER  # status in QEMU's `query-migrate`
    error: str = ""  # and its `error-desc`
    run_state: str = "running"

    @property
    def noted(self) -> bool:
        """Whether the note is of this migration."""
        return self.departure is not None and self.departure.uid == self.migration.uid

    @property
    def stale(self) -> bool:
        """Whether the note is of an earlier migration, whose end was not seen."""
        return self.departure is not None and not self.noted

    @property
    def sent(self) -> bool:
        """Whether QEMU has sent the whole guest.

        A QEMU that once received its guest reports that transfer, too, as completed.
        """
        return self.transfer == COMPLETED and self.run_state in _SENT

    @property
    def broken(self) -> bool:
        """Whether no transfer is under way and the guest was not sent."""
        return self.transfer in (NEVER, COMPLETED, *FAILED) and not self.sent

    @property
    def stoppable(self) -> bool:
        """Whether to stop the guest could still get it sent."""
        stopped = self.departure is not None and self.departure.stopped
        allowed = limits.may_stop_guest(self.migration.settings)
        return allowed and not stopped and self.run_state == "running"


def resumes(departure: Departure | None, run_state: str) -> bool:
    """Return whether a guest that stays must be resumed: it ran, and is stopped because of us."""
    if departure is None:
        return False
    sent = run_state == SENT_WHOLE and not departure.paused
    return sent or (departure.stopped and run_state == "paused")


_S, _DO = SourceState, SourceStep
SOURCE_RULES: tuple[Rule[SourceFacts, SourceState, SourceStep], ...] = (
    Rule(
        _S.LEFT,
        "the instance reports that the guest has arrived",
        lambda f: f.migration.ended and not f.migration.failed,
        (_DO.FINISH,),
    ),
    Rule(
        _S.COMPLETING,
        "the instance reports that the migration failed, and QEMU is in `finish-migrate`",
        lambda f: f.migration.ended and f.run_state == COMPLETING,
    ),
    Rule(
        _S.STAYING,
        "the instance reports that the migration failed",
        lambda f: f.migration.ended,
        (_DO.RESUME, _DO.REMOVE_NOTE, _DO.FINISH),
    ),
    Rule(
        _S.FAILED,
        "the failure is reported, and the instance does not say so yet",
        lambda f: f.failure_reported,
    ),
    Rule(
        _S.FAILED,
        "noted, and the stream broke or was never begun",
        lambda f: f.noted and f.broken,
        (_DO.REPORT_FAILURE,),
        lambda f: f"the guest was not sent: {f.error or 'the transfer was interrupted'}",
    ),
    Rule(
        _S.SENT,
        "noted, and QEMU has sent the whole guest; it is stopped until the instance reports more",
        lambda f: f.noted and f.sent,
    ),
    Rule(
        _S.SENDING,
        "noted, the transfer exceeds a limit, and the guest runs and may be stopped",
        lambda f: f.noted and bool(f.overdue) and f.stoppable,
        (_DO.STOP_GUEST,),
    ),
    Rule(
        _S.SENDING,
        "noted, and the transfer exceeds a limit",
        lambda f: f.noted and bool(f.overdue),
        (_DO.REQUEST_ABORT,),
        lambda f: f.overdue,
    ),
    Rule(
        _S.SENDING,
        "noted, and the transfer is under way",
        lambda f: f.noted,
    ),
    Rule(
        _S.COMPLETING,
        "the note is of an earlier migration, and QEMU is in `finish-migrate`",
        lambda f: f.stale and f.run_state == COMPLETING,
    ),
    Rule(
        _S.STAYING,
        "the note is of an earlier migration: it failed, for this one starts here",
        lambda f: f.stale,
        (_DO.RESUME, _DO.REMOVE_NOTE),
    ),
    Rule(
        _S.FAILED,
        f"the target has not listened within {limits.PREPARE_SECONDS:.0f} s",
        lambda f: bool(f.unprepared) and not f.migration.started,
        (_DO.REPORT_FAILURE,),
        lambda f: f.unprepared,
    ),
    Rule(
        _S.PREPARING,
        "handed over by the migration controller",
        lambda f: not f.offered,
        (_DO.OFFER,),
    ),
    Rule(
        _S.OFFERED,
        "the offer is published",
        lambda f: not f.listening,
    ),
    Rule(
        _S.READY,
        "the target listens",
        lambda f: not f.migration.started,
        (_DO.WRITE_NOTE, _DO.REPORT_READY),
    ),
    Rule(
        _S.STARTING,
        "the target listens, and the instance has `startTimestamp`",
        lambda _: True,
        (_DO.WRITE_NOTE, _DO.SEND),
    ),
)

#: The states that can follow each, also after the agent was killed in it.
SOURCE_NEXT: Mapping[SourceState, tuple[SourceState, ...]] = {
    _S.PREPARING: (_S.OFFERED, _S.FAILED, _S.STAYING),
    _S.OFFERED: (_S.READY, _S.STARTING, _S.PREPARING, _S.FAILED, _S.STAYING),
    _S.READY: (_S.STARTING, _S.PREPARING, _S.FAILED, _S.STAYING),
    _S.STARTING: (_S.SENDING, _S.PREPARING, _S.FAILED, _S.STAYING),
    _S.SENDING: (_S.SENT, _S.FAILED, _S.COMPLETING, _S.STAYING),
    _S.SENT: (_S.LEFT, _S.COMPLETING, _S.STAYING),
    _S.COMPLETING: (_S.STAYING,),
    _S.FAILED: (_S.PREPARING, _S.STAYING),
    _S.STAYING: (_S.PREPARING, _S.FAILED),
    _S.LEFT: (),
}


def source(facts: SourceFacts) -> Decision[SourceState, SourceStep]:
    """Return the state of a migration's source and the steps to take."""
    return _first(SOURCE_RULES, facts)


# ---------------------------------------------------------------- target


class TargetState(Enum):
    """The states of the side that a guest comes to."""

    RESERVED = "Reserved"
    OFFERED = "Offered"
    RECEIVING = "Receiving"
    RECEIVED = "Received"
    ARRIVED = "Arrived"
    HOME = "Home"
    CANCELLED = "Cancelled"
    LOST = "Lost"
    DIED = "Died"


class TargetStep(Enum):
    """What the target can do."""

    REPORT_POD = "report the pod as running"
    START_QEMU = "start QEMU with `-S` and `-incoming`"
    LISTEN = "`migrate-incoming`, and publish the socket"
    WRITE_NOTE = "note that the guest has arrived"
    RESUME = "`cont`, unless the guest was paused at its source"
    SYNC_NOTE = "make the note survive the machine"
    REPORT_ARRIVAL = "write `completed` and the new node to the instance, in one write"
    STOP_RECEIVING = "stop receiving for good"
    RECORD_EXIT = "record the exit"
    QUIT_QEMU = "end QEMU"
    REPORT_FAILURE = "write `failed` to the instance"


#: States in which a pod's guest is still to come.
AWAITING = (
    TargetState.RESERVED,
    TargetState.OFFERED,
    TargetState.RECEIVING,
    TargetState.RECEIVED,
    TargetState.CANCELLED,
)

_T, _ACT = TargetState, TargetStep
_LET_RUN = (_ACT.RESUME, _ACT.SYNC_NOTE, _ACT.REPORT_ARRIVAL)
TARGET_RULES: tuple[Rule[PodFacts, TargetState, TargetStep], ...] = (
    Rule(
        _T.HOME,
        "the arrival is noted, and the instance names this node",
        lambda f: f.arrived and f.vmi_node == f.node,
    ),
    Rule(
        _T.DIED,
        "the arrival is noted, QEMU has exited, and the migration has ended without this node",
        lambda f: f.arrived and f.exited and f.own is not None and f.own.ended,
    ),
    Rule(
        _T.DIED,
        "the arrival is noted, and QEMU has exited",
        lambda f: f.arrived and f.exited,
        (_ACT.REPORT_ARRIVAL,),
    ),
    Rule(
        _T.ARRIVED,
        "the arrival is noted",
        lambda f: f.arrived,
        _LET_RUN,
    ),
    Rule(
        _T.LOST,
        "QEMU has exited, and no arrival is noted",
        lambda f: f.exited,
        (_ACT.REPORT_FAILURE,),
    ),
    Rule(
        _T.OFFERED,
        "no QEMU yet, the migration is wanted, and the source has published its offer",
        lambda f: not f.intended and f.wanted and f.offered,
        (_ACT.START_QEMU,),
    ),
    Rule(
        _T.CANCELLED,
        "no QEMU yet, and the instance has `abortRequested`",
        lambda f: not f.intended and f.own is not None and f.own.abort,
        (_ACT.REPORT_POD, _ACT.REPORT_FAILURE),
    ),
    Rule(
        _T.RESERVED,
        "no QEMU yet",
        lambda f: not f.intended,
        (_ACT.REPORT_POD,),
    ),
    Rule(
        _T.CANCELLED,
        "no arrival is noted, and the migration was cancelled, has ended or is another one",
        lambda f: not f.wanted,
        (_ACT.STOP_RECEIVING, _ACT.RECORD_EXIT, _ACT.QUIT_QEMU),
    ),
    Rule(
        _T.RECEIVED,
        "QEMU has the whole guest (it has left the run state `inmigrate`)",
        lambda f: f.run_state not in ("", INCOMING),
        (_ACT.WRITE_NOTE, *_LET_RUN),
    ),
    Rule(
        _T.RECEIVING,
        "QEMU runs, in the run state `inmigrate`",
        lambda _: True,
        (_ACT.LISTEN,),
    ),
)

TARGET_NEXT: Mapping[TargetState, tuple[TargetState, ...]] = {
    _T.RESERVED: (_T.OFFERED, _T.CANCELLED),
    _T.OFFERED: (_T.RECEIVING, _T.RESERVED, _T.CANCELLED),
    _T.RECEIVING: (_T.RECEIVED, _T.CANCELLED, _T.LOST),
    _T.RECEIVED: (_T.ARRIVED, _T.CANCELLED, _T.LOST),
    _T.ARRIVED: (_T.HOME, _T.DIED),
    _T.HOME: (),
    _T.CANCELLED: (_T.LOST,),
    _T.LOST: (),
    _T.DIED: (_T.HOME,),
}


def target(facts: PodFacts) -> Decision[TargetState, TargetStep]:
    """Return the state of a pod that was created to receive a guest, and the steps to take."""
    return _first(TARGET_RULES, facts)
