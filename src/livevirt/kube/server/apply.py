"""PATCH with a configuration: server-side apply."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from typing import Any

from livevirt.errors import AlreadyExists, ApiError, BadRequest, Conflict
from livevirt.kube.objects import apply as values
from livevirt.kube.objects import field_error, field_sets, managed_fields, metadata, refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.managed_fields import Conflicts, Entry
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.objects.structural import shape
from livevirt.kube.server import change, managed, objects, options
from livevirt.kube.server.create import create_object
from livevirt.kube.server.services import Services

_TRIES = 8  # an object that is created and deleted meanwhile is tried again
_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def apply(services: Services, request: Request) -> Answer:
    """Bring an object to an applied configuration; create it if there is none."""
    options.check_apply(request.options)
    _check_type(request)
    key = objects.key_of(request.kind, request.namespace, request.name)

    def wanted(old: Object) -> change.Wanted:
        new, entries, warnings = _applied(request, old, services.now())
        named = (request.body.get("metadata") or {}).get("resourceVersion")
        return change.Wanted(new, warnings, bool(named), entries)

    for _ in range(_TRIES):
        if request.subresource or services.store.get(key) is not None:
            return await change.write(services, request, wanted)
        new, entries, warnings = _applied(request, None, services.now())
        services.check_space()
        try:
            return await create_object(services, request, new, warnings, entries)
        except AlreadyExists:
            continue
    raise refusals.modified(request.kind, request.name)


def _check_type(request: Request) -> None:
    """Refuse a body that is not a configuration of the right kind and version."""
    body, kind = request.body, request.kind
    if not isinstance(body, dict):
        raise BadRequest("error decoding patch: an applied configuration is an object")
    api_version, name = body.get("apiVersion") or "", body.get("kind") or ""
    if api_version != kind.api_version_of(request.version) or name != kind.kind:
        group, _, version = str(api_version).rpartition("/")
        raise BadRequest(f"invalid object type: {group}/{version}, Kind={name}")
    meta = body.get("metadata")
    if isinstance(meta, dict) and meta.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    if request.duplicates and request.options.get("fieldValidation") == "Strict":
        found = ", ".join(f'duplicate field "{path}"' for path in request.duplicates)
        raise BadRequest(f"error strict decoding patch: {found}")


def _applied(
    request: Request, old: Object | None, now: datetime
) -> tuple[Object, list[Entry], list[str]]:
    """Return an object with the configuration applied, its entries, and warnings."""
    kind = request.kind
    versions = managed.versions_of(kind, request.version)
    type_ = versions.type_of(kind.api_version_of(request.version))
    assert type_ is not None
    config: Object = request.body
    if found := values.problems(type_, config):
        shown = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
        raise _refused("failed to create typed patch object", kind, request.version, config, shown)
    live = {"metadata": {}} if old is None else old
    entries = managed.stored_entries(live)
    writer = managed.writer(request, now, values.fields_of(type_, config))
    force = options.flag(request.options, "force")
    try:
        try:
            new, entries = managed_fields.applied(versions, live, config, entries, writer, force)
        except Conflicts as conflicts:
            if writer.manager != _KUBECTL:
                raise
            _allow_client_side(request, live, conflicts)
            new, entries = managed_fields.applied(versions, live, config, entries, writer, True)
    except Conflicts as conflicts:
        raise _conflict(conflicts) from None
    if writer.manager == _KUBECTL:
        new = _with_last_applied(new, config)
    _check_identity(request, new, old)
    try:
        shaped, _ = shape(kind, request.version, copy.deepcopy(new))
    except BadRequest as error:
        what = "failed to convert new object"
        raise _refused(what, kind, request.version, config, error.message) from None
    return shaped, entries, _warnings(request)


def _check_identity(request: Request, new: Object, old: Object | None) -> None:
    """Refuse a configuration of another object than the one of the path."""
    meta = new["metadata"]
    if old is None and meta.get("uid"):
        why = (
            f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing"
            " object was found"
        )
        raise refusals.conflict(request.kind, request.name, why)
    if meta.setdefault("namespace", request.namespace or None) != (request.namespace or None):
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    change.check_name(request, meta)
    if old is None:
        meta.pop("resourceVersion", None)


# ---------------------------------------------------------------- client-side apply


def _allow_client_side(request: Request, live: Object, conflicts: Conflicts) -> None:
    """Raise those conflicts that are not about fields of the last client-side apply."""
    try:
        last = json.loads(_last_applied(live) or "null")
    except ValueError:
        raise conflicts from None
    kind, version = request.kind, request.version
    type_ = managed.versions_of(kind, version).type_of(kind.api_version_of(version))
    if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"] or not type_:
        raise conflicts
    if values.problems(type_, last):
        raise conflicts
    allowed = set(field_sets.paths(managed_fields.agreed_fields(type_, last, live)))
    left = [each for each in conflicts.found if each.path not in allowed]
    if left:
        raise Conflicts(left)


def _last_applied(obj: Object) -> str:
    found = (obj["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    return found if isinstance(found, str) else ""


def _with_last_applied(new: Object, config: Object) -> Object:
    """Return the object with the configuration in its annotation, if client-side apply made one.

    So that a later client-side apply knows what has been applied since.
    """
    if not _last_applied(new):
        return new
    config = copy.deepcopy(config)
    annotations = (config.get("metadata") or {}).get("annotations") or {}
    annotations.pop(_LAST_APPLIED, None)
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    changed = {**new["metadata"]["annotations"], _LAST_APPLIED: text}
    size = sum(len(part.encode()) for pair in changed.items() for part in pair)
    if size > metadata.ANNOTATIONS_MAX:
        del changed[_LAST_APPLIED]
    return {**new, "metadata": {**new["metadata"], "annotations": changed}}


# ---------------------------------------------------------------- refusals


def _warnings(request: Request) -> list[str]:
    if request.options.get("fieldValidation") == "Ignore":
        return []
    return [f'duplicate field "{path}"' for path in request.duplicates]


def _refused(what: str, kind: Kind, version: str, config: Object, why: str) -> ApiError:
    """Return the refusal of a configuration that does not fit the schema.

    kube-apiserver answers 500 without a reason.
    """
    meta: Any = config.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    named = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
    type_ = f"{kind.group}/{version}, Kind={kind.kind}"
    return ApiError(f"{what} ({named}; {type_}): {why}", code=500, reason="")


def _conflict(conflicts: Conflicts) -> Conflict:
    """Return the refusal that lists every field of another manager."""
    found = [(_manager(each.entry), field_sets.path_text(each.path)) for each in conflicts.found]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in found
    ]
    if len(found) == 1:
        manager, path = found[0]
        message = f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    else:
        lines = []
        for manager in sorted({manager for manager, _ in found}):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {path}" for owner, path in found if owner == manager]
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    return Conflict(message, details={"causes": causes})


def _manager(entry: Entry) -> str:
    shown = field_error.quote(entry.get("manager", ""))
    if entry.get("subresource"):
        shown += f" with subresource {field_error.quote(entry['subresource'])}"
    if entry["operation"] == managed_fields.UPDATE:
        shown += f" using {entry.get('apiVersion', '')}"
    return shown
