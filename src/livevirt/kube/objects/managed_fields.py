"""Who owns which fields of an object: `metadata.managedFields`, and server-side apply.

An update owns what it changes and takes that from everybody else. An apply owns what its
configuration has: it is refused where that would change a field of another manager, unless it is
forced, and what its last configuration had and has no owner any more is removed. An object without
entries was created by an earlier release or was reset: it is tracked from its next apply on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from livevirt.kube.objects import apply as values
from livevirt.kube.objects import field_sets
from livevirt.kube.objects.apply import Comparison
from livevirt.kube.objects.field_sets import LEAF, FieldSet
from livevirt.kube.objects.merge_types import MergeType
from livevirt.kube.objects.request import Object

Entry = dict[str, Any]

UPDATE, APPLY = "Update", "Apply"
_MOST_UPDATERS = 10
_OLD_UPDATES = "ancient-changes"
_BEFORE_APPLY = "before-first-apply"
_NO_METADATA: FieldSet = {"f:metadata": LEAF}
_NOTHING = Comparison(LEAF, LEAF)


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that the fields of an object are written in."""

    type_of: Callable[[str], MergeType | None]  # of an apiVersion; None for one that is unknown
    convert: Callable[[Object, str], Object]  # an object to an apiVersion
    empty: Object  # what a new object is compared with


@dataclass(frozen=True, slots=True)
class Writer:
    """One write: by whom, in which version, to which subresource and when."""

    manager: str
    api_version: str
    subresource: str
    time: str
    #: Fields that the subresource does not write, with everything below them.
    ignored: FieldSet

    def entry(self, operation: str, fields: FieldSet, time: str | None = None) -> Entry:
        """Return the entry of this write."""
        found: Entry = {
            "manager": self.manager or "unknown",
            "operation": operation,
            "apiVersion": self.api_version,
        }
        if time:
            found["time"] = time
        found["fieldsType"] = "FieldsV1"
        found["fieldsV1"] = fields
        if self.subresource:
            found["subresource"] = self.subresource
        return found


class Conflict(NamedTuple):
    """A field that an apply would change and another manager owns."""

    entry: Entry
    path: field_sets.Path


class Conflicts(Exception):
    """An apply would change fields of other managers."""

    def __init__(self, found: list[Conflict]) -> None:
        super().__init__(f"{len(found)} conflicts")
        self.found = found


def is_reset(entries: Any) -> bool:
    """Return whether a write asks to forget all owners: an empty list, or one empty entry."""
    return isinstance(entries, list) and entries in ([], [{}])


def usable(entries: Any) -> list[Entry]:
    """Return the entries of an object from outside; none if one of them cannot be read."""
    if not isinstance(entries, list):
        return []
    for entry in entries:
        known = (
            isinstance(entry, dict)
            and entry.get("operation") in (UPDATE, APPLY)
            and entry.get("apiVersion")
            and entry.get("fieldsType") == "FieldsV1"
        )
        if not known or not field_sets.is_set(entry.get("fieldsV1", LEAF)):
            return []
    return entries


def updated(
    versions: Versions, old: Object, new: Object, entries: list[Entry], writer: Writer
) -> list[Entry]:
    """Return the entries after a write that is not an apply."""
    compared = _Compared(versions, old, new, writer.ignored)
    change = compared.at(writer.api_version)
    if change is None or change == _NOTHING:
        return entries
    if not entries:
        return [writer.entry(UPDATE, change.changed, writer.time)] if change.changed else []
    own = writer.entry(UPDATE, change.changed, writer.time)
    mine = _identity(own)
    before = next((each for each in entries if _identity(each) == mine), None)
    kept = _without(compared, [each for each in entries if each is not before])
    if before is not None:
        fields = before.get("fieldsV1", LEAF)
        if change.removed:
            fields = field_sets.difference(fields, change.removed)
        own["fieldsV1"] = field_sets.union(fields, change.changed)
        if not change.changed and "time" in before:
            own["time"] = before["time"]
    if own["fieldsV1"]:
        kept.append(own)
    return _sorted(_capped(kept))


def applied(
    versions: Versions, live: Object, config: Object, entries: list[Entry], writer: Writer,
    force: bool,
) -> tuple[Object, list[Entry]]:  # fmt: skip
    """Return a live object with a configuration applied to it, and the entries after that.

    Raises Conflicts. `live` has only empty metadata where there is no object yet.
    """
    type_ = versions.type_of(writer.api_version)
    assert type_ is not None
    if not entries:
        entries = _before_apply(versions, live, writer)
    fields = field_sets.without_trees(values.fields_of(type_, config), writer.ignored)
    own = writer.entry(APPLY, field_sets.difference(fields, _NO_METADATA))
    mine = _identity(own)
    last = next((each for each in entries if _identity(each) == mine), None)
    others = [each for each in entries if each is not last]
    merged = values.merge(type_, live, config)
    if last is not None:
        merged = _prune(versions, merged, last, [own, *others], writer)
    compared = _Compared(versions, live, merged, writer.ignored)
    found = [
        Conflict(entry, path)
        for entry in others
        for path in field_sets.paths(_conflicting(compared, entry))
    ]
    if found and not force:
        raise Conflicts(found)
    kept = _without(compared, others)
    if own["fieldsV1"]:
        time = writer.time if merged != live else (last or {}).get("time")
        kept.append(writer.entry(APPLY, own["fieldsV1"], time))
    return merged, _sorted(kept)


