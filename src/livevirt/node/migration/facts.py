"""What decides about a pod's part in migrations, and which side of one it is on. Pure.

The facts are the instance's `status.migrationState`, the pod's notes on disk, and whether its QEMU
is there. `states` adds what each side asks QEMU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.times import parse_time
from livevirt.node.migration.handover import Departure


@dataclass(frozen=True, slots=True)
class Migration:
    """The instance's current or last migration."""

    uid: str
    source_pod: str = ""
    target_pod: str = ""
    started: bool = False  # the source sends the guest
    abort: bool = False  # it was asked to be cancelled
    failed: bool = False
    ended: bool = False  # it failed, or the guest has arrived
    completed: bool = False  # the guest has arrived
    settings: Object = field(default_factory=dict)
    since: datetime | None = None  # when the source started to send

    @property
    def wanted(self) -> bool:
        """Whether the guest should still move."""
        return not (self.abort or self.ended)

    @property
    def sending(self) -> bool:
        """Whether the guest is being sent, or was sent and has not been reported by the target."""
        return self.started and not self.ended


def migration_of(vmi: Object | None) -> Migration | None:
    """Return the migration that an instance's status describes, if there is one."""
    state = status_of(vmi).get("migrationState") or {}
    if not state:
        return None
    return Migration(
        uid=state.get("migrationUid", ""),
        source_pod=state.get("sourcePod") or "",
        target_pod=state.get("targetPod") or "",
        started=bool(state.get("startTimestamp")),
        abort=bool(state.get("abortRequested")),
        failed=bool(state.get("failed")),
        ended=bool(state.get("endTimestamp")),
        completed=bool(state.get("completed")),
        settings=state.get("migrationConfiguration") or {},
        since=parse_time(state["startTimestamp"]) if state.get("startTimestamp") else None,
    )


class Side(Enum):
    """The side of a migration that a pod is on."""

    NONE = "none"
    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What a node knows about one pod's part in migrations, read at one moment."""

    pod: str
    node: str = ""
    migration: Migration | None = None  # the instance's, whether this pod takes part or not
    vmi_node: str = ""  # where the guest runs by the instance's status
    reserved: bool = False  # the pod was created to receive a guest
    incoming: str = ""  # the migration its QEMU was started for, by uid
    intended: bool = False  # a QEMU was started, or is about to be
    exited: bool = False  # and has ended
    arrived: bool = False  # note: the guest has arrived here
    departure: Departure | None = None  # note: the guest is being sent
    left: bool = False  # note: the guest runs on another node
    offered: bool = False  # the source has published which machine can receive the guest
    run_state: str = ""  # of QEMU, where it was asked

    @property
    def own(self) -> Migration | None:
        """The instance's migration, if this pod is its source or target."""
        found = self.migration
        return found if found and self.pod in (found.source_pod, found.target_pod) else None

    @property
    def wanted(self) -> bool:
        """Whether this pod takes part in a migration that should still happen."""
        return self.own is not None and self.own.wanted


def side(facts: PodFacts) -> Side:
    """Return which side of a migration a pod is on; nothing else decides this.

    The instance names both pods. Where it names others or none, the notes decide: the end of an
    earlier migration has not been handled yet, or there is no server to ask.
    """
    own = facts.own
    if own is not None:
        return Side.SOURCE if own.source_pod == facts.pod else Side.TARGET
    if facts.reserved and not facts.arrived:
        return Side.TARGET
    return Side.SOURCE if facts.departure is not None or facts.left else Side.NONE


def has_left(facts: PodFacts) -> bool:
    """Return whether the pod's guest is known to run on another node."""
    found = facts.migration
    if facts.left or found is None:
        return facts.left
    if found.source_pod == facts.pod:
        return facts.intended and found.completed and facts.vmi_node != facts.node
    # A later migration that starts elsewhere: the guest of the noted one has arrived.
    return facts.departure is not None and found.uid not in ("", facts.departure.uid)


def is_leaving(facts: PodFacts) -> bool:
    """Return whether the pod's guest is about to move away, or may have by now."""
    if facts.left or side(facts) is not Side.SOURCE:
        return False
    own = facts.own
    return facts.departure is not None or (own is not None and not own.ended)


def is_home(facts: PodFacts) -> bool:
    """Return whether the guest runs in this pod, so that its node reports the instance's status."""
    here = facts.vmi_node in ("", facts.node)
    return here and not facts.left and (facts.arrived or not facts.reserved)


def may_run_elsewhere(facts: PodFacts) -> bool:
    """Return whether the guest of a QEMU that has ended may still run in another one."""
    if facts.left or (facts.reserved and not facts.arrived):
        return True
    if not facts.arrived and facts.vmi_node not in ("", facts.node):
        return True
    own = facts.own
    return own is not None and side(facts) is Side.SOURCE and own.sending
