"""A migration of a VM's guest as its owner sees it: where it stands, how it ended, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from livevirt.cli.vm.objects import status_of
from livevirt.kube.objects import conditions
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object

#: Conditions that say why a migration is not started yet.
_HELD_UP = (
    "migrationRejectedByResourceQuota",
    "migrationBlockedByUtilityVolumes",
    "migrationBlockedByBackup",
    "migrationBlockedByVolumesChange",
)


class Outcome(Enum):
    """Where a migration can end."""

    MOVED = "the guest is on the target"
    CANCELLED = "it was called off"
    FAILED = "it failed"


@dataclass(frozen=True, slots=True)
class View:
    """A migration as it was seen last, and its target pod while there is one."""

    migration: Object
    source: str = ""  # the node it began on
    pod: Object | None = None
    gone: bool = False  # the migration is deleted

    @property
    def name(self) -> str:
        """The name of the migration."""
        return str(self.migration["metadata"]["name"])

    @property
    def vm(self) -> str:
        """The name of the VM."""
        return str(self.migration["spec"]["vmiName"])

    @property
    def phase(self) -> str:
        """The phase, empty at first."""
        return str(status_of(self.migration).get("phase") or "")

    @property
    def progress(self) -> Object:
        """What the nodes tell of the migration, once it was handed to them."""
        return status_of(self.migration).get("migrationState") or {}

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to stop: deleting a migration is the way to."""
        return self.gone or "deletionTimestamp" in self.migration["metadata"]


def unfinished(migrations: Iterable[Object], vm: str) -> list[Object]:
    """List the migrations of a VM that have not ended."""
    return [
        each
        for each in migrations
        if each["spec"].get("vmiName") == vm and status_of(each).get("phase") not in FINAL
    ]


def outcome(view: View) -> Outcome | None:
    """Return how a migration ended; None while it goes on."""
    if view.phase == "Succeeded":
        return Outcome.MOVED
    if view.gone or (view.phase == "Failed" and view.cancelled):
        return Outcome.CANCELLED
    return Outcome.FAILED if view.phase == "Failed" else None


def state(view: View) -> str:
    """Return in a line where a migration stands."""
    target, news = _target(view), _news(view)
    where = f"{_source(view)} -> {target}" if target else f"on {_source(view)}"
    return f"{view.phase or 'accepted'}, {where}{f': {news}' if news else ''}"


def told(view: View, end: Outcome, vmi: Object | None, namespace: str) -> str:
    """Return the sentence on how a migration ended; `vmi` is the instance after it."""
    match end:
        case Outcome.MOVED:
            return f"VM {view.vm} moved from {_source(view)} to {_target(view) or node(vmi)}"
        case Outcome.CANCELLED:
            return f"the migration of VM {view.vm} was cancelled; {_whereabouts(vmi)}"
        case Outcome.FAILED:
            why = view.progress.get("failureReason") or _held_up(view) or "no reason was given"
            return (
                f"VM {view.vm} was not migrated: {why}; {_whereabouts(vmi)}; see"
                f" `kubectl describe vmim {view.name} -n {namespace}`,"
                f" try again with `virtctl migrate {view.vm} -n {namespace}`"
            )


def too_slow(view: View, seconds: float, namespace: str) -> str:
    """Return the sentence on a migration that was not waited for any longer."""
    options = f"{view.vm} -n {namespace}"
    return (
        f"VM {view.vm} still migrates after {seconds:g} s ({state(view)}), and goes on; watch it"
        f" with `virtctl migrate {options} --wait`, stop it with `virtctl migrate-cancel {options}`"
    )


def node(vmi: Object | None) -> str:
    """Return the node an instance is on."""
    return str(status_of(vmi).get("nodeName") or "")


def _source(view: View) -> str:
    return str(view.progress.get("sourceNode") or view.source)


def _target(view: View) -> str:
    return str(view.progress.get("targetNode") or _spec(view.pod).get("nodeName") or "")


def _news(view: View) -> str:
    """Return what there is to know beside the phase."""
    if view.progress.get("completed"):
        return "the guest has arrived"
    if view.cancelled or view.progress.get("abortRequested"):
        return "it is being stopped"
    return _held_up(view)


def _held_up(view: View) -> str:
    """Return why the migration does not begin: a quota, or no node for the target."""
    listed = status_of(view.migration).get("conditions")
    for type_ in _HELD_UP:
        if conditions.is_true(listed, type_):
            return str((conditions.find(listed, type_) or {}).get("message") or type_)
    scheduled = conditions.find(status_of(view.pod).get("conditions"), "PodScheduled") or {}
    return str(scheduled.get("message") or "") if scheduled.get("status") == "False" else ""


def _whereabouts(vmi: Object | None) -> str:
    if status_of(vmi).get("phase") in (None, "", *FINAL):
        return "its guest does not run"
    return f"the guest runs on {node(vmi)}"


def _spec(obj: Object | None) -> Object:
    return (obj or {}).get("spec") or {}
