"""Which guests get another pod now, and how: frozen data in, steps out; and the events about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from livevirt.kube.control.cache import Key
from livevirt.kube.control.events import Recorder
from livevirt.kube.objects.request import Object
from livevirt.vm.migration.migratability import EVICT, LIVE_MIGRATE
from livevirt.vm.migration.queue import Capacity
from livevirt.vm.migration.request import SYSTEM_CRITICAL, USER_TRIGGERED
from livevirt.vm.migration.snapshot import WORKLOAD_UPDATE
from livevirt.vm.workload_update.view import IN_PLACE_TOO, Guest, Need, WorkloadSnapshot

#: How long to wait for a full node to free capacity before the guest is migrated.
DEFERRED_TIMEOUT = timedelta(seconds=2)
#: How often capacity is looked for while no node has any.
RETRY_INTERVAL = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Migrate:
    """Create a migration."""

    guest: Key
    priority: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod: the guest ends, and its VM may start it again."""

    guest: Key
    pod: str


@dataclass(frozen=True, slots=True)
class Abort:
    """Delete a migration that is no longer needed."""

    guest: Key
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReportStuck:
    """Record why a guest whose node has too little capacity does not migrate."""

    guest: Key
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Reconcile again after that time."""

    time: timedelta


Step = Migrate | Evict | Abort | ReportStuck | Wait


def plan(seen: WorkloadSnapshot) -> list[Step]:
    """List what to do about the guests: requested changes come before outdated pods.

    The migration for a change of size is created at once: the migration queue decides when it
    starts. For outdated pods only as many are created as may start, so they block no others.
    """
    capacity = Capacity(seen.settings.limits, seen.leaving)
    steps: list[Step] = []
    evicted: list[Step] = []
    for guest in sorted(seen.guests, key=lambda each: (each.need is Need.OUTDATED, each.key)):
        if guest.called_off or not guest.changing:
            steps += _aborts(guest)
            continue
        if guest.need is None or guest.migrations or guest.moving:
            continue
        if guest.need is Need.FULL and guest.waited < DEFERRED_TIMEOUT:
            steps.append(Wait(DEFERRED_TIMEOUT - guest.waited))
        elif LIVE_MIGRATE in seen.settings.methods and not guest.hindrance:
            admitted = capacity.take(guest.node)
            if guest.need is not Need.OUTDATED:
                steps.append(Migrate(guest.key, USER_TRIGGERED))
            elif admitted:
                steps.append(Migrate(guest.key, SYSTEM_CRITICAL))
        elif guest.need in IN_PLACE_TOO:
            steps.append(ReportStuck(guest.key, guest.hindrance))
            steps += [Wait(RETRY_INTERVAL)] if LIVE_MIGRATE in seen.settings.methods else []
        elif guest.need is Need.OUTDATED and EVICT in seen.settings.methods and guest.pod:
            # Only outdated pods: a guest that waits for a size keeps running.
            evicted.append(Evict(guest.key, guest.pod))
    return [*steps, *_batch(seen, evicted)]


def _aborts(guest: Guest) -> Iterator[Step]:
    """Yield the deletion of migrations created here, unless one has moved the guest."""
    for each in guest.migrations:
        if each.has(WORKLOAD_UPDATE) and not each.deleting and each.uid != guest.arrived:
            yield Abort(guest.key, each.name, each.uid)


def _batch(seen: WorkloadSnapshot, evicted: list[Step]) -> list[Step]:
    """Return the evictions of the next batch, and the wait for the one after it.

    There is a next batch even after the last guest: an eviction may be refused.
    """
    interval, size = seen.settings.batch_interval, seen.settings.batch_size
    if not evicted or size <= 0:
        return []
    since = seen.now - seen.last_batch if seen.last_batch is not None else interval
    if since < interval:
        return [Wait(interval - since)]
    return [*evicted[:size], Wait(interval)]


def migration_created(recorder: Recorder, vmi: Object, migration: str, why: str) -> None:
    """Record that a migration was created."""
    message = f"Created migration {migration}: the guest needs {why}"
    recorder.event(vmi, "Normal", "SuccessfulCreate", message)


def migration_refused(recorder: Recorder, vmi: Object, why: str) -> None:
    """Record that the API server refused a migration."""
    recorder.event(vmi, "Warning", "FailedCreate", f"Error creating a migration: {why}")


def evicted(recorder: Recorder, vmi: Object, pod: str) -> None:
    """Record that a pod was evicted because it is outdated."""
    recorder.event(vmi, "Normal", "SuccessfulEvict", f"Evicted pod {pod}, which is outdated")


def eviction_refused(recorder: Recorder, vmi: Object, pod: str, why: str) -> None:
    """Record that a pod could not be evicted."""
    recorder.event(vmi, "Warning", "FailedEvict", f"Error evicting pod {pod}: {why}")


def migration_deleted(recorder: Recorder, vmi: Object, migration: str) -> None:
    """Record that a migration was deleted because it is no longer needed."""
    message = f"Deleted migration {migration}: the guest does not need it any more"
    recorder.event(vmi, "Normal", "SuccessfulChangeAbortion", message)


def deletion_refused(recorder: Recorder, vmi: Object, migration: str, why: str) -> None:
    """Record that a migration could not be deleted."""
    message = f"Error deleting migration {migration}: {why}"
    recorder.event(vmi, "Warning", "FailedChangeAbortion", message)


def stuck(recorder: Recorder, vmi: Object, why: str) -> None:
    """Record why a guest waits for capacity where it runs."""
    message = f"The guest waits for room where it is and does not migrate: {why}"
    recorder.event(vmi, "Warning", "NoMigration", message)
