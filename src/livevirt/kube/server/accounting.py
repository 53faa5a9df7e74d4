"""ResourceQuota and LimitRange at the door: the pure rules applied to what the store holds."""

from __future__ import annotations

import copy

from livevirt.kube.admission import limit_ranges, quotas
from livevirt.kube.objects import core
from livevirt.kube.objects.review import Review
from livevirt.kube.server import objects
from livevirt.kube.server.services import Services
from livevirt.kube.store import Put


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
        writes.append(Put(was.key, was.revision, objects.writer(core.QUOTA, obj)))
    return [] if review.dry_run else writes
