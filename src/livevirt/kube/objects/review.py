"""One write under review, and what the rules of a kind demand of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from livevirt.kube.objects import names
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object, User

#: Returns an object by kind, name and namespace, never to be changed, or None.
Get = Callable[[Kind, str, str], Object | None]


class Reader(Protocol):
    """What admission may look up: the store in process, informer caches in a webhook."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, never to be changed."""

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with ""), never to be changed."""

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the others of that node take.

        At the same cost for few pods and for many.
        """


@dataclass(slots=True)
class Review:
    """A write on its way in: `old` is what is stored, `new` what it would become."""

    verb: str  # create update delete
    kind: Kind
    version: str
    new: Object
    old: Object | None
    user: User
    read: Reader
    now: datetime
    subresource: str = ""
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)


class Rules:
    """What a kind demands of a write; the base class demands nothing special.

    The order is: `default`, `prepare`, then the server's own metadata rules, then `validate`.
    Refusals that are no field errors (Forbidden, Conflict …) are raised as ApiError.
    """

    name_rule: Callable[[str], list[str]] = staticmethod(names.validate_dns1123_subdomain)
    put_creates = False  # PUT to a free name creates (Lease, Event)
    unconditional_update = True  # PUT may leave out the resourceVersion
    creates_with_status = False  # status sent on create is kept (Node)
    delete_returns_object = False  # DELETE answers with the object, not with a Status

    def default(self, obj: Object) -> None:
        """Fill in what the user left out, in place."""

    def prepare(self, review: Review) -> None:
        """Set in `review.new` what belongs to the server, in place."""

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with `review.new`."""
        return []

    def through(self, subresource: str, review: Review) -> None:
        """Keep in `review.new` only what a write to this subresource may change, in place."""
        if subresource == "status":
            status = review.new.get("status")
            meta = review.new["metadata"]
            assert review.old is not None
            kept = copy.deepcopy(review.old)
            review.new.clear()
            review.new.update(kept)
            if not review.kind.custom:  # built-in kinds let labels and annotations through
                for name in ("labels", "annotations", "finalizers"):
                    if name in meta:
                        review.new["metadata"][name] = meta[name]
                    else:
                        review.new["metadata"].pop(name, None)
            if status is None:
                review.new.pop("status", None)
            else:
                review.new["status"] = status

    def held(self, obj: Object) -> bool:
        """Return whether a deleted object without finalizers must stay all the same."""
        return False

    def grace(self, obj: Object, wanted: int | None) -> int:
        """Return how many seconds a deleted object lives on until its end is confirmed."""
        return 0

    def check_delete(self, review: Review) -> None:
        """Raise Forbidden for an object that may not be deleted."""

    def on_marked(self, obj: Object) -> None:
        """Change what else a deletion that has begun shows in the object, in place."""


def keep(target: Object, stored: Object, key: str) -> None:
    """Make `key` of an object what it was, which may be nothing."""
    if key in stored:
        target[key] = copy.deepcopy(stored[key])
    else:
        target.pop(key, None)
