"""What the decision about guests that need another pod depends on, read from the objects once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.objects import conditions, times
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.migration import migratability
from livevirt.vm.migration.queue import Limits
from livevirt.vm.migration.request import Unfinished
from livevirt.vm.sizing import hot_change

#: Of an instance: nothing is to be done to it, and what is being done is to be cancelled.
CALLED_OFF = "kubevirt.io/testWorkloadUpdateMigrationAbortion"
_MIGRATION_REQUIRED = "MigrationRequired"
#: A second pod takes even more of a quota, and meets the same limit range.
_NEVER = (hot_change.OVER_QUOTA, hot_change.OVER_LIMIT_RANGE)


class Need(Enum):
    """Why a guest needs another pod."""

    SIZE = "a size that a pod cannot get where it is"
    TOO_SMALL = "a node that is larger"
    FULL = "a node with room"  # or room on its own, which may come
    MOVE = "another node"
    OUTDATED = "a pod of this version"


#: Needs that are met in place as soon as there is room.
IN_PLACE_TOO = (Need.TOO_SMALL, Need.FULL)
_BY_REASON = {
    hot_change.WAITING_FOR_MIGRATION: Need.SIZE,
    hot_change.INFEASIBLE: Need.TOO_SMALL,
    hot_change.DEFERRED: Need.FULL,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How guests may be given other pods."""

    methods: frozenset[str] = frozenset()
    batch_size: int = 10
    batch_interval: timedelta = timedelta(minutes=1)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest that needs another pod, or did when a migration was asked for."""

    key: Key
    uid: str
    need: Need | None = None
    node: str = ""
    changing: bool = True  # whether it still is to become what the migration is for
    hindrance: str = ""  # why it may not migrate
    called_off: bool = False
    moving: bool = False
    arrived: str = ""  # the uid of the migration that has brought it to where it is
    migrations: tuple[Unfinished, ...] = ()
    pod: str = ""  # that could be evicted
    waited: timedelta = timedelta(0)  # since it has that need


@dataclass(frozen=True, slots=True)
class WorkloadSnapshot:
    """Everything the decision depends on, read at one moment."""

    guests: tuple[Guest, ...]
    settings: Settings
    leaving: tuple[str, ...]  # the nodes that the migrations leave which take a place
    now: datetime
    last_batch: datetime | None = None  # of evictions


def settings(kubevirt: Object, limits: Limits) -> Settings:
    """Return the settings in the KubeVirt object."""
    spec, usual = kubevirt.get("spec") or {}, Settings()
    given = spec.get("workloadUpdateStrategy") or {}
    size, interval = given.get("batchEvictionSize"), given.get("batchEvictionInterval")
    return Settings(
        frozenset(given.get("workloadUpdateMethods") or ()),
        usual.batch_size if size is None else size,
        times.parse_duration(interval) if interval else usual.batch_interval,
        limits,
    )


def need(vmi: Object, image: str = launcher.IMAGE) -> Need | None:
    """Return why a running guest needs another pod, None if it does not.

    `image` is that of new pods, here and below.
    """
    status = status_of(vmi)
    if status.get("phase") != "Running" or "deletionTimestamp" in vmi["metadata"]:
        return None
    listed = status.get("conditions")
    found = {hot_change.reason_of(vmi, type_) for type_ in hot_change.under_way(vmi)}
    if not found & {*_NEVER}:
        for reason, why in _BY_REASON.items():
            if reason in found:
                return why
    if conditions.is_true(listed, _MIGRATION_REQUIRED):
        return Need.MOVE
    return Need.OUTDATED if outdated(vmi, image) else None


def changing(vmi: Object, image: str = launcher.IMAGE) -> bool:
    """Return whether a guest is still to change, in its pod or in another one."""
    listed = status_of(vmi).get("conditions")
    return (
        bool(hot_change.under_way(vmi))
        or conditions.is_true(listed, _MIGRATION_REQUIRED)
        or outdated(vmi, image)
    )


def outdated(vmi: Object, image: str) -> bool:
    """Return whether a guest runs in a pod of another version."""
    own = status_of(vmi).get("launcherContainerImageVersion")
    return bool(own) and own != image


def called_off(vmi: Object) -> bool:
    """Return whether updates of a guest are cancelled."""
    return CALLED_OFF in (vmi["metadata"].get("annotations") or {})


def guest(
    vmi: Object,
    migrations: tuple[Unfinished, ...],
    *,
    hindrance: str = "",
    pod: str = "",
    waited: timedelta = timedelta(0),
    image: str = launcher.IMAGE,
) -> Guest:
    """Return the view of a guest."""
    state = status_of(vmi).get("migrationState") or {}
    return Guest(
        key=key_of(vmi),
        uid=vmi["metadata"]["uid"],
        need=need(vmi, image),
        node=migratability.node_of(vmi),
        changing=changing(vmi, image),
        hindrance=hindrance,
        called_off=called_off(vmi),
        moving=migratability.moving(vmi),
        arrived=state.get("migrationUid", "") if state.get("completed") else "",
        migrations=migrations,
        pod=pod,
        waited=waited,
    )
