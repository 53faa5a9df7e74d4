"""What every verb works with: the store, the kinds' rules and the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from livevirt.kube.control.turns import Turns
from livevirt.kube.objects import core, metadata, refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.refusal import forbidden
from livevirt.kube.objects.registry import Registry
from livevirt.kube.objects.request import Object, Request
from livevirt.kube.objects.review import Review, Rules
from livevirt.kube.objects.usage import UsageSource
from livevirt.kube.server import objects
from livevirt.kube.server.occupancy import Occupancy
from livevirt.kube.store import Store, Stored

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
