"""DataVolumes: a claim and exactly one thing to fill it with, which cannot be changed later."""

from __future__ import annotations

from urllib.parse import urlsplit

from livevirt.kube.objects import core, names
from livevirt.kube.objects import storage as claims
from livevirt.kube.objects.field_checks import named, optional_one_of
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid, required
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Get, Review, Rules

SERVED = ("blank", "http", "pvc", "registry")  # what is acted on
CONTENT_TYPES = frozenset({"kubevirt", "archive"})
_MISSING_STORAGE = "Missing Data volume PVC or Storage"
_TWO_STORAGES = "Duplicate storage definition, both target storage and target pvc defined"
_MISSING_SOURCE = "Missing dataVolume valid source"
_TWO_SOURCES = "Multiple dataVolume sources"
_SOURCE_AND_REF = "Data volume should have either Source, SourceRef, or be externally populated"
_POPULATED_TWICE = "External population is incompatible with Source and SourceRef"


class DataVolumeRules(Rules):
    """What a DataVolume must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the DataVolume; warn of what has no effect."""
        new, old = review.new, review.old
        if review.subresource:
            return []
        spec = new.get("spec") or {}
        if old is not None:
            if spec == (old.get("spec") or {}):
                return []
            return [forbidden("spec", "Cannot update DataVolume Spec")]
        found = spec_errors("spec", spec)
        if not found:
            review.warnings += warnings("spec", spec)
            review.warnings += class_warnings("spec", spec, review.read.get)
        return found


def spec_errors(path: str, spec: Object) -> list[FieldError]:
    """List what is wrong with a DataVolume's spec, wherever it stands."""
    found = _source_errors(path, spec)
    found += _storage_errors(path, spec)
    found += optional_one_of(f"{path}.contentType", spec.get("contentType") or None, CONTENT_TYPES)
    return found


def warnings(path: str, spec: Object) -> list[str]:
    """Name what is accepted and not acted on."""
    source = sorted(_chosen(spec))
    said = [f"{path}.source.{each} is not supported and will fail" for each in source
            if each not in SERVED]  # fmt: skip
    if spec.get("sourceRef"):
        said.append(f"{path}.sourceRef is not supported and will fail")
    if spec.get("contentType") == "archive":
        said.append(f"{path}.contentType archive is not supported and will fail")
    ignored = ("checkpoints", "finalCheckpoint", "priorityClassName")
    said += [f"{path}.{name} is not acted on" for name in ignored if spec.get(name)]
    return said


def class_warnings(path: str, spec: Object, get: Get) -> list[str]:
    """Return a warning of a StorageClass that a DataVolume's spec names and that does not exist."""
    part = "pvc" if spec.get("pvc") else "storage"
    name = (spec.get(part) or {}).get("storageClassName") or ""
    if not name or get(core.STORAGE_CLASS, name, "") is not None:
        return []
    return [
        f"{path}.{part}.storageClassName: there is no StorageClass {name}; the claim stays Pending"
        " until there is one, or a PersistentVolume of that class"
    ]


def _chosen(spec: Object) -> list[str]:
    source = spec.get("source") or {}
    return [name for name, value in source.items() if value is not None]


def _source_errors(path: str, spec: Object) -> list[FieldError]:
    chosen, reference = _chosen(spec), spec.get("sourceRef")
    populated = _populated(spec)
    if populated and (spec.get("source") is not None or reference is not None):
        return [forbidden(path, _POPULATED_TWICE)]
    if populated:
        return []
    if (spec.get("source") is None) == (reference is None):
        return [forbidden(path, _SOURCE_AND_REF)]
    if reference is not None:
        return _reference_errors(f"{path}.sourceRef", reference)
    if not chosen:
        return [required(f"{path}.source", _MISSING_SOURCE)]
    if len(chosen) > 1:
        return [forbidden(f"{path}.source", _TWO_SOURCES)]
    at, source = f"{path}.source.{chosen[0]}", spec["source"][chosen[0]]
    match chosen[0]:
        case "http":
            return _url_errors(f"{at}.url", source.get("url") or "", ("http", "https"))
        case "registry":
            return _registry_errors(at, source)
        case "pvc":
            return [
                *named(f"{at}.name", source.get("name", ""), names.validate_dns1123_subdomain),
                *named(
                    f"{at}.namespace",
                    source.get("namespace", ""),
                    names.validate_dns1123_label,
                    needed=False,
                ),
            ]
    return []


def _populated(spec: Object) -> bool:
    wanted = spec.get("pvc") or spec.get("storage") or {}
    return wanted.get("dataSource") is not None or wanted.get("dataSourceRef") is not None


def _reference_errors(path: str, reference: Object) -> list[FieldError]:
    found = [required(f"{path}.{key}") for key in ("kind", "name") if not reference.get(key)]
    if reference.get("kind") and reference["kind"] != "DataSource":
        found.append(invalid(f"{path}.kind", reference["kind"], "must be DataSource"))
    return found


def _url_errors(path: str, url: str, schemes: tuple[str, ...]) -> list[FieldError]:
    if not url:
        return [required(path, "source URL is empty")]
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [invalid(path, url, f"source URL is invalid: {error}")]
    if parts.scheme not in schemes or not parts.netloc:
        return [invalid(path, url, f"must start with {' or '.join(f'{s}://' for s in schemes)}")]
    return []


def _registry_errors(path: str, source: Object) -> list[FieldError]:
    url, stream = source.get("url"), source.get("imageStream")
    if (url is None) == (stream is None):
        return [forbidden(path, "exactly one of url and imageStream must be given")]
    method = source.get("pullMethod") or None
    found = optional_one_of(f"{path}.pullMethod", method, frozenset({"pod", "node"}))
    if url is not None and not url.startswith(("docker://", "oci-archive:")):
        found.append(invalid(f"{path}.url", url, "must start with docker:// or oci-archive:"))
    elif url == "docker://":
        found.append(invalid(f"{path}.url", url, "must name an image"))
    return found


def _storage_errors(path: str, spec: Object) -> list[FieldError]:
    claim, storage = spec.get("pvc"), spec.get("storage")
    if claim is None and storage is None:
        return [required(path, _MISSING_STORAGE)]
    if claim is not None and storage is not None:
        return [forbidden(f"{path}.storage", _TWO_STORAGES)]
    if claim is not None:
        return claims.spec_errors(f"{path}.pvc", claim)
    assert storage is not None
    return _sized_errors(f"{path}.storage", storage, copies=_copies(spec))


def _sized_errors(path: str, storage: Object, *, copies: bool) -> list[FieldError]:
    """Check a claim in which what is left out is chosen to suit."""
    modes = storage.get("accessModes") or []
    found = claims.access_mode_errors(f"{path}.accessModes", modes) if modes else []
    found += optional_one_of(
        f"{path}.volumeMode", storage.get("volumeMode") or None, claims.VOLUME_MODES
    )
    size = ((storage.get("resources") or {}).get("requests") or {}).get("storage")
    at_size = f"{path}.resources[storage]"
    if size is not None:
        found += claims.positive(at_size, "storage", size)
    elif not copies:
        found.append(required(at_size, "PVC size is missing"))
    class_name = storage.get("storageClassName") or ""
    found += named(
        f"{path}.storageClassName", class_name, names.validate_dns1123_subdomain, needed=False
    )
    return found


def _copies(spec: Object) -> bool:
    """Return whether the size can be that of what is copied."""
    return bool({"pvc", "snapshot"} & set(_chosen(spec))) or spec.get("sourceRef") is not None
