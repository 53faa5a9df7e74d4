"""The pod a guest moves to: a launcher pod like the first, on another node."""

from __future__ import annotations

import copy
import hashlib

from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.migration.migratability import NODE_NAME
from livevirt.vm.migration.view import JOB_NAME, JOB_UID, TARGET_NODE
from livevirt.vm.sizing.reservation import covers, reservation, told
from livevirt.vm.spec.resources import Namespace

HOSTNAME = "kubernetes.io/hostname"
_NOT_COPIED = (NODE_NAME, TARGET_NODE)  # of the instance's labels: they name the source
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes makes generated names from
_SUFFIX_LENGTH = 5


def pod_of(vmi: Object, migration: Object, namespace: Namespace) -> Object:
    """Return the target pod of a migration.

    It holds what the guest has and what it should have: a guest moves as large as it is.
    """
    job = migration["metadata"]
    pod = launcher.pod_of(vmi, namespace)
    meta, spec = pod["metadata"], pod["spec"]
    meta["name"] = pod_name(vmi, migration)
    for label in _NOT_COPIED:
        meta["labels"].pop(label, None)
    meta["labels"][JOB_UID] = job["uid"]
    meta["annotations"][JOB_NAME] = job["name"]
    needed = reservation(vmi, told(vmi), namespace)
    meta["annotations"][launcher.OVERHEAD] = str(needed.overhead)
    for container in spec["containers"]:
        if container["name"] == launcher.CONTAINER:
            container["resources"] = {"requests": needed.requests, "limits": needed.limits}
    added = migration["spec"].get("addedNodeSelector") or {}
    spec["nodeSelector"] = {**added, **spec["nodeSelector"]}
    spec["affinity"] = _apart(spec.get("affinity") or {}, vmi["metadata"]["uid"])
    return pod


def is_short(pod: Object, vmi: Object, namespace: Namespace) -> bool:
    """Tell whether a target pod holds less than the guest has or should have by now."""
    needed = reservation(vmi, told(vmi), namespace)
    return not any(
        covers(container.get("resources") or {}, needed)
        for container in pod["spec"]["containers"]
        if container["name"] == launcher.CONTAINER
    )


def pod_name(vmi: Object, migration: Object) -> str:
    """Return the name of a target pod, which the uid of its migration makes."""
    first = launcher.pod_name(vmi)
    digest = hashlib.sha256(migration["metadata"]["uid"].encode()).digest()[:_SUFFIX_LENGTH]
    suffix = "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in digest)
    return f"{first[:-_SUFFIX_LENGTH]}{suffix}"


def _apart(affinity: Object, uid: str) -> Object:
    """Return an affinity that also keeps the pod off every node with a pod of the instance."""
    found = copy.deepcopy(affinity)
    against = found.setdefault("podAntiAffinity", {})
    against["requiredDuringSchedulingIgnoredDuringExecution"] = [
        *(against.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
        {
            "labelSelector": {"matchLabels": {launcher.CREATED_BY: uid}},
            "topologyKey": HOSTNAME,
        },
    ]
    return found
