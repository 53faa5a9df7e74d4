"""Attachment pods: how claims reach the node of a running guest on a cluster.

Only a kubelet brings a claim to a node, and only for pods. Each volume that is plugged into a
running guest has a pod of its own on the guest's node, which does nothing but hold the claim
(decision 7). The node agent opens the disk below the pod's file system and hands it to QEMU. A pod
is deleted once the guest has released its volume, and not before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from livevirt.kube.objects import core
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vmi import kubelet_pod
from livevirt.vm.lifecycle.vmi.kubelet_pod import LAUNCHER
from livevirt.vm.lifecycle.vmi.launcher import NEXT_TO_NOTHING
from livevirt.vm.spec.disks import hotpluggable
from livevirt.vm.volumes.volume_lists import claim_of

LABEL, ATTACHMENT = "kubevirt.io", "hotplug-disk"
SELECTOR = f"{LABEL}={ATTACHMENT}"
PREFIX = "hp-volume-"  # KubeVirt's
INSTANCE = "livevirt.io/attachment-of"  # the label with the uid of the instance
INSTANCE_NAME = "livevirt.io/instance"
VOLUME, CLAIM = "livevirt.io/volume", "livevirt.io/claim"
#: Where the container has the claim: a directory with the disk's file, or a device.
DIRECTORY, DEVICE = "/disk", "/dev/disk"
CONTAINER = ATTACHMENT
_VOLUME_NAME = "disk"
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Place:
    """A launcher pod on its node."""

    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A claim that is to be, or is, on the node of a launcher pod."""

    place: Place
    volume: str
    claim: str
    block: bool = False

    @property
    def pod_name(self) -> str:
        """The name of its pod, which follows from what it is for."""
        text = "\0".join((self.place.uid, self.volume, self.claim))
        return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Bring a claim to a node."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove a pod whose volume the guest does not have, and is not to have."""

    name: str
    uid: str


