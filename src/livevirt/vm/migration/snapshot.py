"""A snapshot of a migration, its instance and its pods: the input of every decision."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.migration import migratability
from livevirt.vm.migration.admission import FINALIZER, PRIORITIES
from livevirt.vm.sizing import hot_change
from livevirt.vm.volumes import volume_migration

JOB_UID = migratability.JOB  # label of a target pod
JOB_NAME = "kubevirt.io/migrationJobName"  # annotation of a target pod
TARGET_NODE = "kubevirt.io/migrationTargetNodeName"  # label of a migrating instance
WORKLOAD_UPDATE = "kubevirt.io/workloadUpdateMigration"
EVACUATION = "kubevirt.io/evacuationMigration"
NO_BACK_OFF = "kubevirt.io/func-test-ignore-migration-backoff"
UNSCHEDULABLE_SECONDS = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds"
PENDING_SECONDS = "kubevirt.io/migrationPendingPodTimeoutSeconds"
MIGRATION_REQUIRED = "MigrationRequired"
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS, _LONGEST = 10, timedelta(seconds=10**9)  # 31 years: `datetime` overflows in 9999
#: Hotplug reasons a migration does not wait for: only the guest can resolve them.
_UP_TO_THE_GUEST = (hot_change.NOT_ACCEPTING, hot_change.PLUG_FAILED)


@dataclass(frozen=True, slots=True)
class MigrationState:
    """`status.migrationState` of an instance."""

    uid: str  # of the migration
    target_pod: str = ""
    source_pod: str = ""
    source_node: str = ""
    prepared: bool = False  # the target node has reported its address
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
    finalizer: bool = True  # whether it has ours
    priority: int = 0
    automatic: bool = False  # created by a controller, which creates another if it fails
    moved: bool = False  # its own status records that the guest runs on the target
    source_pod: str = ""  # as recorded at the handoff
    source_node: str = ""
    unschedulable_timeout: timedelta = timedelta(seconds=300)
    pending_timeout: timedelta = timedelta(seconds=900)

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class Instance:
    """The VirtualMachineInstance that is migrated."""

    uid: str
    node: str = ""
    phase: str = "Running"
    deleting: bool = False
    state: MigrationState | None = None
    target_label: bool = False  # whether it has the label `TARGET_NODE`
    not_migratable: str = ""  # why it cannot migrate
    copying_volume: str = ""  # a volume being copied to another claim; that cannot be interrupted
    pending_change: str = ""  # a condition that must clear before a migration of it is complete

    @property
    def final(self) -> bool:
        """Whether the guest has ended."""
        return self.phase in FINAL

    @property
    def running(self) -> bool:
        """Whether there is a guest to migrate."""
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
    unschedulable: str = ""  # why the scheduler found no node
    unschedulable_since: datetime = _LONG_AGO
    too_small: bool = False  # for the size the guest has or should have

    @property
    def ended(self) -> bool:
        """Whether it has stopped for good."""
        return self.phase in FINAL


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the decision about a migration depends on, read at one moment."""

    migration: Migration
    now: datetime
    vmi: Instance | None = None
    target: Pod | None = None
    source: Pod | None = None  # where the guest runs, or ran before it moved
    conflicting: str = ""  # another migration of the same instance, which takes precedence
    admitted: bool = False  # whether the queue lets it start now
    target_expected: bool = False  # its target pod was created and is not in the cache yet
    target_replaced: bool = False  # its target pod was too small and is deleted or being deleted
    back_off: timedelta = timedelta(0)  # how long to wait because earlier migrations failed
    retry_in: timedelta = timedelta(0)  # how long to wait because the target pod was refused
    orphaned: bool = False  # the instance's state is that of a migration that does not exist
    orphaned_target: Pod | None = None

    @property
    def state(self) -> MigrationState | None:
        """The instance's migration state if it is this migration's."""
        found = self.vmi.state if self.vmi is not None else None
        return found if found is not None and found.uid == self.migration.uid else None

    @property
    def moved(self) -> bool:
        """Whether the guest runs on the target."""
        state = self.state
        return self.migration.moved or (state is not None and state.completed)


