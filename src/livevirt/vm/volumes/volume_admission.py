"""Volumes of an instance: each has one source, and the source makes sense."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import PurePosixPath

from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.volumes.disk_admission import same_names, wrong

_INLINE_MAX = 2048  # bytes of cloud-init data in the object itself
_AT_MOST_ONE = {
    "serviceAccount": "serviceAccount",
    "downwardMetrics": "downwardMetric",
    "memoryDump": "memory dump",
}
_CLOUD_INIT = ("cloudInitNoCloud", "cloudInitConfigDrive")
_USER_DATA = ("userData", "userDataBase64", "secretRef")
_NETWORK_DATA = ("networkData", "networkDataBase64", "networkDataSecretRef")


def sources(volume: Object) -> list[str]:
    """Return the names of the sources a volume gives."""
    return [key for key, value in volume.items() if key != "name" and value is not None]


def volume_errors(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the volumes of a spec."""
    volumes = spec.get("volumes") or []
    at = f"{path}.volumes"
    yield from same_names(at, volumes)
    for source, shown in _AT_MOST_ONE.items():
        if sum(volume.get(source) is not None for volume in volumes) > 1:
            yield wrong(at, f"{at} must have max one {shown} volume set")
    for number, volume in enumerate(volumes):
        yield from _source_errors(f"{at}[{number}]", volume)


def unused_errors(path: str, spec: Object) -> Iterator[FieldError]:
    """Yield volumes that no disk or filesystem shows to the guest."""
    devices = spec["domain"].get("devices") or {}
    shown = {each["name"] for key in ("disks", "filesystems") for each in devices.get(key) or ()}
    for number, volume in enumerate(spec.get("volumes") or ()):
        if volume["name"] not in shown and volume.get("memoryDump") is None:
            message = f"{path}.domain.volumes[{number}].name '{volume['name']}' not found."
            yield wrong(f"{path}.volumes[{number}].name", message)


def _source_errors(here: str, volume: Object) -> Iterator[FieldError]:
    given = sources(volume)
    if len(given) != 1:
        yield wrong(here, f"{here} must have exactly one source type set")
        return
    source, value = given[0], volume[given[0]]
    match source:
        case "dataVolume" if not value.get("name"):
            yield wrong(f"{here}.name", "DataVolume 'name' must be set")
        case "persistentVolumeClaim" if not value.get("claimName"):
            yield wrong(f"{here}.persistentVolumeClaim", "PVC 'claimName' must be set")
        case "ephemeral" if not (value.get("persistentVolumeClaim") or {}).get("claimName"):
            yield wrong(f"{here}.ephemeral", "an ephemeral volume must name a claim")
        case "containerDisk":
            yield from _container_disk_errors(f"{here}.containerDisk", value)
        case "emptyDisk":
            if parse(value.get("capacity", 0)).value() < 2**20:
                at = f"{here}.emptyDisk.capacity"
                yield wrong(at, f"the size for volume {volume['name']} is too low")
        case _ if source in _CLOUD_INIT:
            yield from _cloud_init_errors(f"{here}.{source}", value)


def _container_disk_errors(at: str, disk: Object) -> Iterator[FieldError]:
    if not disk.get("image"):
        yield wrong(f"{at}.image", f"{at}.image must name an image")
    path = disk.get("path") or ""
    if not path:
        return
    pure = PurePosixPath(path)
    if str(pure) in ("/", "//"):
        yield wrong(f"{at}.path", f"{at}.path must not point to root")
    elif not pure.is_absolute() or str(pure) != path or ".." in pure.parts:
        message = f"{at}.path must be an absolute path to a file without relative components"
        yield wrong(f"{at}.path", message)


def _cloud_init_errors(at: str, data: Object) -> Iterator[FieldError]:
    user = [name for name in _USER_DATA if data.get(name)]
    network = [name for name in _NETWORK_DATA if data.get(name)]
    if len(user) > 1:
        yield wrong(at, f"{at} must have only one userdatasource set.")
    if len(network) > 1:
        yield wrong(at, f"{at} must have only one networkdata source set.")
    if not user and not network:
        message = f"{at} must have at least one userdatasource or one networkdatasource set."
        yield wrong(at, message)
    for name, secret in (
        ("userData", "UserDataSecretRef"),
        ("networkData", "NetworkDataSecretRef"),
    ):
        yield from _inline_errors(at, data, name, secret)


def _inline_errors(at: str, data: Object, name: str, secret: str) -> Iterator[FieldError]:
    encoded = data.get(f"{name}Base64") or ""
    try:
        size = len(base64.b64decode(encoded, validate=True)) or len((data.get(name) or "").encode())
    except ValueError:  # also what no text of base64 can be: letters beyond ASCII
        here = f"{at}.{name}Base64"
        yield wrong(here, f"{here} is not a valid base64 value.")
        return
    if size > _INLINE_MAX:
        given = f"{name}Base64" if encoded else name
        message = (
            f"{at}.{given} {name.lower()} exceeds {_INLINE_MAX} byte limit."
            f" Should use {secret} for larger data."
        )
        yield wrong(f"{at}.{given}", message)
