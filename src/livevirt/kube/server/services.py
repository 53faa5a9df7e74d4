"""What every verb works with: the store, the kinds' rules, quota accounting and the clock."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from livevirt.errors import InsufficientStorage
from livevirt.kube.admission import limit_ranges, quotas
from livevirt.kube.control.turns import Turns
from livevirt.kube.objects import core, metadata, refusals
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import NodeUsage, Share, UsageSource
from livevirt.kube.objects.refusals import forbidden
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import Object, Request
from livevirt.kube.objects.review import Review, Rules
from livevirt.kube.server import objects, storage_errors
from livevirt.kube.store import Compacted, Key, Overrun, Put, Store, Stored, Watch

log = logging.getLogger(__name__)


class Occupancy:
    """Counts pods in and out of nodes; as current as the store's watchers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._usage: NodeUsage[Key] = NodeUsage()
        self._following: asyncio.Task[None] | None = None

    def around(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the others of that node take."""
        if self._following is None or self._following.done():
            watch = self._read()
            self._following = asyncio.create_task(self._follow(watch), name="node occupancy")
        key, others = self._usage.around(node, instance)
        stored = None if key is None else self._store.get(key)
        return None if stored is None else objects.decode(stored.value), others

    def _read(self) -> Watch:
        """Count everything afresh; return the watch of what changes after that."""
        watch = self._store.watch(POD.resource, since=self._store.revision)
        self._usage.clear()
        for item in self._store.list(POD.resource).items:
            self._usage.put(item.key, objects.decode(item.value))
        return watch

    async def _follow(self, watch: Watch) -> None:
        while True:
            try:
                async for events in watch:
                    for event in events:
                        if event.type == "DELETED":
                            self._usage.drop(event.key)
                        else:
                            self._usage.put(event.key, event.object)
                return  # the store is closed
            except (Compacted, Overrun):
                log.warning("fell behind the store, counting all pods again")
            finally:
                watch.close()
            watch = self._read()


_BUILT_IN = (core.POD.resource,)
_NOT_SPEC = ("kind", "apiVersion", "metadata", "status")


def counted(kind: Kind) -> bool:
    """Return whether objects of this kind carry a generation."""
    return kind.custom or kind.resource in _BUILT_IN


def bump(kind: Kind, new: Object, old: Object) -> None:
    """Give `new` its generation: one more than `old`'s when what the user asks for changed."""
    if not counted(kind):
        return
    current = old["metadata"].get("generation", 0)
    new["metadata"]["generation"] = current + 1 if _spec(kind, new) != _spec(kind, old) else current


def _spec(kind: Kind, obj: Object) -> Object:
    # A custom resource without a status subresource counts its status as part of what is asked.
    left_out = _NOT_SPEC if kind.has_status or not kind.custom else _NOT_SPEC[:3]
    return {name: value for name, value in obj.items() if name not in left_out}


_PLAIN = Rules()
CORE = Registry(core.KINDS)
_STANDARD_FINALIZERS = ("foregroundDeletion", "orphan", "kubernetes")


#: Looked at by every write: held in memory.
_MIRRORED = (core.NAMESPACE, core.QUOTA, core.LIMIT_RANGE)


class StoreReader:
    """Admission's view of the store. What it returns must not be changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mirrors = {kind.resource: store.mirror(kind.resource) for kind in _MIRRORED}
        self._occupancy = Occupancy(store)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object in its storage version."""
        if mirror := self._mirrors.get(kind.resource):
            held = mirror.get(namespace if kind.namespaced else "", name)
            return None if held is None else held.object
        found = self._store.get(objects.key_of(kind, namespace, name))
        return None if found is None else objects.decode(found.value)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace, or of all."""
        if mirror := self._mirrors.get(kind.resource):
            return [held.object for held in mirror.list(namespace or None)]
        page = self._store.list(kind.resource, namespace or None)
        return [objects.decode(item.value) for item in page.items]

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the others of that node take."""
        return self._occupancy.around(node, instance)


class EvictionGuard(Protocol):
    """Refuses the eviction of a pod by raising TooManyRequests."""

    async def __call__(self, pod: Object, *, dry_run: bool) -> None:
        """Return if the pod may be evicted."""


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to every verb by the composition root."""

    store: Store
    rules: dict[str, Rules]
    now: Callable[[], datetime]
    reader: StoreReader
    registry: Registry = CORE
    turns: Turns = field(default_factory=Turns)
    #: Asked before a pod is evicted; they refuse by raising.
    eviction_guards: list[EvictionGuard] = field(default_factory=list)
    #: Asked before an object of a user is created: why there is no space for it, "" if there is.
    space_guards: list[Callable[[], str]] = field(default_factory=list)
    #: Asked what pods and nodes use; empty until there are nodes.
    usage_sources: list[UsageSource] = field(default_factory=list)

    def rules_of(self, kind: Kind) -> Rules:
        """Return what a kind demands of a write."""
        return self.rules.get(kind.resource, _PLAIN)

    def stored(self, request: Request) -> Stored:
        """Return the object a request names, or refuse."""
        kind = request.kind
        found = self.store.get(objects.key_of(kind, request.namespace, request.name))
        if found is None:
            raise refusals.not_found(kind, request.name)
        return found

    def review(self, request: Request, verb: str, new: Object, old: Object | None) -> Review:
        """Return the write as admission sees it."""
        return Review(
            verb, request.kind, request.version, new, old, request.user, self.reader, self.now(),
            request.subresource, request.dry_run,
        )  # fmt: skip

    def check_space(self) -> None:
        """Refuse new objects while the disk is full: what is left is for stopping and deleting."""
        for guard in self.space_guards:
            if why := guard():
                raise InsufficientStorage(why, details=storage_errors.RETRY)

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Refuse to create in a namespace that is not there or is going away."""
        if not kind.namespaced:
            return
        space = self.reader.get(core.NAMESPACE, namespace)
        if space is None:
            raise refusals.not_found(core.NAMESPACE, namespace)
        if "deletionTimestamp" in space["metadata"]:
            why = (
                f"unable to create new content in namespace {namespace} because it is being"
                " terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(kind, name, why, [cause])


def check(review: Review, rules: Rules) -> None:
    """Refuse a write that breaks the rules of metadata or of its kind."""
    kind = review.kind
    meta = review.new["metadata"]
    errors = metadata.validate(meta, namespaced=kind.namespaced, name_rule=rules.name_rule)
    if kind.custom:
        review.warnings += _bare_finalizers(review)
    else:
        errors += metadata.validate_core_finalizers(meta)
    if review.old is not None:
        errors += metadata.validate_update(meta, review.old["metadata"])
    errors += rules.validate(_judged(review))
    if errors:
        raise refusals.invalid(kind, meta.get("name", ""), errors)


def _bare_finalizers(review: Review) -> list[str]:
    """Warn of new finalizers that another writer might use by accident."""
    old = review.old or {"metadata": {}}
    known = old["metadata"].get("finalizers", [])
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid'
        " accidental conflicts with other finalizer writers"
        for name in review.new["metadata"].get("finalizers", [])
        if "/" not in name and name not in known and name not in _STANDARD_FINALIZERS
    ]


def _judged(review: Review) -> Review:
    """Return the review in the form the rules know: events of the view as core events."""
    if review.kind is not core.EVENT_VIEW:
        return review
    old = None if review.old is None else objects.for_storage(review.kind, review.old)
    return replace(review, new=objects.for_storage(review.kind, review.new), old=old)


def limit(review: Review) -> None:
    """Apply the namespace's limit ranges to a new or resized pod, or a new claim."""
    if review.kind not in (core.POD, core.CLAIM):
        return
    ranges = review.read.list(core.LIMIT_RANGE, review.new["metadata"]["namespace"])
    if ranges:
        limit_ranges.apply(review, ranges)


def charge(services: Services, review: Review) -> list[Put]:
    """Return the writes that count a new or resized object against its namespace's quotas.

    They go into the same transaction as the object itself, so that neither a crash nor a
    concurrent request can spend the same room twice. Over quota raises Forbidden.
    """
    namespace = review.new["metadata"].get("namespace", "")
    if not review.kind.namespaced or review.kind is core.QUOTA:
        return []
    held = services.store.mirror(core.QUOTA.resource).list(namespace)
    if not held:
        return []
    by_name = {quota_.key.name: quota_ for quota_ in held}
    writes = []
    for obj in quotas.charge([copy.deepcopy(quota_.object) for quota_ in held], review):
        was = by_name[obj["metadata"]["name"]]
        if (stored := services.store.get(was.key)) is not None:  # mirrors have no managedFields
            managed_fields = objects.decode(stored.value)["metadata"].get("managedFields")
            if managed_fields:
                obj["metadata"]["managedFields"] = managed_fields
        writes.append(Put(was.key, was.revision, objects.writer(core.QUOTA, obj)))
    return [] if review.dry_run else writes