def read_migration(obj: Object) -> Migration:
    """Read a VirtualMachineInstanceMigration."""
    meta, status = obj["metadata"], status_of(obj)
    annotations, state = meta.get("annotations") or {}, status.get("migrationState") or {}
    phase = status.get("phase") or ""
    default = Migration(meta["name"], meta["uid"])
    return Migration(
        name=meta["name"],
        uid=meta["uid"],
        phase=phase,
        created=_time(meta.get("creationTimestamp")),
        finished=_finished(status) if phase in FINAL else None,
        deleting="deletionTimestamp" in meta,
        finalizer=FINALIZER in (meta.get("finalizers") or ()),
        priority=PRIORITIES.get(obj["spec"].get("priority") or "", 0),
        automatic=(WORKLOAD_UPDATE in annotations or EVACUATION in annotations)
        and NO_BACK_OFF not in annotations,
        moved=bool(state.get("completed")),
        source_pod=state.get("sourcePod") or "",
        source_node=state.get("sourceNode") or "",
        unschedulable_timeout=_seconds(
            annotations.get(UNSCHEDULABLE_SECONDS), default.unschedulable_timeout
        ),
        pending_timeout=_seconds(annotations.get(PENDING_SECONDS), default.pending_timeout),
    )


def read_instance(vmi: Object) -> Instance:
    """Read a VirtualMachineInstance."""
    meta, status = vmi["metadata"], status_of(vmi)
    listed = status.get("conditions")
    return Instance(
        uid=meta["uid"],
        node=status.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        deleting="deletionTimestamp" in meta,
        state=read_state(status.get("migrationState")),
        target_label=TARGET_NODE in (meta.get("labels") or {}),
        not_migratable=_not_migratable(listed),
        copying_volume=", ".join(move.description for move in volume_migration.copying(vmi)),
        pending_change=_pending_change(vmi),
    )


def read_state(obj: Object | None) -> MigrationState | None:
    """Read a `migrationState`."""
    if not obj:
        return None
    return MigrationState(
        uid=obj.get("migrationUid") or "",
        target_pod=obj.get("targetPod") or "",
        source_pod=obj.get("sourcePod") or "",
        source_node=obj.get("sourceNode") or "",
        prepared=bool(obj.get("targetNodeAddress")),
        started=bool(obj.get("startTimestamp")),
        ended=_time(obj["endTimestamp"]) if obj.get("endTimestamp") else None,
        completed=bool(obj.get("completed")),
        failed=bool(obj.get("failed")),
        failure=obj.get("failureReason") or "",
        abort_requested=bool(obj.get("abortRequested")),
    )


def read_pod(obj: Object) -> Pod:
    """Read a launcher pod."""
    meta, status = obj["metadata"], status_of(obj)
    scheduled = conditions.find(status.get("conditions"), "PodScheduled") or {}
    no_node = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        node=obj["spec"].get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        created=_time(meta.get("creationTimestamp")),
        deleting="deletionTimestamp" in meta,
        unschedulable=(scheduled.get("message") or "Unschedulable") if no_node else "",
        unschedulable_since=_time(
            scheduled.get("lastTransitionTime") or meta.get("creationTimestamp")
        ),
    )


def migration_uids(pod: Object) -> list[str]:
    """Return the uid of the migration a pod is the target of, as an index takes it."""
    uid = (pod["metadata"].get("labels") or {}).get(JOB_UID)
    return [uid] if uid else []


def _not_migratable(listed: list[Object] | None) -> str:
    found = conditions.find(listed, "LiveMigratable")
    if found is None or found.get("status") != "False":
        return ""
    return f"Cannot migrate VMI, Reason: {found.get('reason')}, Message: {found.get('message')}"


def _pending_change(vmi: Object) -> str:
    """Return the change that a guest on its target still needs to complete a migration."""
    listed = status_of(vmi).get("conditions")
    changing = hot_change.under_way(vmi)
    if conditions.find(listed, hot_change.CPU) is not None:  # KubeVirt looks at its presence only
        changing = [hot_change.CPU, *changing]
    for type_ in changing:
        if hot_change.reason_of(vmi, type_) not in _UP_TO_THE_GUEST:
            return type_
    return MIGRATION_REQUIRED if conditions.is_true(listed, MIGRATION_REQUIRED) else ""


def _finished(status: Object) -> datetime:
    passed = [
        each.get("phaseTransitionTimestamp")
        for each in status.get("phaseTransitionTimestamps") or ()
        if each.get("phase") in FINAL
    ]
    return _time(passed[-1]) if passed else _LONG_AGO


def _time(text: str | None) -> datetime:
    return times.parse_time(text) if text else _LONG_AGO


def _seconds(text: str | None, default: timedelta) -> timedelta:
    """Return a number of seconds given in an annotation, the default if it is not a number."""
    if not text or not text.isdecimal():
        return default
    digits = text.lstrip("0") or "0"
    return timedelta(seconds=int(digits)) if len(digits) < _DIGITS else _LONGEST
