"""How long instances and migrations take from phase to phase, counted as their objects change.

Timestamps of the API have whole seconds only, and a guest starts in less than one. So what changes
before our eyes is measured by the clock; only what happened earlier is read from the object.
"""

from __future__ import annotations

from dataclasses import dataclass

from livevirt.kube.control.cache import Change
from livevirt.kube.control.metrics import Family, Histogram, Sample
from livevirt.kube.objects import times
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of

BETWEEN = Family(
    "kubevirt_vmi_phase_transition_time_seconds", "histogram",
    "Time an instance took from one phase (`last_phase`) to the next.", ("phase", "last_phase"),
)  # fmt: skip
FROM_CREATION = Family(
    "kubevirt_vmi_phase_transition_time_from_creation_seconds", "histogram",
    "Time an instance took from its creation to a phase.", ("phase",),
)  # fmt: skip
FROM_DELETION = Family(
    "kubevirt_vmi_phase_transition_time_from_deletion_seconds", "histogram",
    "Time an instance took from its deletion to its last phase.", ("phase",),
)  # fmt: skip
MIGRATION = Family(
    "kubevirt_vmi_migration_phase_transition_time_from_creation_seconds", "histogram",
    "Time a migration took from its creation to a phase.", ("phase",),
)  # fmt: skip
RESULTS = Family(
    "livevirt_migrations_total", "counter",
    "Migrations that ended since the server started, by result.", ("result",),
)  # fmt: skip
FAMILIES = (BETWEEN, FROM_CREATION, FROM_DELETION, MIGRATION, RESULTS)

_JUST_NOW = 2.0  # seconds; younger objects are taken to be created when they are first seen


@dataclass(slots=True)
class _Track:
    """What is known of one object; times are seconds of the clock."""

    created: float
    entered: float | None  # the phase it is in; None: before we looked
    deleted: float | None = None


class Phases:
    """Follows instances and migrations; `at` is the time of the change."""

    def __init__(self) -> None:
        self._between, self._creation = Histogram(BETWEEN), Histogram(FROM_CREATION)
        self._deletion, self._migration = Histogram(FROM_DELETION), Histogram(MIGRATION)
        self._results = {"succeeded": 0, "failed": 0}
        self._tracks: dict[str, _Track] = {}

    def instance_changed(self, change: Change, at: float) -> None:
        """Take note of a change of an instance."""
        moved = self._moved(change, at)
        if moved is None or change.new is None:
            return
        track, old, new = moved
        self._creation.observe((new,), at - track.created)
        since = track.entered if old else track.created
        if since is not None:
            self._between.observe((new, old), at - since)
        if new in FINAL and track.deleted is not None:
            self._deletion.observe((new,), at - track.deleted)
        track.entered = at

    def migration_changed(self, change: Change, at: float) -> None:
        """Take note of a change of a migration."""
        moved = self._moved(change, at)
        if moved is None:
            return
        track, _, new = moved
        self._migration.observe((new,), at - track.created)
        if new in ("Succeeded", "Failed"):
            self._results[new.lower()] += 1

    def samples(self) -> list[Sample | Histogram]:
        """Return everything counted so far."""
        results = [Sample(RESULTS, (name,), number) for name, number in self._results.items()]
        return [self._between, self._creation, self._deletion, self._migration, *results]

    def _moved(self, change: Change, at: float) -> tuple[_Track, str, str] | None:
        """Return an object that changed its phase, with the old and the new one."""
        if change.new is None:
            self._tracks.pop(change.old["metadata"]["uid"], None) if change.old else None
            return None
        uid = change.new["metadata"]["uid"]
        track = self._tracks.get(uid)
        if track is None:
            track = self._tracks[uid] = _Track(_created(change.new, at), None)
        if track.deleted is None and "deletionTimestamp" in change.new["metadata"]:
            track.deleted = at if change.old is not None else None
        old, new = _phase(change.old), _phase(change.new)
        return (track, old, new) if change.old is not None and old != new else None


def _phase(obj: Object | None) -> str:
    return status_of(obj).get("phase") or ""


def _created(obj: Object, at: float) -> float:
    written = times.parse_time(obj["metadata"]["creationTimestamp"]).timestamp()
    return at if at - written < _JUST_NOW else written
