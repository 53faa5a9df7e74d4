"""PUT and PATCH: an object becomes another version of itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from livevirt.errors import BadRequest, Invalid
from livevirt.kube.objects import field_error, refusals, structural
from livevirt.kube.objects.managed_fields import Entry
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import incoming, managed, objects, options, patches
from livevirt.kube.server import services as server_services
from livevirt.kube.server.create import create_object, place
from livevirt.kube.server.incoming import receive, receive_patched
from livevirt.kube.server.services import Services, check
from livevirt.kube.store import Delete, Missing, Put, Stale, Stored


class Wanted(NamedTuple):
    """What an object is to become."""

    object: Object
    warnings: list[str]
    conditional: bool  # whether its version must match that of the stored object
    entries: list[Entry] | None = None  # its managedFields after an apply


#: Takes the stored object.
WantedOf = Callable[[Object], Wanted]


async def update(services: Services, request: Request) -> Answer:
    """Replace an object (PUT)."""
    options.check_write(request.options, "UpdateOptions")
    kind = request.kind
    new, warnings = receive(request, managed.with_reset(request.body))
    meta = new["metadata"]
    place(request, meta)
    check_name(request, meta)
    rules = services.rules_of(kind)
    if rules.put_creates and not request.subresource:
        taken = services.store.get(objects.key_of(kind, request.namespace, request.name))
        if taken is None:
            meta.pop("resourceVersion", None)
            return await create_object(services, request, new, warnings)
    conditional = bool(meta.get("resourceVersion"))
    must_be_conditional = kind.custom or not rules.unconditional_update

    def wanted(old: Object) -> Wanted:
        if must_be_conditional and not conditional:
            errors = [
                field_error.invalid(
                    "metadata.resourceVersion", 0, "must be specified for an update"
                )
            ]
            refusal = refusals.invalid(kind, request.name, errors)
            refusal.details["kind"] = kind.plural
            raise refusal
        return Wanted(copy.deepcopy(new), list(warnings), conditional)

    return await write(services, request, wanted)


def check_name(request: Request, meta: Object) -> None:
    """Refuse an object of another name than the path has."""
    if not meta.get("name"):
        raise BadRequest(
            f"the name of the object ({request.name} based on URL) was undeterminable:"
            " name must be provided"
        )
    if meta["name"] != request.name:
        raise BadRequest(
            f"the name of the object ({meta['name']}) does not match the name on the URL"
            f" ({request.name})"
        )


async def patch(services: Services, request: Request) -> Answer:
    """Change what a patch names (PATCH)."""
    options.check_patch(request.options)
    kind, version = request.kind, request.version
    apply = patches.applier(request.patch, kind)

    def wanted(old: Object) -> Wanted:
        try:
            patched = apply(old, request.body, kind.schema(version))
        except Invalid as error:
            errors = [field_error.invalid("patch", str(request.body)[:200], error.message)]
            raise Invalid(
                error.message,
                details=refusals.details(kind, request.name, causes=refusals.causes(errors)),
            ) from None
        _check_identity(request, patched, old)
        new, warnings = receive_patched(request, managed.with_reset(patched))
        named = new["metadata"].get("resourceVersion")
        return Wanted(new, warnings, _patch_names_version(request.body) and bool(named))

    return await write(services, request, wanted)


def _patch_names_version(body: Any) -> bool:
    """Return whether a merge patch itself sets resourceVersion, which makes it conditional."""
    if isinstance(body, dict):
        meta = body.get("metadata")
        return isinstance(meta, dict) and "resourceVersion" in meta
    if isinstance(body, list):
        return any(
            isinstance(op, dict) and op.get("path") == "/metadata/resourceVersion" for op in body
        )
    return False


def _check_identity(request: Request, new: Object, old: Object) -> None:
    """Refuse a patch that turns the object into another one."""
    meta = new.get("metadata")
    if not isinstance(meta, dict):
        raise BadRequest("a patch may not remove or replace the object's metadata")
    for part in ("kind", "apiVersion"):
        if new.get(part, old[part]) != old[part]:
            why = f"the {part} in the patch ({new[part]}) does not match the object ({old[part]})"
            raise incoming.invalid_patch(request, why)
    if meta.get("name") != old["metadata"]["name"]:
        raise BadRequest(
            f"the name of the object ({meta.get('name')}) does not match the name on the URL"
            f" ({request.name})"
        )
    if meta.get("namespace") != old["metadata"].get("namespace"):
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


async def write(services: Services, request: Request, wanted: WantedOf) -> Answer:
    """Bring the stored object to what is wanted, retrying when that does no harm."""
    key = objects.key_of(request.kind, request.namespace, request.name)
    answer = await services.turns.write(key, lambda: _try(services, request, wanted))
    if answer is None:
        raise refusals.modified(request.kind, request.name)
    return answer


async def _try(services: Services, request: Request, wanted: WantedOf) -> Answer | None:
    """Write what is wanted; None if another writer was faster and it may be retried."""
    kind, version = request.kind, request.version
    stored = services.stored(request)
    old = objects.read(kind, version, stored.value)
    new, warnings, conditional, entries = wanted(old)
    if conditional and new["metadata"].get("resourceVersion") != str(stored.revision):
        raise refusals.modified(kind, request.name)
    changed, admitted, charges = _admit(services, request, new, old, entries)
    warnings += admitted
    if not changed:
        return Answer(200, objects.body(kind, version, stored), tuple(warnings))
    if request.dry_run:
        return Answer(200, new, tuple(warnings))
    try:
        written = await _put(services, request, new, stored, charges)
    except (Stale, Missing) as error:
        if isinstance(error, Stale) and conditional and error.key == stored.key:
            raise refusals.modified(kind, request.name) from None
        return None
    return Answer(200, objects.body(kind, version, written), tuple(warnings))


async def _put(
    services: Services, request: Request, new: Object, stored: Stored, charges: list[Put]
) -> Stored:
    """Write a new version; an object that was only held by finalizers goes with the last one."""
    kind, meta = request.kind, new["metadata"]
    gone = (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not services.rules_of(kind).held(new)
    )
    if gone:  # watchers see the object as it last stood, the caller what it asked for
        last = objects.writer(kind, objects.decode(stored.value))
        deleted, *_ = await services.store.write(
            Delete(stored.key, stored.revision, last), *charges
        )
        return deleted._replace(value=objects.writer(kind, new)(deleted.revision))
    put = Put(stored.key, stored.revision, objects.writer(kind, new))
    written, *_ = await services.store.write(put, *charges)
    return written


def _admit(
    services: Services, request: Request, new: Object, old: Object, entries: list[Entry] | None
) -> tuple[bool, list[str], list[Put]]:
    """Apply every rule to a change; return whether anything changed at all."""
    kind = request.kind
    rules = services.rules_of(kind)
    review = services.review(request, "update", new, old)
    _keep_server_metadata(request, new, old)
    if request.subresource:
        rules.through(request.subresource, review)
    elif kind.has_status:
        _keep(new, old, "status")
    if kind.custom:
        errors = structural.validate_update(kind.schema(request.version), new, old)
        if errors:
            raise refusals.invalid(kind, request.name, errors)
    else:
        rules.default(new)
    if entries is None:
        managed.track_update(request, new, old, review.now)
    else:
        managed.record(new, entries)
    if kind.custom:  # as a webhook does: what it fills in has no owner
        rules.default(new)
    if request.subresource == "resize":
        server_services.limit(review)
    rules.prepare(review)
    server_services.bump(kind, new, old)
    check(review, rules)
    changed = managed.changes(new, old)
    charges = server_services.charge(services, review) if changed else []
    return changed, review.warnings, charges


def _keep(new: Object, old: Object, name: str) -> None:
    if name in old:
        new[name] = copy.deepcopy(old[name])
    else:
        new.pop(name, None)


def _keep_server_metadata(request: Request, new: Object, old: Object) -> None:
    meta, was = new["metadata"], old["metadata"]
    if request.verb == "update" and meta.get("uid") and meta["uid"] != was["uid"]:
        raise refusals.precondition(request.kind, request.name, "UID", meta["uid"], was["uid"])
    meta.pop("selfLink", None)
    meta.setdefault("uid", was["uid"])  # a patch to another uid is refused as immutable
    for name in ("creationTimestamp", "generation", "resourceVersion"):
        if name in was:
            meta[name] = was[name]
        else:
            meta.pop(name, None)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if name in was:
            meta.setdefault(name, was[name])
