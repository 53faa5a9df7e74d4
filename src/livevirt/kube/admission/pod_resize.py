"""The `resize` subresource of a pod: cpu and memory of its containers, and nothing else."""

from __future__ import annotations

import copy

from livevirt.kube.admission.pod_validation import validate_pod
from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.core import NODE, POD
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid
from livevirt.kube.objects.pod_resources import amounts, over
from livevirt.kube.objects.refusals import forbidden as refused
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Reader, keep

_ONLY = "only cpu and memory resources are mutable"
_CHANGEABLE = ("resources", "resizePolicy")  # the policy reaches validation, which refuses it


def keep_all_but_resources(new: Object, old: Object) -> None:
    """Put back, in place, everything a resize does not write.

    Containers that were added, removed, renamed or moved stay as sent, for validation to refuse.
    """
    spec = copy.deepcopy(old["spec"])
    for field in ("containers", "initContainers"):
        sent = new["spec"].get(field) or []
        stored = spec.get(field) or []
        if [c.get("name") for c in sent] != [c["name"] for c in stored]:
            spec[field] = sent
            continue
        for container, wanted in zip(stored, sent, strict=True):
            for key in _CHANGEABLE:
                keep(container, wanted, key)
    if new["spec"].get("resources") is not None:
        spec["resources"] = new["spec"]["resources"]
    identity = ("name", "namespace", "uid", "resourceVersion", "managedFields")
    sent_meta = new["metadata"]
    new["metadata"] = copy.deepcopy(old["metadata"])
    for key in identity:
        if key in sent_meta:
            new["metadata"][key] = sent_meta[key]
    new["spec"] = spec
    keep(new, old, "status")


def validate_resize(new: Object, old: Object) -> list[FieldError]:
    """List what is wrong with the new sizes and what a resize may not change."""
    if moved := _moved_errors(new, old):
        return moved
    found = validate_pod(new)
    if "kubernetes.io/config.mirror" in (old["metadata"].get("annotations") or {}):
        found.append(forbidden("", "static pods cannot be resized"))
    before = status_of(old).get("qosClass") or pod_resources.qos_class(old)
    after = pod_resources.qos_class(new)
    if before != after:
        why = "Pod QOS Class may not change as a result of resizing"
        found.append(invalid("spec", after, why))
    if not _node_supports_resize(old):
        found.append(forbidden("spec", "Pod running on node without support for resize"))
    for field in ("containers", "initContainers"):
        pairs = zip(new["spec"].get(field) or (), old["spec"].get(field) or (), strict=True)
        for at, (container, stored) in enumerate(pairs):
            path = f"spec.{field}[{at}].resources"
            if container.get("resources") != stored.get("resources") and _restarts(field, stored):
                found.append(
                    forbidden(path, "resources for non-sidecar init containers are immutable")
                )
            found += _removed_errors(path, container, stored)
    if not found and _rest(new) != _rest(old):
        found.append(forbidden("spec", f"{_ONLY} for containers"))
    return found


def check_node(pod: Object, read: Reader) -> None:
    """Refuse a pod that asks for more than its node could ever give."""
    node_name = pod["spec"].get("nodeName")
    if not node_name:
        return
    name = pod["metadata"]["name"]
    node = read.get(NODE, node_name)
    if node is None:
        raise refused(POD, name, f'node "{node_name}" not found')
    allocatable = amounts(status_of(node).get("allocatable"))
    wanted = pod_resources.requests(pod)
    short = over({r: wanted[r] for r in pod_resources.COMPUTE if r in wanted}, allocatable)
    if not short:
        return
    listed = "; ".join(f"{r}, requested: {wanted[r]}, allocatable: {allocatable[r]}" for r in short)
    why = f"node didn't have enough allocatable resources: {listed}"
    raise refused(POD, name, why, [{"reason": "NodeCapacity", "message": why}])


def _moved_errors(new: Object, old: Object) -> list[FieldError]:
    found = []
    for field in ("containers", "initContainers"):
        after = [c.get("name") for c in new["spec"].get(field) or ()]
        before = [c["name"] for c in old["spec"].get(field) or ()]
        if len(after) != len(before):
            found.append(
                forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            )
        elif after != before:
            why = f"{field} may not be renamed or reordered on resize"
            found.append(forbidden(f"spec.{field}", why))
    return found


def _node_supports_resize(pod: Object) -> bool:
    statuses = status_of(pod).get("containerStatuses") or ()
    running = [s for s in statuses if (s.get("state") or {}).get("running") is not None]
    return all(s.get("resources") is not None for s in running)


def _restarts(field: str, container: Object) -> bool:
    """Whether a resize of this init container would need a restart, which it cannot have."""
    if field != "initContainers" or container.get("restartPolicy") == "Always":
        return False
    policies = container.get("resizePolicy") or ()
    return any(policy.get("restartPolicy") == "RestartContainer" for policy in policies)


def _removed_errors(path: str, container: Object, stored: Object) -> list[FieldError]:
    found = []
    for side in ("limits", "requests"):
        before = (stored.get("resources") or {}).get(side) or {}
        after = (container.get("resources") or {}).get(side) or {}
        if before.keys() - after.keys():
            found.append(forbidden(f"{path}.{side}", f"resource {side} cannot be removed"))
    return found


def _rest(pod: Object) -> Object:
    """The spec without what a resize may change."""
    spec: Object = copy.deepcopy(pod["spec"])
    for holder in [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = holder.get("resources") or {}
        for side in ("limits", "requests"):
            kept = {
                resource: value
                for resource, value in (resources.get(side) or {}).items()
                if resource not in pod_resources.COMPUTE
            }
            resources[side] = kept
        holder["resources"] = resources
    return spec
