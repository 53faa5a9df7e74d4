"""Bodies on their way in: the right kind, known fields only, typed or pruned."""

from __future__ import annotations

from typing import Any

from livevirt.errors import BadRequest, Invalid
from livevirt.kube.objects import field_error, refusals
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, Request
from livevirt.kube.objects.structural import shape


def receive(request: Request, body: Any) -> tuple[Object, list[str]]:
    """Return a request's body as an object of its kind, with the warnings it deserves."""
    return _receive(request.kind, request.version, request, body)


def receive_as(kind: Kind, request: Request) -> Object:
    """Return the body of a request to an object of another kind, such as a Binding to a pod."""
    return _receive(kind, kind.version, request, request.body)[0]


def _receive(kind: Kind, version: str, request: Request, body: Any) -> tuple[Object, list[str]]:
    if not isinstance(body, dict):
        raise BadRequest(f"the body must be a {kind.kind} object, not {type(body).__name__}")
    _check_type_meta(kind, version, body)
    try:
        obj, unknown = shape(kind, version, body)
    except BadRequest as error:
        raise BadRequest(_cannot_handle(kind, version, error.message)) from None
    found = [f'unknown field "{path}"' for path in unknown]
    found += [f'duplicate field "{path}"' for path in request.duplicates]
    if found and request.options.get("fieldValidation") == "Strict":
        raise BadRequest(
            _cannot_handle(kind, version, f"strict decoding error: {', '.join(found)}")
        )
    return obj, [] if request.options.get("fieldValidation") == "Ignore" else found


def receive_patched(request: Request, body: Object) -> tuple[Object, list[str]]:
    """Return the result of a patch as an object of its kind, with warnings."""
    try:
        obj, unknown = shape(request.kind, request.version, body)
    except BadRequest as error:
        raise invalid_patch(request, error.message) from None
    found = [f'unknown field "{path}"' for path in unknown]
    found += [f'duplicate field "{path}"' for path in request.duplicates]
    if found and request.options.get("fieldValidation") == "Strict":
        raise invalid_patch(request, f"strict decoding error: {', '.join(found)}")
    return obj, [] if request.options.get("fieldValidation") == "Ignore" else found


def invalid_patch(request: Request, why: str) -> Invalid:
    """Return the refusal of a patch whose result cannot be an object of its kind."""
    errors = [field_error.invalid("patch", _shown(request.body), why)]
    return Invalid(f' "" is invalid: {errors[0]}', details={"causes": refusals.causes(errors)})


def _check_type_meta(kind: Kind, version: str, body: Object) -> None:
    api_version, name = body.get("apiVersion"), body.get("kind")
    for part, given in (("apiVersion", api_version), ("kind", name)):
        if given is not None and not isinstance(given, str):
            raise BadRequest(f"the {part} of the body must be a string")
    wanted = kind.api_version_of(version)
    if not kind.custom:
        api_version = api_version or wanted
        name = name or kind.kind
    if not name or not api_version:
        missing = "Kind" if not name else "apiVersion"
        raise BadRequest(f"Object '{missing}' is missing in the body")
    if api_version != wanted:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version"
            f" ({wanted})"
        )
    if name != kind.kind:
        if kind.custom and isinstance(name, str):
            errors = [field_error.invalid("kind", name, f"must be {kind.kind}")]
            meta = body.get("metadata")
            called = meta.get("name", "") if isinstance(meta, dict) else ""
            raise refusals.invalid(kind, str(called), errors, kind_name=name)
        raise BadRequest(f"{name} in version {api_version!r} cannot be handled as a {kind.kind}")


def _cannot_handle(kind: Kind, version: str, why: str) -> str:
    return f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: {why}'


def _shown(patch: Any) -> str:
    text = repr(patch)
    return text if len(text) <= 500 else text[:500] + "…"
