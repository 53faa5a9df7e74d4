"""The launcher pod as the kubelet of a cluster runs it.

The pod of `launcher.pod_of` gets a command, mounts and a security context with which it passes the
restricted Pod Security level. Its first process waits for the arguments that the node agent
prepares in the volume `livevirt-run`, and then is QEMU. Volumes that are plugged into a running
guest are no part of the pod.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.lifecycle.vmi.launcher import CONSOLE_LOG, CONTAINER, NEXT_TO_NOTHING, RUN_AS

LAUNCHER = "/usr/libexec/livevirt/launcher"  # in our image
RUN_VOLUME, RUN_DIRECTORY = "livevirt-run", "/run/livevirt"  # sockets, argv, markers, console log
SCRATCH_VOLUME, SCRATCH_DIRECTORY = "livevirt-scratch", "/var/lib/livevirt"  # disks made here
CONSOLE_FILE = f"{RUN_DIRECTORY}/serial.log"

# Paths of KubeVirt inside the container.
DISKS = "/var/run/kubevirt-private/vmi-disks"  # Filesystem claims
CONTAINER_DISKS = "/var/run/kubevirt/container-disks"  # the file system of each disk's image
SECRETS = "/var/run/kubevirt-private/secret"
CONFIG_MAPS = "/var/run/kubevirt-private/config-map"
DOWNWARD_API = "/var/run/kubevirt-private/downwardapi"

KVM, TUN, VHOST_NET = (f"devices.kubevirt.io/{name}" for name in ("kvm", "tun", "vhost-net"))

# Where containers of disks' images find our program, and leave a link to their file system.
_BIN_VOLUME, _BIN_DIRECTORY = "livevirt-bin", "/livevirt"
_DISKS_VOLUME = "container-disks"
_INSTALL = "install-launcher"
#: The first version of each container runtime that mounts images.
_IMAGE_VOLUMES = {"containerd": (2, 1), "cri-o": (1, 33)}
LEAST_LIMIT = {"cpu": "10m", "memory": "32Mi"}  # with less, runc cannot start a container
#: The fields of cloud-init that name a Secret, with KubeVirt's suffixes of their volumes.
CLOUD_INIT_SECRETS = (("secretRef", "udata"), ("networkDataSecretRef", "ndata"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a pod depends on besides its instance."""

    block_claims: frozenset[str] = frozenset()
    emulation: bool = False  # guests may be emulated, so pods need no /dev/kvm
    image_volumes: bool = True  # supported by every node


@dataclass(slots=True)
class _Parts:
    """What volumes add to a pod."""

    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    devices: list[Object] = field(default_factory=list)
    disk_images: list[tuple[str, Object]] = field(default_factory=list)
    account: str = ""  # a service account that the guest is to have the token of

    def add(self, name: str, path: str, source: Object, *, read_only: bool = False) -> None:
        """Add a volume, and mount it."""
        self.volumes.append({"name": name, **source})
        mount: Object = {"name": name, "mountPath": path}
        self.mounts.append(mount | ({"readOnly": True} if read_only else {}))


def facts(
    claims: Iterable[Object | None], kubevirt: Object | None, nodes: Iterable[Object]
) -> Facts:
    """Return the facts for a pod with these claims."""
    spec = (kubevirt or {}).get("spec") or {}
    developer = (spec.get("configuration") or {}).get("developerConfiguration") or {}
    block = (
        claim["metadata"]["name"]
        for claim in claims
        if claim is not None and claim["spec"].get("volumeMode") == "Block"
    )
    return Facts(
        frozenset(block),
        developer.get("useEmulation") is True,
        all(map(mounts_images, nodes)),
    )


def mounts_images(node: Object) -> bool:
    """Return whether a node's container runtime supports image volumes.

    Only those of which we know that they do not are left out.
    """
    version = (status_of(node).get("nodeInfo") or {}).get("containerRuntimeVersion") or ""
    found = re.match(r"([a-z-]+)://v?(\d+)\.(\d+)", version)
    if found is None or found[1] not in _IMAGE_VOLUMES:
        return True
    return (int(found[2]), int(found[3])) >= _IMAGE_VOLUMES[found[1]]


