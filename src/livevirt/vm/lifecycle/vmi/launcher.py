"""The pod a guest runs in, made from its instance."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from livevirt import __version__
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.spec import instance, placement_validation, resources
from livevirt.vm.spec.resources import Namespace

ID_LABEL = "vmi.kubevirt.io/id"  # of launcher pods: the instance
CREATED_BY = "kubevirt.io/created-by"
OVERHEAD = "kubevirt.io/memory-overhead-bytes"
UNPAUSED = "kubevirt.io/virtual-machine-unpaused"  # the pod's readiness gate
IMAGE = f"livevirt/launcher:{__version__}"
CONTAINER = "compute"
CONSOLE_LOG = "guest-console-log"
NEXT_TO_NOTHING = {"cpu": "1m", "memory": "1Mi"}
RUN_AS = 107  # KubeVirt's user for QEMU
EXTRA_GRACE = 30  # seconds the pod has beyond the guest's own
_LONGEST_GRACE = 1 << 31  # seconds; a pod cannot be given any number of them
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes makes generated names from
_LABEL_MAX = 63
_KEPT_PREFIX = 54  # of a name too long for a label, followed by a part of its hash
_NOT_COPIED = re.compile(
    r"kubectl\.kubernetes\.io|kubevirt\.io/(latest|storage)-observed-api-version$"
)
_COPIED = (
    "affinity", "dnsConfig", "dnsPolicy", "priorityClassName", "schedulerName", "subdomain",
    "tolerations", "topologySpreadConstraints",
)  # fmt: skip


def owner(pod: Object) -> Object | None:
    """Return the reference to the instance that a pod runs, if it runs one."""
    for each in pod["metadata"].get("ownerReferences") or ():
        if each.get("controller") and each.get("kind") == kinds.VMI.kind:
            found: Object = each
            return found
    return None


def not_run(pod: Object) -> str:
    """Return why no node runs a pod, empty if it is the pod of an instance."""
    if owner(pod) is not None:
        return ""
    return "livevirt runs the pods of virtual machines only, and this one belongs to none"


def pod_name(vmi: Object) -> str:
    """Return the name of an instance's pod.

    It looks generated and is not: the uid makes it, so creating it twice fails.
    """
    digest = hashlib.sha256(vmi["metadata"]["uid"].encode()).digest()
    suffix = "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in digest[:5])
    return f"{_prefix(vmi)}{suffix}"


def pod_of(vmi: Object, namespace: Namespace) -> Object:
    """Return the pod for an instance in such a namespace."""
    spec = vmi["spec"]
    asked = resources.compute(instance.read(spec), settings.recorded(vmi), namespace)
    claims = list(_claims(spec))
    container: Object = {
        "name": CONTAINER,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": asked.requests, "limits": asked.limits},
        "securityContext": {"runAsUser": RUN_AS, "runAsNonRoot": True},
    }
    if claims:
        container["volumeMounts"] = [
            {"name": volume, "mountPath": f"/var/run/kubevirt-private/vmi-disks/{volume}"}
            for volume, _ in claims
        ]
    pod_spec: Object = {
        "restartPolicy": "Never",
        "hostname": hostname(vmi),
        "terminationGracePeriodSeconds": grace(vmi) + EXTRA_GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "readinessGates": [{"conditionType": UNPAUSED}],
        "nodeSelector": {
            "kubevirt.io/schedulable": "true",
            "kubernetes.io/arch": spec.get("architecture", "amd64"),
            **placement_validation.needed(spec),
            **(spec.get("nodeSelector") or {}),
        },
        "initContainers": [_console_log(container["resources"])],
        "containers": [container],
        **{field: spec[field] for field in _COPIED if spec.get(field)},
    }
    if claims:
        pod_spec["volumes"] = [
            {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            for volume, claim in claims
        ]
    metadata = _metadata(vmi)
    metadata["annotations"] |= {
        OVERHEAD: str(asked.overhead),
        **resources.demanded(namespace),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def _metadata(vmi: Object) -> Object:
    meta = vmi["metadata"]
    owner = {
        "apiVersion": kinds.VMI.api_version,
        "kind": kinds.VMI.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": pod_name(vmi),
        "generateName": _prefix(vmi),
        "namespace": meta["namespace"],
        "labels": _labels(vmi),
        "annotations": {**_annotations(vmi)},
        "ownerReferences": [owner],
    }


def _console_log(compute: Object) -> Object:
    """Return the sidecar whose log is the guest's serial console.

    QEMU itself writes that log, so nothing runs; but kubectl shows only logs of containers a pod
    lists. What it asks for is next to nothing, and not nothing, so that a pod with limits
    everywhere stays Guaranteed and a quota on limits is content.
    """
    return {
        "name": CONSOLE_LOG,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "resources": {
            kind: {name: amount for name, amount in NEXT_TO_NOTHING.items() if name in amounts}
            for kind, amounts in compute.items()
        },
        "securityContext": {"runAsUser": RUN_AS, "runAsNonRoot": True},
    }


def made_metadata(vmi: Object) -> dict[str, Object]:
    """Return the labels and annotations that a new pod of an instance gets."""
    return {"labels": _labels(vmi), "annotations": _annotations(vmi)}


def image_of(pod: Object) -> str:
    """Return the image that a pod was made with, which an update leaves behind."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    return next((each["image"] for each in containers if each["name"] == CONTAINER), IMAGE)