def same_but_times(new: Iterable[Entry], old: Iterable[Entry]) -> bool:
    """Return whether two lists of entries differ in nothing but their times."""
    return [{**each, "time": ""} for each in new] == [{**each, "time": ""} for each in old]


def agreed_fields(type_: MergeType, config: Object, live: Object) -> FieldSet:
    """Return the fields of a configuration that a live object still has as they were applied."""
    change = values.compare(type_, config, live)
    fields = values.fields_of(type_, config)
    return field_sets.difference(field_sets.difference(fields, change.changed), change.removed)


class _Compared:
    """Compares two objects once in each version that is asked for."""

    def __init__(self, versions: Versions, old: Object, new: Object, ignored: FieldSet) -> None:
        self._versions, self._old, self._new, self._ignored = versions, old, new, ignored
        self._found: dict[str, Comparison | None] = {}

    def at(self, api_version: str) -> Comparison | None:
        """Return the comparison in a version; None if the version is unknown."""
        if api_version not in self._found:
            type_ = self._versions.type_of(api_version)
            self._found[api_version] = None if type_ is None else self._compare(type_, api_version)
        return self._found[api_version]

    def _compare(self, type_: MergeType, api_version: str) -> Comparison:
        convert = self._versions.convert
        found = values.compare(
            type_, convert(self._old, api_version), convert(self._new, api_version)
        )
        if not self._ignored:
            return found
        return Comparison(
            field_sets.without_trees(found.changed, self._ignored),
            field_sets.without_trees(found.removed, self._ignored),
        )


def _identity(entry: Entry) -> tuple[Any, ...]:
    """Return what makes two entries one: an applier keeps its entry in every version."""
    operation = entry.get("operation")
    version = "" if operation == APPLY else entry.get("apiVersion")
    return entry.get("manager"), operation, version, entry.get("subresource", "")


def _conflicting(compared: _Compared, entry: Entry) -> FieldSet:
    change = compared.at(entry.get("apiVersion", ""))
    if change is None:
        return LEAF
    return field_sets.intersection(entry.get("fieldsV1", LEAF), change.changed)


def _without(compared: _Compared, entries: list[Entry]) -> list[Entry]:
    """Return the entries without what a write changed and removed; empty ones vanish."""
    kept = []
    for entry in entries:
        change = compared.at(entry.get("apiVersion", ""))
        if change is None:
            continue
        fields = left = entry.get("fieldsV1", LEAF)
        for gone in change:
            if not left.keys().isdisjoint(gone):
                left = field_sets.difference(left, gone)
        if left is fields or left == fields:
            kept.append(entry)
        elif left:
            kept.append({**entry, "fieldsV1": left})
    return kept


def _before_apply(versions: Versions, live: Object, writer: Writer) -> list[Entry]:
    """Return the entry of everything that was there before an object's first apply."""
    earlier = replace(writer, manager=_BEFORE_APPLY)
    return updated(versions, versions.empty, live, [], earlier)


def _prune(
    versions: Versions, merged: Object, last: Entry, entries: list[Entry], writer: Writer
) -> Object:
    """Remove what the last configuration of an applier had and has no owner any more."""
    version, fields = last["apiVersion"], last.get("fieldsV1", LEAF)
    type_ = versions.type_of(version)
    if type_ is None or not fields:
        return merged
    owned: dict[str, FieldSet] = {version: LEAF}
    for entry in entries:
        at = entry.get("apiVersion", "")
        owned[at] = field_sets.union(owned.get(at, LEAF), entry.get("fieldsV1", LEAF))
    whole = versions.convert(merged, version)
    pruned = values.without_dropped(type_, whole, fields)
    for at, theirs in owned.items():
        if (there := versions.type_of(at)) is not None:
            pruned = values.with_owned(
                there, versions.convert(merged, at), versions.convert(pruned, at), theirs
            )
    pruned = values.with_others(type_, whole, versions.convert(pruned, version), fields)
    return versions.convert(pruned, writer.api_version)


def _capped(entries: list[Entry]) -> list[Entry]:
    """Return the entries with the oldest updates put together, so that few are left."""
    surplus = sum(each["operation"] == UPDATE for each in entries) - _MOST_UPDATERS
    if surplus <= 0:
        return entries
    oldest = sorted(
        (each for each in entries if each["operation"] == UPDATE),
        key=lambda each: (each.get("time", ""), each.get("manager", "")),
    )
    kept, buckets = list(entries), dict[str, Entry]()
    for entry in oldest:
        if surplus <= 0:
            break
        version = entry.get("apiVersion", "")
        if version not in buckets:
            buckets[version] = entry
            continue
        first = buckets[version]
        bucket = {
            **{name: value for name, value in entry.items() if name != "subresource"},
            "manager": _OLD_UPDATES,
            "fieldsV1": field_sets.union(first.get("fieldsV1", LEAF), entry.get("fieldsV1", LEAF)),
        }
        kept = [each for each in kept if each is not first and each is not entry]
        kept.append(bucket)
        buckets[version] = bucket
        surplus -= 1
    return kept


def _sorted(entries: list[Entry]) -> list[Entry]:
    """Return the entries in the order in which they are shown: applies first, oldest first."""
    if len(entries) < 2:
        return entries
    return sorted(
        entries,
        key=lambda each: (
            each["operation"],
            each.get("time", ""),
            each.get("manager", ""),
            each.get("apiVersion", ""),
            each.get("subresource", ""),
        ),
    )
