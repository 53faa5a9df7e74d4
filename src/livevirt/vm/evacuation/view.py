"""What the decision about guests that must leave their node depends on, read from objects once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from livevirt.kube.control.key import Key, key_of
from livevirt.kube.objects.request import Object
from livevirt.vm.migration import migratability
from livevirt.vm.migration.request import Unfinished
from livevirt.vm.migration.turn import Limits
from livevirt.vm.verdict import edit

#: Eviction strategies under which guests are moved here; External leaves that to somebody else.
MOVED = ("LiveMigrate", "LiveMigrateIfPossible")


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest that runs, and what is known of where it is to go."""

    key: Key
    node: str
    strategy: str = "None"
    marked: str = ""  # the node that an eviction wants it to leave
    unmovable: str = ""  # why it cannot migrate
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything the decision depends on, read at one moment."""

    guests: tuple[Guest, ...] = ()
    drained: frozenset[str] = frozenset()  # nodes with the taint that makes guests leave
    migrations: tuple[Unfinished, ...] = ()  # also those that only wait
    leaving: tuple[str, ...] = ()  # the nodes that those leave which take a place
    limits: Limits = field(default_factory=Limits)


def guest(vmi: Object, usual: str) -> Guest:
    """Return the view of a guest; `usual` is the cluster's eviction strategy."""
    status = vmi.get("status") or {}
    return Guest(
        key=key_of(vmi),
        node=edit.node_of(vmi),
        strategy=vmi["spec"].get("evictionStrategy") or usual,
        marked=status.get("evacuationNodeName") or "",
        unmovable=migratability.unmovable(vmi),
        moving=migratability.moving(vmi),
    )


def runs(vmi: Object) -> bool:
    """Tell whether there is a guest to move."""
    running = (vmi.get("status") or {}).get("phase") == "Running"
    return running and "deletionTimestamp" not in vmi["metadata"]


def drained(nodes: Iterable[Object], taint: str) -> frozenset[str]:
    """Return the names of the nodes that bear a taint of that key."""
    return frozenset(
        node["metadata"]["name"]
        for node in nodes
        for each in (node.get("spec") or {}).get("taints") or ()
        if (each["key"], each["effect"]) == (taint, "NoSchedule")
    )
