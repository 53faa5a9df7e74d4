"""What is wrong with the volumes of a pod."""

from __future__ import annotations

from livevirt.kube.objects import field_checks, names
from livevirt.kube.objects.field_checks import named, one_of
from livevirt.kube.objects.field_error import FieldError, duplicate, forbidden, required
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.schema import definitions

HOST_PATH_TYPES = frozenset(
    [
        "DirectoryOrCreate",
        "Directory",
        "FileOrCreate",
        "File",
        "Socket",
        "CharDevice",
        "BlockDevice",
    ]
)
# Fields a source cannot do without, where nothing else is to be said of it.
_NEEDED = {
    "persistentVolumeClaim": ("claimName",),
    "configMap": ("name",),
    "secret": ("secretName",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
    "iscsi": ("targetPortal", "iqn"),
    "image": ("reference",),
}


def validate_volumes(volumes: list[Object]) -> list[FieldError]:
    """List what is wrong with `spec.volumes`."""
    found: list[FieldError] = []
    taken: set[str] = set()
    sources = definitions()["core.VolumeSource"].fields
    for at, volume in enumerate(volumes):
        path = f"spec.volumes[{at}]"
        name = volume.get("name", "")
        found += named(f"{path}.name", name, names.validate_dns1123_label)
        if name and name in taken:
            found.append(duplicate(f"{path}.name", name))
        taken.add(name)
        found += field_checks.single_source(path, volume, sources)
        for kind in volume.keys() & sources.keys():
            found += _source_errors(f"{path}.{kind}", kind, volume[kind])
    return found


def _source_errors(path: str, kind: str, source: Object) -> list[FieldError]:
    found = [required(f"{path}.{key}") for key in _NEEDED.get(kind, ()) if not source.get(key)]
    match kind:
        case "configMap" | "secret":
            found += field_checks.mode(f"{path}.defaultMode", source.get("defaultMode"))
            found += _item_errors(f"{path}.items", source.get("items") or [])
        case "downwardAPI":
            found += field_checks.mode(f"{path}.defaultMode", source.get("defaultMode"))
            found += _downward_errors(f"{path}.items", source.get("items") or [])
        case "hostPath":
            place = source.get("path", "")
            found += (
                field_checks.no_climbing(f"{path}.path", place)
                if place
                else [required(f"{path}.path")]
            )
            if source.get("type"):
                found += one_of(f"{path}.type", source["type"], HOST_PATH_TYPES)
        case "emptyDir":
            limit = source.get("sizeLimit")
            if limit is not None and parse(limit).nano < 0:
                why = "SizeLimit field must be a valid resource quantity"
                found.append(forbidden(f"{path}.sizeLimit", why))
        case "projected":
            found += _projected_errors(path, source)
        case "ephemeral":
            if source.get("volumeClaimTemplate") is None:
                found.append(required(f"{path}.volumeClaimTemplate"))
    return found


def _item_errors(path: str, items: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for at, item in enumerate(items):
        here = f"{path}[{at}]"
        if not item.get("key"):
            found.append(required(f"{here}.key"))
        found += _file_errors(here, item)
    return found


def _downward_errors(path: str, items: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for at, item in enumerate(items):
        here = f"{path}[{at}]"
        found += _file_errors(here, item)
        if item.get("fieldRef") is None and item.get("resourceFieldRef") is None:
            found.append(required(here, "one of fieldRef and resourceFieldRef is required"))
    return found


def _file_errors(path: str, item: Object) -> list[FieldError]:
    place = item.get("path", "")
    found = (
        field_checks.relative_path(f"{path}.path", place) if place else [required(f"{path}.path")]
    )
    return found + field_checks.mode(f"{path}.mode", item.get("mode"))


def _projected_errors(path: str, source: Object) -> list[FieldError]:
    found = field_checks.mode(f"{path}.defaultMode", source.get("defaultMode"))
    for at, projection in enumerate(source.get("sources") or ()):
        here = f"{path}.sources[{at}]"
        if len(projection) > 1:
            found += [
                forbidden(f"{here}.{extra}", "may not specify more than 1 volume type")
                for extra in list(projection)[1:]
            ]
        for kind in ("configMap", "secret"):
            if (given := projection.get(kind)) is not None:
                if not given.get("name"):
                    found.append(required(f"{here}.{kind}.name"))
                found += _item_errors(f"{here}.{kind}.items", given.get("items") or [])
        if (given := projection.get("downwardAPI")) is not None:
            found += _downward_errors(f"{here}.downwardAPI.items", given.get("items") or [])
        if (given := projection.get("serviceAccountToken")) is not None and not given.get("path"):
            found.append(required(f"{here}.serviceAccountToken.path"))
    return found
