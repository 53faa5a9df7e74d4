"""What the decision about a migration depends on, read from the objects once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm.migration import migratability
from livevirt.vm.migration.admission import FINALIZER, PRIORITIES
from livevirt.vm.sizing import hot_change

JOB_UID = migratability.JOB
JOB_NAME = "kubevirt.io/migrationJobName"  # annotation of a target pod
TARGET_NODE = "kubevirt.io/migrationTargetNodeName"  # label of an instance that is moving
WORKLOAD_UPDATE = "kubevirt.io/workloadUpdateMigration"
EVACUATION = "kubevirt.io/evacuationMigration"
NO_BACK_OFF = "kubevirt.io/func-test-ignore-migration-backoff"
UNSCHEDULABLE_SECONDS = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
PENDING_SECONDS = "kubevirt.io/migrationPendingPodTimeoutSeconds"
MIGRATION_REQUIRED = "MigrationRequired"
VOLUMES_CHANGE = "VolumesChange"  # True while a volume is copied to another claim
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS, _LONGEST = 10, timedelta(seconds=10**9)  # 31 years: a calendar ends somewhere
#: A guest that is left alone with its new size: waiting for it could take for ever.
_UP_TO_THE_GUEST = (hot_change.NOT_ACCEPTING, hot_change.PLUG_FAILED)


@dataclass(frozen=True, slots=True)
class State:
    """`status.migrationState` of an instance."""

    uid: str  # of the migration
    target_pod: str = ""
    source_pod: str = ""
    source_node: str = ""
    prepared: bool = False  # the target node has told its address
    started: bool = False
    ended: datetime | None = None
    completed: bool = False
    failed: bool = False
    failure: str = ""
    abort_requested: bool = False


@dataclass(frozen=True, slots=True)
class Migration:
    """A VirtualMachineInstanceMigration."""

    name: str
    uid: str
    phase: str = ""
    created: datetime = _LONG_AGO
    finished: datetime | None = None  # when it became final
    deleting: bool = False
    held: bool = True  # by our finalizer
    priority: int = 0
    automatic: bool = False  # asked for by a controller, which would ask again at once
    moved: bool = False  # its guest is known to have arrived
    source_pod: str = ""  # as it was handed over
    source_node: str = ""
    unschedulable_timeout: timedelta = timedelta(seconds=300)
    pending_timeout: timedelta = timedelta(seconds=900)

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class Instance:
    """The VirtualMachineInstance that moves."""

    uid: str
    node: str = ""
    phase: str = "Running"
    deleting: bool = False
    state: State | None = None
    tagged: bool = False  # with the node it moves to
    unmovable: str = ""  # why it cannot migrate
    copying: str = ""  # a volume on its way to another claim, which cannot be interrupted
    waits_for: str = ""  # a condition that must go before a migration of it is done

    @property
    def final(self) -> bool:
        """Whether the guest has ended."""
        return self.phase in FINAL

    @property
    def running(self) -> bool:
        """Whether there is a guest that can move."""
        return self.phase == "Running" and not self.deleting


@dataclass(frozen=True, slots=True)
class Pod:
    """A launcher pod of the instance."""

    name: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    created: datetime = _LONG_AGO
    deleting: bool = False
    unschedulable: str = ""  # why, where the scheduler finds no node
    unschedulable_since: datetime = _LONG_AGO
    short: bool = False  # of what the guest has or should have by now

    @property
    def ended(self) -> bool:
        """Whether nothing runs in it any more."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything the decision depends on, read at one moment."""

    migration: Migration
    now: datetime
    vmi: Instance | None = None
    target: Pod | None = None
    source: Pod | None = None  # where the guest runs, or what is left of that once it has moved
    rival: str = ""  # another migration of the same instance that goes first
    turn: bool = False  # whether the limits let it go now
    creating: bool = False  # its target pod was created and is not seen yet
    outgrown: bool = False  # its target pod is gone or goes, for it was too small
    back_off: timedelta = timedelta(0)  # how long it has to wait after others failed
    refused: timedelta = timedelta(0)  # how long to leave alone whoever refused the target pod
    stray: bool = False  # the instance is in the state of a migration that nobody works on
    stray_target: Pod | None = None

    @property
    def state(self) -> State | None:
        """The instance's migration state if it is this migration's."""
        found = self.vmi.state if self.vmi is not None else None
        return found if found is not None and found.uid == self.migration.uid else None

    @property
    def moved(self) -> bool:
        """Whether the guest has arrived."""
        state = self.state
        return self.migration.moved or (state is not None and state.completed)