def complete(pod: Object, vmi: Object, image: str, known: Facts) -> Object:
    """Return the pod of an instance with everything that a kubelet needs to run it."""
    pod = copy.deepcopy(pod)
    spec, parts = pod["spec"], _parts(vmi["spec"], known)
    parts.add(RUN_VOLUME, RUN_DIRECTORY, {"emptyDir": {}})
    parts.add(SCRATCH_VOLUME, SCRATCH_DIRECTORY, {"emptyDir": {}})
    [compute] = (each for each in spec["containers"] if each["name"] == CONTAINER)
    compute |= {
        "image": image,
        "command": [LAUNCHER, "run", RUN_DIRECTORY],
        "lifecycle": {"preStop": {"exec": {"command": [LAUNCHER, "stop", RUN_DIRECTORY]}}},
        "securityContext": restricted(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": parts.mounts,
    }
    if parts.devices:
        compute["volumeDevices"] = parts.devices
    if not known.emulation:
        asked = {name: "1" for name in _devices(vmi["spec"])}
        compute["resources"].setdefault("limits", {}).update(asked)
        compute["resources"].setdefault("requests", {}).update(asked)
    for container in spec["initContainers"]:
        if container["name"] == CONSOLE_LOG:
            container |= _console_log(image, compute)
    if parts.disk_images:
        holders = [_holder(name, disk, compute) for name, disk in parts.disk_images]
        spec["initContainers"] = [_install(image, compute), *holders, *spec["initContainers"]]
        spec["shareProcessNamespace"] = True  # how QEMU reaches the holders' file systems
    spec["volumes"] = parts.volumes
    spec["securityContext"] = pod_security()
    if parts.account:
        spec |= {"serviceAccountName": parts.account, "automountServiceAccountToken": True}
    if secrets := _pull_secrets(vmi["spec"]):
        spec["imagePullSecrets"] = secrets
    return pod


# ---------------------------------------------------------------- containers


def restricted() -> Object:
    """Return the security context of a container that meets the restricted level."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": RUN_AS,
        "runAsGroup": RUN_AS,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pod_security() -> Object:
    """Return the security context of a pod whose claims QEMU's user may write."""
    return {
        "runAsUser": RUN_AS,
        "runAsGroup": RUN_AS,
        "runAsNonRoot": True,
        "fsGroup": RUN_AS,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _console_log(image: str, compute: Object) -> Object:
    mount = {"name": RUN_VOLUME, "mountPath": RUN_DIRECTORY, "readOnly": True}
    return {
        "image": image,
        "command": [LAUNCHER, "log", CONSOLE_FILE],
        "resources": _little(compute),
        "securityContext": restricted(),
        "volumeMounts": [mount],
    }


def _install(image: str, compute: Object) -> Object:
    """Return the init container that copies our program to where images without it find it."""
    return {
        "name": _INSTALL,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [LAUNCHER, "install", f"{_BIN_DIRECTORY}/launcher"],
        "resources": _little(compute),
        "securityContext": restricted(),
        "volumeMounts": [{"name": _BIN_VOLUME, "mountPath": _BIN_DIRECTORY}],
    }


def _holder(name: str, disk: Object, compute: Object) -> Object:
    """Return the container of a disk's image, which keeps its file system mounted.

    It is a sidecar: the pod ends with the guest.
    """
    found: Object = {
        "name": f"volume{name}",
        "image": disk["image"],
        "command": [f"{_BIN_DIRECTORY}/launcher", "hold", f"{CONTAINER_DISKS}/{name}"],
        "restartPolicy": "Always",
        "resources": _little(compute),
        "securityContext": restricted(),
        "volumeMounts": [
            {"name": _BIN_VOLUME, "mountPath": _BIN_DIRECTORY, "readOnly": True},
            {"name": _DISKS_VOLUME, "mountPath": CONTAINER_DISKS},
        ],
    }
    policy = disk.get("imagePullPolicy")
    return found | ({"imagePullPolicy": policy} if policy else {})


def _little(compute: Object) -> Object:
    """Return the resources of a container that does next to nothing.

    Those with a limit request as much, so that the pod keeps its QoS class.
    """
    limits = compute["resources"].get("limits") or {}
    limited = {name: amount for name, amount in LEAST_LIMIT.items() if name in limits}
    return {"requests": {**NEXT_TO_NOTHING, **limited}, "limits": limited}


def _devices(spec: Object) -> Iterator[str]:
    """Yield the devices of the node that a guest uses, as KubeVirt requests them."""
    yield KVM
    devices = (spec.get("domain") or {}).get("devices") or {}
    interfaces = devices.get("interfaces") or ()
    if interfaces or devices.get("autoattachPodInterface") is not False:
        yield TUN
        if not interfaces or any(
            (each.get("model") or "virtio") == "virtio" for each in interfaces
        ):
            yield VHOST_NET


def _pull_secrets(spec: Object) -> list[Object]:
    disks = (volume.get("containerDisk") or {} for volume in spec.get("volumes") or ())
    names = dict.fromkeys(each["imagePullSecret"] for each in disks if each.get("imagePullSecret"))
    return [{"name": name} for name in names]


# ---------------------------------------------------------------- volumes


def _parts(spec: Object, known: Facts) -> _Parts:
    parts = _Parts()
    for volume in spec.get("volumes") or ():
        _add(parts, volume, known)
    if parts.disk_images:
        parts.volumes.append({"name": _BIN_VOLUME, "emptyDir": {}})
        parts.add(_DISKS_VOLUME, CONTAINER_DISKS, {"emptyDir": {}}, read_only=True)
    return parts


def _add(parts: _Parts, volume: Object, known: Facts) -> None:
    name = volume["name"]
    match volume:
        case {"persistentVolumeClaim": {"hotpluggable": True}} | {
            "dataVolume": {"hotpluggable": True}
        }:
            pass  # brought to the node by a pod of its own
        case (
            {"persistentVolumeClaim": {"claimName": str(claim)}}
            | {"dataVolume": {"name": str(claim)}}
            | {"ephemeral": {"persistentVolumeClaim": {"claimName": str(claim)}}}
        ):
            _add_claim(parts, name, claim, known)
        case {"containerDisk": dict(disk)} if known.image_volumes:
            source = {"reference": disk["image"]}
            if policy := disk.get("imagePullPolicy"):
                source["pullPolicy"] = policy
            parts.add(name, f"{CONTAINER_DISKS}/{name}", {"image": source}, read_only=True)
        case {"containerDisk": dict(disk)}:
            parts.disk_images.append((name, disk))
        case {"cloudInitNoCloud": dict(source)} | {"cloudInitConfigDrive": dict(source)}:
            _add_cloud_init(parts, name, source)
        case {"secret": {"secretName": str(secret)} as source}:
            given = _with_optional({"secretName": secret}, source)
            parts.add(name, f"{SECRETS}/{name}", {"secret": given}, read_only=True)
        case {"configMap": {"name": str(found)} as source}:
            given = _with_optional({"name": found}, source)
            parts.add(name, f"{CONFIG_MAPS}/{name}", {"configMap": given}, read_only=True)
        case {"downwardAPI": dict(source)}:
            given = {"items": source.get("fields") or []}
            parts.add(name, f"{DOWNWARD_API}/{name}", {"downwardAPI": given}, read_only=True)
        case {"serviceAccount": {"serviceAccountName": str(account)}}:
            parts.account = account  # admission allows one


def _add_claim(parts: _Parts, name: str, claim: str, known: Facts) -> None:
    source = {"persistentVolumeClaim": {"claimName": claim}}
    if claim in known.block_claims:
        parts.volumes.append({"name": name, **source})
        parts.devices.append({"name": name, "devicePath": f"/dev/{name}"})
    else:
        parts.add(name, f"{DISKS}/{name}", source)


def _add_cloud_init(parts: _Parts, name: str, source: Object) -> None:
    """Add the Secrets that the node agent makes the disk from."""
    for ref, suffix in CLOUD_INIT_SECRETS:
        if secret := (source.get(ref) or {}).get("name"):
            path = f"{SECRETS}/{name}/{suffix}"
            given = {"secretName": secret}
            parts.add(f"{name}-{suffix}", path, {"secret": given}, read_only=True)


def _with_optional(given: Object, source: Object) -> Object:
    return given | ({"optional": source["optional"]} if "optional" in source else {})
