"""The target pod of a migration: a launcher pod like the first, on another node."""

from __future__ import annotations

import copy
import hashlib

from livevirt.kube.objects.request import Object
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.migration.migratability import NODE_NAME
from livevirt.vm.migration.snapshot import JOB_NAME, JOB_UID, TARGET_NODE
from livevirt.vm.sizing.reservation import covers, reservation, told
from livevirt.vm.spec.resources import Namespace

HOSTNAME = "kubernetes.io/hostname"
_NOT_COPIED = (NODE_NAME, TARGET_NODE)  # of the instance's labels: they name the source
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes makes generated names from
_SUFFIX_LENGTH = 5


def pod_of(vmi: Object, migration: Object, namespace: Namespace) -> Object:
    """Return the target pod of a migration.

    It has room for the larger of the guest's current and requested size: the guest is resized
    only after it has moved.
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
    spec["affinity"] = _anti_affinity(spec.get("affinity") or {}, vmi["metadata"]["uid"])
    return pod


def is_too_small(pod: Object, vmi: Object, namespace: Namespace) -> bool:
    """Return whether a target pod has less than the guest's current or requested size."""
    needed = reservation(vmi, told(vmi), namespace)
    return not any(
        covers(container.get("resources") or {}, needed)
        for container in pod["spec"]["containers"]
        if container["name"] == launcher.CONTAINER
    )


def pod_name(vmi: Object, migration: Object) -> str:
    """Return the name of a target pod, derived from the uid of its migration."""
    first = launcher.pod_name(vmi)
    digest = hashlib.sha256(migration["metadata"]["uid"].encode()).digest()[:_SUFFIX_LENGTH]
    suffix = "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in digest)
    return f"{first[:-_SUFFIX_LENGTH]}{suffix}"


def _anti_affinity(affinity: Object, uid: str) -> Object:
    """Return an affinity that also excludes every node with a pod of the instance."""
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
