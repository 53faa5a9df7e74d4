"""The subresources binding and eviction of a pod."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import NamedTuple

from livevirt.errors import ApiError, BadRequest
from livevirt.kube.objects import conditions
from livevirt.kube.objects.core import POD
from livevirt.kube.objects.field_error import FieldError, not_supported, required
from livevirt.kube.objects.refusals import conflict
from livevirt.kube.objects.request import Object


def bind(pod: Object, binding: Object, now: datetime) -> Object:
    """Return the pod with the node the binding names; refusals are raised."""
    name, meta = pod["metadata"]["name"], binding.get("metadata") or {}
    if meta.get("name") != name:
        raise BadRequest("name in URL does not match name in Binding object")
    if errors := _target_errors(binding.get("target") or {}):
        # Kubernetes forgets to say 422 here, and clients have learnt to live with a 500.
        raise ApiError(_listed(errors), code=500, reason="")
    if meta.get("uid") and meta["uid"] != pod["metadata"].get("uid"):
        why = (
            f"Precondition failed: UID in precondition: {meta['uid']}, "
            f"UID in object meta: {pod['metadata'].get('uid', '')}"
        )
        raise conflict(POD, name, why)
    version = meta.get("resourceVersion")
    if version and version != pod["metadata"].get("resourceVersion"):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {version}, "
            f"ResourceVersion in object meta: {pod['metadata'].get('resourceVersion', '')}"
        )
        raise conflict(POD, name, why)
    if why := _unready(pod):
        raise conflict(POD, name, why, "binding")
    return _placed(pod, binding, now)


def _unready(pod: Object) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _placed(pod: Object, binding: Object, now: datetime) -> Object:
    placed = copy.deepcopy(pod)
    placed["spec"]["nodeName"] = binding["target"]["name"]
    if given := (binding.get("metadata") or {}).get("annotations"):
        kept = placed["metadata"].get("annotations") or {}
        placed["metadata"]["annotations"] = {**kept, **given}
    status = placed.setdefault("status", {})
    scheduled: conditions.Condition = {"type": "PodScheduled", "status": "True"}
    status["conditions"] = conditions.with_condition(status.get("conditions"), scheduled, now)
    return placed


def _target_errors(target: Object) -> list[FieldError]:
    found = []
    if target.get("kind", "") not in ("", "Node"):
        found.append(not_supported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        found.append(required("target.name"))
    return found


def _listed(errors: list[FieldError]) -> str:
    return str(errors[0]) if len(errors) == 1 else f"[{', '.join(map(str, errors))}]"


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
