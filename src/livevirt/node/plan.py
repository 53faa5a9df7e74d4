"""What to do next about one pod's guest. Pure.

There is never a second QEMU for a pod: one is started only where none was, and a lock that QEMU
inherits shows whether one is there, whatever became of the process ids we knew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from livevirt.kube.objects.times import format_time
from livevirt.node import exit_record
from livevirt.node.exit_record import ExitRecord
from livevirt.qemu.lifecycle import Standing

PRESS_AGAIN = timedelta(seconds=5)  # a guest that is still booting misses the power button
LOOK_AGAIN = timedelta(milliseconds=200)

#: A pod that is to run, that is being deleted, that has ended and is kept, or that is no more.
Wanted = Literal["run", "stop", "ended", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSnapshot:
    """One pod and its process, at one moment."""

    wanted: Wanted
    now: datetime
    startable: bool = True  # its VMI is there and not being deleted
    intent: bool = False  # a start was begun
    spawned: bool = False  # and a process was made
    rebooted: bool = False  # the machine restarted since
    locked: bool = False  # a process is there
    known: bool = False  # and we know which
    standing: Standing | None = None  # QEMU's state, once it has been queried
    ending: ExitRecord | None = None  # recorded before
    oom_killed: bool = False
    complaint: str = ""
    deadline: datetime | None = None  # of a pod that is being deleted
    pressed: datetime | None = None  # when the power button last was
    awaited: bool = False  # its guest is to come from elsewhere, and has not
    unneeded: bool = False  # and will not
    left: bool = False  # its guest runs elsewhere
    noted: bool = False  # and that is written down


@dataclass(frozen=True, slots=True)
class Start:
    """Prepare everything, write the intent, then spawn."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Spawn what an earlier start intended and did not come to."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Report that the pod is ready for an incoming guest."""


@dataclass(frozen=True, slots=True)
class CallOff:
    """Have no guest come any more; if one has by now, plan again."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Record that the guest runs elsewhere: the instance has it only until the next migration."""


@dataclass(frozen=True, slots=True)
class Press:
    """Press the guest's power button."""


@dataclass(frozen=True, slots=True)
class Record:
    """Write down how the guest ended, before anything else is done about it."""

    ending: ExitRecord


@dataclass(frozen=True, slots=True)
class Quit:
    """End the process."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove sockets, cgroup and disks that end with the guest; logs stay."""


@dataclass(frozen=True, slots=True)
class Report:
    """Write the status of pod and VMI."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the pod, now that nothing of it runs."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove every file of the pod."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Come back then."""

    until: datetime


Step = (
    Start
    | Spawn
    | Stand
    | CallOff
    | Leave
    | Press
    | Record
    | Quit
    | Clean
    | Report
    | Remove
    | Forget
    | Wait
)


def plan(seen: PodSnapshot) -> list[Step]:
    """List the next steps."""
    return [Leave(), *_next(seen)] if seen.left and not seen.noted else _next(seen)


def _next(seen: PodSnapshot) -> list[Step]:
    """List them by the first rule that matches."""
    if seen.locked and not seen.known:
        return [Wait(seen.now + LOOK_AGAIN)]  # a launcher on its way to become QEMU
    if seen.locked:
        return _alive(seen)
    if seen.ending is None and seen.intent and (seen.spawned or seen.rebooted):
        what = exit_record.vanished(
            format_time(seen.now),
            oom_killed=seen.oom_killed,
            rebooted=seen.rebooted,
            complaint=seen.complaint,
        )
        return [Record(what), *_over(seen)]
    if seen.ending is not None:
        return _over(seen)
    return _never_ran(seen)


def _alive(seen: PodSnapshot) -> list[Step]:
    at = format_time(seen.now)
    if seen.ending is not None:
        return [Quit(), Wait(seen.now)]
    if seen.standing is not None and seen.standing.ended and not (seen.awaited or seen.left):
        return [Record(exit_record.of_standing(seen.standing, at)), Quit(), Wait(seen.now)]
    if seen.left and seen.wanted != "run":
        return [Record(exit_record.migrated(at)), Quit(), Wait(seen.now)]
    if seen.awaited and (seen.unneeded or seen.wanted != "run"):
        return [CallOff(), Record(exit_record.unneeded(at)), Quit(), Wait(seen.now)]
    late = seen.deadline is not None and seen.now >= seen.deadline
    if seen.wanted in ("ended", "gone") or (seen.wanted == "stop" and late):
        return [Record(exit_record.destroyed(at)), Quit(), Wait(seen.now)]
    if seen.wanted == "run":
        return [Report()]
    again = (seen.pressed or seen.now) + PRESS_AGAIN
    press: list[Step] = [] if seen.pressed and seen.now < again else [Press()]
    until = again if not press else seen.now + PRESS_AGAIN
    return [Report(), *press, Wait(min(until, seen.deadline or until))]


def _over(seen: PodSnapshot) -> list[Step]:
    match seen.wanted:
        case "run" | "ended":
            return [Clean(), Report()]
        case "stop":
            return [Clean(), Report(), Remove(), Forget()]  # what is known of it goes last
        case "gone":
            return [Clean(), Report(), Forget()]


def _never_ran(seen: PodSnapshot) -> list[Step]:
    match seen.wanted:
        case "run" if seen.intent:
            return [Spawn(), Wait(seen.now)]
        case "run" if seen.startable:
            return [Start(), Wait(seen.now)]
        case "run" if seen.awaited:
            return [Stand()]
        case "run" | "ended":
            return []  # a change of pod or VMI will wake us
        case "stop":
            return [Clean(), Remove(), Forget()]
        case "gone":
            return [Clean(), Forget()]
