"""The forms both clients share: query options, bodies, pages, and what a refusal is read as."""

from __future__ import annotations

from typing import Any

import msgspec

from livevirt.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
)
from livevirt.kube.client.interface import PatchType
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Page

JSON = "application/json"
PATCH_TYPES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}

# For answers that are not a Status, such as a proxy's.
_BY_CODE: dict[int, type[ApiError]] = {
    kind.code: kind
    for kind in (
        BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, Conflict,
        Expired, RequestEntityTooLarge, UnsupportedMediaType, Invalid, TooManyRequests, Timeout,
    )
}  # fmt: skip


def selection(
    *, labels: str = "", fields: str = "", limit: int = 0, continue_: str = ""
) -> dict[str, str]:
    """Return the query options that choose among the objects of a collection."""
    options = {
        "labelSelector": labels,
        "fieldSelector": fields,
        "limit": str(limit) if limit else "",
        "continue": continue_,
    }
    return {name: value for name, value in options.items() if value}


def watching(resource_version: str, bookmarks: bool) -> dict[str, str]:
    """Return the query options of a watch, besides its selection."""
    options = {"watch": "true"}
    if resource_version:
        options["resourceVersion"] = resource_version
    if bookmarks:
        options["allowWatchBookmarks"] = "true"
    return options


def patching(type_: PatchType, manager: str, dry_run: bool = False) -> dict[str, str]:
    """Return the query options of a patch.

    An apply names its manager and takes over fields that others own: a caller that applies through
    this client decides for these fields, and could do nothing about a conflict.
    """
    options = {"fieldManager": manager, "force": "true"} if type_ == "apply" else {}
    return options | ({"dryRun": "All"} if dry_run else {})


def delete_options(
    *,
    uid: str = "",
    resource_version: str = "",
    grace_seconds: int | None = None,
    propagation: str = "",
) -> Object:
    """Return the body of a delete."""
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    conditions = {"uid": uid, "resourceVersion": resource_version}
    if any(conditions.values()):
        options["preconditions"] = {name: value for name, value in conditions.items() if value}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if propagation:
        options["propagationPolicy"] = propagation
    return options


def namespace_of(obj: Any) -> str:
    """Return the namespace in an object's metadata, or nothing."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return namespace or ""


def version_for(kind: Kind, obj: Any) -> str:
    """Return the version to write an object in: its own where we serve that, else the preferred.

    A server refuses an object with another version than the path.
    """
    said = obj.get("apiVersion") if isinstance(obj, dict) else None
    return next((v for v in kind.versions if kind.api_version_of(v) == said), kind.version)


def page_of(kind: Kind, body: Object) -> Page:
    """Return the page a List object holds; every item has its kind, as single objects do."""
    metadata = body.get("metadata") or {}
    said = {"apiVersion": body.get("apiVersion") or kind.api_version, "kind": kind.kind}
    items = [
        item if item.get("kind") else said | item  # a typed list leaves it out of the items
        for item in body.get("items") or ()
    ]
    return Page(items, metadata.get("resourceVersion") or "", metadata.get("continue") or "")


def refusal(status: Object, code: int) -> ApiError:
    """Return the error that a Status, or an answer without one, stands for."""
    code = status.get("code") or code
    known = _BY_CODE.get(code)
    if known is not None and (not status.get("reason") or known is Expired):
        # "Gone" and "Expired" ask the same of us.
        status = status | {"reason": known.reason}
    return ApiError.of(status, code)


def decoded(body: Object | bytes) -> Object:
    """Return an answer as an object; no bytes are an empty one."""
    if isinstance(body, dict):
        return body
    return decode(body) if body else {}


decode = msgspec.json.Decoder(dict[str, Any]).decode
encode = msgspec.json.Encoder().encode