Step = CreatePod | DeletePod


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the decision depends on, read at one moment."""

    vmi: Object | None
    places: tuple[Place, ...]  # launcher pods that run, or soon will
    claims: Mapping[str, Object]
    pods: tuple[Object, ...]  # attachment pods of the instance


def plan(snapshot: Snapshot) -> list[Step]:
    """List the pods to create and to delete."""
    wanted = {each.pod_name: each for each in _wanted(snapshot)}
    found = {pod["metadata"]["name"] for pod in snapshot.pods}
    steps: list[Step] = [CreatePod(each) for name, each in wanted.items() if name not in found]
    for pod in snapshot.pods:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            continue
        ended = status_of(pod).get("phase") in FINAL
        if (ended or meta["name"] not in wanted) and not in_use(pod, snapshot.vmi):
            steps.append(DeletePod(meta["name"], meta["uid"]))
    return steps


def _wanted(snapshot: Snapshot) -> Iterator[Attachment]:
    vmi = snapshot.vmi
    if vmi is None or status_of(vmi).get("phase") in FINAL:
        return
    for volume in vmi["spec"].get("volumes") or ():
        claim = snapshot.claims.get(claim_of(volume)) if hotpluggable(volume) else None
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            continue
        block = claim["spec"].get("volumeMode") == "Block"
        for place in snapshot.places:
            yield Attachment(place, volume["name"], claim["metadata"]["name"], block)


def in_use(pod: Object, vmi: Object | None) -> bool:
    """Return whether the guest has the volume of an attachment pod, or is about to have it.

    The node agent reports every volume that QEMU has open, with its claim.
    """
    if vmi is None or vmi["metadata"]["uid"] != label(pod, INSTANCE):
        return False
    status = status_of(vmi)
    if status.get("phase") in FINAL or not _is_home(pod, vmi):
        return False
    claim = annotation(pod, CLAIM)
    for each in status.get("volumeStatus") or ():
        if each["name"] == label(pod, VOLUME) and "hotplugVolume" in each:
            known = (each.get("persistentVolumeClaimInfo") or {}).get("claimName")
            return known is None or known == claim
    return False


def _is_home(pod: Object, vmi: Object) -> bool:
    """Return whether an attachment pod belongs to a launcher pod that may have the guest."""
    active = status_of(vmi).get("activePods") or {}
    owners = pod["metadata"].get("ownerReferences") or ()
    return not active or any(each["uid"] in active for each in owners)


def places(pods: Iterable[Object]) -> tuple[Place, ...]:
    """Return where launcher pods are, without those that have no node yet or have ended."""
    return tuple(
        Place(pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in pods
        if pod["spec"].get("nodeName")
        and status_of(pod).get("phase") not in FINAL
        and "deletionTimestamp" not in pod["metadata"]
    )


def manifest(vmi: Object, attachment: Attachment, image: str) -> Object:
    """Return the pod of an attachment.

    The launcher pod owns it, so it ends with that one. It goes through the scheduler, which binds
    claims that wait for their first consumer, and can only be placed on one node.
    """
    meta, place = vmi["metadata"], attachment.place
    container: Object = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [LAUNCHER, "hold"],
        "resources": {
            "requests": dict(NEXT_TO_NOTHING),
            "limits": dict(kubelet_pod.LEAST_LIMIT),
        },
        "securityContext": kubelet_pod.restricted(),
    }
    if attachment.block:
        container["volumeDevices"] = [{"name": _VOLUME_NAME, "devicePath": DEVICE}]
    else:
        container["volumeMounts"] = [{"name": _VOLUME_NAME, "mountPath": DIRECTORY}]
    claim = {"claimName": attachment.claim}
    owner = {
        "apiVersion": core.POD.api_version,
        "kind": core.POD.kind,
        "name": place.name,
        "uid": place.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": core.POD.api_version,
        "kind": core.POD.kind,
        "metadata": {
            "name": attachment.pod_name,
            "namespace": meta["namespace"],
            "labels": {LABEL: ATTACHMENT, INSTANCE: meta["uid"], VOLUME: attachment.volume},
            "annotations": {INSTANCE_NAME: meta["name"], CLAIM: attachment.claim},
            "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Always",
            # With 0, the object would be gone before the kubelet has released the claim.
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "affinity": {"nodeAffinity": _only_on(place.node)},
            "tolerations": [{"operator": "Exists"}],
            "securityContext": kubelet_pod.pod_security(),
            "containers": [container],
            "volumes": [{"name": _VOLUME_NAME, "persistentVolumeClaim": claim}],
        },
    }


def _only_on(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def refusal(pod: Object, vmi: Object | None) -> str:
    """Return why an attachment pod must not be removed, empty if it may be."""
    if not is_attachment(pod) or "deletionTimestamp" in pod["metadata"] or not in_use(pod, vmi):
        return ""
    volume, name = label(pod, VOLUME), annotation(pod, INSTANCE_NAME)
    return (
        f"the guest of VMI {name} uses volume {volume}, whose claim this pod holds;"
        f" detach the volume instead: virtctl removevolume {name} --volume-name={volume}"
    )


def is_attachment(pod: Object) -> bool:
    """Return whether a pod holds a claim for a guest."""
    return label(pod, LABEL) == ATTACHMENT and bool(label(pod, INSTANCE))


def label(pod: Object, name: str) -> str:
    """Return a label, empty if there is none."""
    return str((pod["metadata"].get("labels") or {}).get(name) or "")


def annotation(pod: Object, name: str) -> str:
    """Return an annotation, empty if there is none."""
    return str((pod["metadata"].get("annotations") or {}).get(name) or "")


def instance_key(pod: Object) -> tuple[str, str]:
    """Return the namespace and the name of the instance of an attachment pod."""
    return pod["metadata"]["namespace"], annotation(pod, INSTANCE_NAME)
