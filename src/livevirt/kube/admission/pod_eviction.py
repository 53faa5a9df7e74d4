"""The `eviction` subresource of a pod: a deletion that records its cause."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import NamedTuple

from livevirt.errors import BadRequest
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Object


class Eviction(NamedTuple):
    """What an eviction makes of a pod: first the note in its status, then the deletion."""

    pod: Object  # with the condition DisruptionTarget
    options: Object  # of the DELETE to carry out


def evict(pod: Object, eviction: Object, now: datetime) -> Eviction:
    """Return the pod with the cause of its end, and how to delete it; refusals are raised.

    There are no disruption budgets: only a guard of the server makes an eviction wait.
    """
    name = pod["metadata"]["name"]
    if (wanted := (eviction.get("metadata") or {}).get("name", "")) != name:
        raise BadRequest(f"name in URL does not match name in Eviction object: {name} != {wanted}")
    evicted = copy.deepcopy(pod)
    status = evicted.setdefault("status", {})
    message = "Eviction API: evicting"
    cause = conditions.condition("DisruptionTarget", True, "EvictionByEvictionAPI", message)
    status["conditions"] = conditions.with_condition(status.get("conditions"), cause, now)
    return Eviction(evicted, dict(eviction.get("deleteOptions") or {}))