def migration(obj: Object) -> Migration:
    """Return the view of a migration."""
    meta, status = obj["metadata"], obj.get("status") or {}
    annotations, state = meta.get("annotations") or {}, status.get("migrationState") or {}
    phase = status.get("phase") or ""
    usual = Migration(meta["name"], meta["uid"])
    return Migration(
        name=meta["name"],
        uid=meta["uid"],
        phase=phase,
        created=_time(meta.get("creationTimestamp")),
        finished=_finished(status) if phase in FINAL else None,
        deleting="deletionTimestamp" in meta,
        held=FINALIZER in (meta.get("finalizers") or ()),
        priority=PRIORITIES.get(obj["spec"].get("priority") or "", 0),
        automatic=(WORKLOAD_UPDATE in annotations or EVACUATION in annotations)
        and NO_BACK_OFF not in annotations,
        moved=bool(state.get("completed")),
        source_pod=state.get("sourcePod") or "",
        source_node=state.get("sourceNode") or "",
        unschedulable_timeout=_seconds(
            annotations.get(UNSCHEDULABLE_SECONDS), usual.unschedulable_timeout
        ),
        pending_timeout=_seconds(annotations.get(PENDING_SECONDS), usual.pending_timeout),
    )


def instance(vmi: Object) -> Instance:
    """Return the view of an instance."""
    meta, status = vmi["metadata"], vmi.get("status") or {}
    listed = status.get("conditions")
    copying = conditions.find(listed, VOLUMES_CHANGE) or {}
    return Instance(
        uid=meta["uid"],
        node=status.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        deleting="deletionTimestamp" in meta,
        state=state(status.get("migrationState")),
        tagged=TARGET_NODE in (meta.get("labels") or {}),
        unmovable=_unmovable(listed),
        copying=copying.get("message") or VOLUMES_CHANGE if copying.get("status") == "True" else "",
        waits_for=_waits_for(listed),
    )


def state(told: Object | None) -> State | None:
    """Return the view of a `migrationState`."""
    if not told:
        return None
    return State(
        uid=told.get("migrationUid") or "",
        target_pod=told.get("targetPod") or "",
        source_pod=told.get("sourcePod") or "",
        source_node=told.get("sourceNode") or "",
        prepared=bool(told.get("targetNodeAddress")),
        started=bool(told.get("startTimestamp")),
        ended=_time(told["endTimestamp"]) if told.get("endTimestamp") else None,
        completed=bool(told.get("completed")),
        failed=bool(told.get("failed")),
        failure=told.get("failureReason") or "",
        abort_requested=bool(told.get("abortRequested")),
    )


def pod(obj: Object) -> Pod:
    """Return the view of a launcher pod."""
    meta, status = obj["metadata"], obj.get("status") or {}
    scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
    waits = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        node=obj["spec"].get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        created=_time(meta.get("creationTimestamp")),
        deleting="deletionTimestamp" in meta,
        unschedulable=(scheduled.get("message") or "Unschedulable") if waits else "",
        unschedulable_since=_time(
            scheduled.get("lastTransitionTime") or meta.get("creationTimestamp")
        ),
    )


def jobs(pod: Object) -> list[str]:
    """Return the uid of the migration a pod is the target of, if it is one."""
    uid = (pod["metadata"].get("labels") or {}).get(JOB_UID)
    return [uid] if uid else []


def _unmovable(listed: list[Object] | None) -> str:
    found = conditions.find(listed, "LiveMigratable")
    if found is None or found.get("status") != "False":
        return ""
    return f"Cannot migrate VMI, Reason: {found.get('reason')}, Message: {found.get('message')}"


def _waits_for(listed: list[Object] | None) -> str:
    """Return what a guest still needs on its target before its migration has done its work."""
    for type_ in (hot_change.CPU, hot_change.MEMORY_TYPE, MIGRATION_REQUIRED):
        found = conditions.find(listed, type_)
        if found is None or found.get("reason") in _UP_TO_THE_GUEST:
            continue
        # KubeVirt looks at the presence of the first, and at the status of the others.
        if type_ == hot_change.CPU or found.get("status") == "True":
            return type_
    return ""


def _finished(status: Object) -> datetime:
    passed = [
        each.get("phaseTransitionTimestamp")
        for each in status.get("phaseTransitionTimestamps") or ()
        if each.get("phase") in FINAL
    ]
    return _time(passed[-1]) if passed else _LONG_AGO


def _time(text: str | None) -> datetime:
    return times.parse_time(text) if text else _LONG_AGO


def _seconds(text: str | None, usual: timedelta) -> timedelta:
    """Return a number of seconds given in an annotation; what is no number counts as not given."""
    if not text or not text.isdecimal():
        return usual
    digits = text.lstrip("0") or "0"
    return timedelta(seconds=int(digits)) if len(digits) < _DIGITS else _LONGEST
