"""Which guests are migrated off their nodes now: frozen data in, steps out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from livevirt.kube.control.cache import Key, key_of
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.migration import migratability
from livevirt.vm.migration.queue import Capacity, Limits
from livevirt.vm.migration.request import Unfinished

#: Eviction strategies under which guests are migrated here; External leaves it to someone else.
MIGRATED = ("LiveMigrate", "LiveMigrateIfPossible")


@dataclass(frozen=True, slots=True)
class Guest:
    """A running guest, and what is known of where it should run."""

    key: Key
    node: str
    strategy: str = "None"
    evacuated_from: str = ""  # `status.evacuationNodeName`: the node an eviction wants it to leave
    not_migratable: str = ""  # why it cannot migrate
    migrating: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the decision about evacuations depends on, read at one moment."""

    guests: tuple[Guest, ...] = ()
    drained: frozenset[str] = frozenset()  # nodes with the drain taint
    migrations: tuple[Unfinished, ...] = ()  # all unfinished ones, also those in the queue
    active: tuple[str, ...] = ()  # the source nodes of the migrations that count to the limits
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Migrate:
    """Create a migration away from that node."""

    guest: Key
    node: str


@dataclass(frozen=True, slots=True)
class ClearEvacuation:
    """Clear `status.evacuationNodeName`: the guest has left that node."""

    guest: Key
    node: str


@dataclass(frozen=True, slots=True)
class ReportStuck:
    """Record why a guest cannot leave a node that is drained."""

    guest: Key
    why: str


Step = Migrate | ClearEvacuation | ReportStuck


def plan(snapshot: Snapshot) -> list[Step]:
    """List what to do for guests that must leave, as many in parallel as may migrate."""
    capacity = Capacity(snapshot.limits, snapshot.active)
    migrating = {each.vmi for each in snapshot.migrations}
    steps: list[Step] = []
    for guest in sorted(snapshot.guests, key=lambda each: each.key):
        if guest.evacuated_from and guest.evacuated_from != guest.node:
            steps.append(ClearEvacuation(guest.key, guest.evacuated_from))
        if not _must_leave(guest, snapshot) or guest.key in migrating or guest.migrating:
            continue
        if guest.not_migratable:
            if guest.strategy == "LiveMigrate":  # the others may be evicted
                steps.append(ReportStuck(guest.key, guest.not_migratable))
        elif capacity.take(guest.node):
            steps.append(Migrate(guest.key, guest.node))
    return steps


def read_guest(vmi: Object, default_strategy: str) -> Guest:
    """Read an instance; the default is the cluster's eviction strategy."""
    status = status_of(vmi)
    return Guest(
        key=key_of(vmi),
        node=migratability.node_of(vmi),
        strategy=vmi["spec"].get("evictionStrategy") or default_strategy,
        evacuated_from=status.get("evacuationNodeName") or "",
        not_migratable=migratability.unmovable(vmi),
        migrating=migratability.moving(vmi),
    )


def is_running(vmi: Object) -> bool:
    """Return whether there is a guest to migrate."""
    running = status_of(vmi).get("phase") == "Running"
    return running and "deletionTimestamp" not in vmi["metadata"]


def drained(nodes: Iterable[Object], taint: str) -> frozenset[str]:
    """Return the names of the nodes that have a taint of that key."""
    return frozenset(
        node["metadata"]["name"]
        for node in nodes
        for each in (node.get("spec") or {}).get("taints") or ()
        if (each["key"], each["effect"]) == (taint, "NoSchedule")
    )


def _must_leave(guest: Guest, snapshot: Snapshot) -> bool:
    if not guest.node or guest.strategy not in MIGRATED:
        return False
    return guest.evacuated_from == guest.node or guest.node in snapshot.drained
