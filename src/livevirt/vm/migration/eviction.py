"""The `eviction` door of a pod: a deletion that says why, or a guest that is to move instead."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import NamedTuple

from livevirt.errors import BadRequest, TooManyRequests
from livevirt.kube.objects import conditions, node_share
from livevirt.kube.objects.phases import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.migration import migratability
from livevirt.vm.verdict import edit


class Eviction(NamedTuple):
    """What an eviction makes of a pod: first the note in its status, then the deletion."""

    pod: Object  # with the condition DisruptionTarget
    options: Object  # of the DELETE to carry out


def evict(pod: Object, eviction: Object, now: datetime) -> Eviction:
    """Return the pod with the cause of its end, and how to delete it; refusals are raised.

    There are no disruption budgets: what makes an eviction wait is the guest alone.
    """
    name = pod["metadata"]["name"]
    if (wanted := (eviction.get("metadata") or {}).get("name", "")) != name:
        raise BadRequest(f"name in URL does not match name in Eviction object: {name} != {wanted}")
    evicted = copy.deepcopy(pod)
    status = evicted.setdefault("status", {})
    cause: conditions.Condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status["conditions"] = conditions.with_condition(status.get("conditions"), cause, now)
    return Eviction(evicted, dict(eviction.get("deleteOptions") or {}))


class Move(NamedTuple):
    """The guest of a pod leaves instead: its instance is marked, and the eviction tried again."""

    node: str  # the one it has to leave
    refusal: TooManyRequests  # what the caller is told meanwhile
    marked: bool = False  # already


def instance_of(pod: Object) -> str:
    """Return the name of the instance whose guest may be in a pod, empty if there is none."""
    uid = node_share.instance_of(pod)  # of none, once the pod has ended
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["name"] for owner in owners if uid and owner["uid"] == uid), "")


def move(pod: Object, vmi: Object | None, config: Config) -> Move | None:
    """Return how the guest of a pod leaves its node, None if it is evicted with the pod.

    A guest that must not be evicted and cannot move raises TooManyRequests.
    """
    if vmi is None or vmi["metadata"]["uid"] != node_share.instance_of(pod):
        return None
    meta, status = vmi["metadata"], vmi.get("status") or {}
    strategy = vmi["spec"].get("evictionStrategy") or config.eviction_strategy
    over = status.get("phase") in FINAL or "deletionTimestamp" in meta
    if strategy == "None" or over:
        return None
    node = pod["spec"].get("nodeName") or ""
    name = f"{meta['namespace']}/{meta['name']}"
    if node != edit.node_of(vmi):
        if not migratability.moving(vmi):
            return None  # the guest is elsewhere
        raise TooManyRequests(f'Eviction has to wait: VMI "{name}" is being migrated to this pod')
    movable = conditions.is_true(status.get("conditions"), "LiveMigratable")
    if strategy == "LiveMigrate" and not movable:
        raise TooManyRequests(
            f"VMI {meta['name']} is configured with an eviction strategy but is not live-migratable"
        )
    if strategy == "LiveMigrateIfPossible" and not movable:
        return None
    refusal = TooManyRequests(f'Eviction triggered evacuation of VMI "{name}"')
    return Move(node, refusal, status.get("evacuationNodeName") == node)