def grace(vmi: Object) -> int:
    """Return the seconds a guest has to shut down by itself."""
    seconds = vmi["spec"].get("terminationGracePeriodSeconds")
    return 30 if seconds is None else min(int(seconds), _LONGEST_GRACE)


def hostname(vmi: Object) -> str:
    """Return the name the guest is to have: its own, or the first label of the instance's."""
    given = vmi["spec"].get("hostname")
    return (
        str(given) if given else vmi["metadata"]["name"].partition(".")[0][:_LABEL_MAX].rstrip("-")
    )


def claim_names(vmi: Object) -> list[str]:
    """Return the claims the pod needs from the start."""
    return [claim for _, claim in _claims(vmi["spec"])]


def _claims(spec: Object) -> Iterator[tuple[str, str]]:
    """Yield volumes that lie in a claim, each with its claim; not what is plugged later."""
    for volume in spec.get("volumes") or ():
        claim, data = volume.get("persistentVolumeClaim"), volume.get("dataVolume")
        backing = (volume.get("ephemeral") or {}).get("persistentVolumeClaim")
        if claim and not claim.get("hotpluggable"):
            yield volume["name"], claim["claimName"]
        elif data and not data.get("hotpluggable"):
            yield volume["name"], data["name"]
        elif backing:
            yield volume["name"], backing["claimName"]


def _prefix(vmi: Object) -> str:
    name = vmi["metadata"]["name"]
    return f"virt-launcher-{name[: 253 - len('virt-launcher-') - 6].rstrip('-.')}-"


def _labels(vmi: Object) -> dict[str, str]:
    meta = vmi["metadata"]
    return {
        **(meta.get("labels") or {}),
        "kubevirt.io": "virt-launcher",
        CREATED_BY: meta["uid"],
        "vm.kubevirt.io/name": hostname(vmi),
        ID_LABEL: as_label(meta["name"]),
    }


def _annotations(vmi: Object) -> dict[str, str]:
    meta = vmi["metadata"]
    given = meta.get("annotations") or {}
    return {
        **{key: value for key, value in given.items() if not _NOT_COPIED.match(key)},
        "kubevirt.io/domain": meta["name"],
        "kubectl.kubernetes.io/default-container": CONTAINER,
        "kubevirt.io/migrationTransportUnix": "true",
        "descheduler.alpha.kubernetes.io/request-evict-only": "",
    }


def as_label(name: str) -> str:
    """Return the name of an instance as the value of a label."""
    if len(name) <= _LABEL_MAX:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_KEPT_PREFIX]}-{digest[:8]}"
