"""DELETE: of one object, at once or by steps, and of a collection."""

from __future__ import annotations

from datetime import timedelta

from livevirt.errors import NotFound
from livevirt.kube.objects import refusals, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import objects, options
from livevirt.kube.server import services as server_services
from livevirt.kube.server.options import DeleteOptions
from livevirt.kube.server.read import list_objects
from livevirt.kube.server.services import Services
from livevirt.kube.store import Delete, Missing, Put, Stale, Stored

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_LONGEST_GRACE = 1 << 31  # seconds; a calendar ends somewhere


async def delete(services: Services, request: Request) -> Answer:
    """Delete one object, or mark it where something must happen first."""
    how = options.read_delete(request.options, request.body)
    kind = request.kind
    answer, gone = await delete_one(services, request, how)
    if not gone or services.rules_of(kind).delete_returns_object:
        return Answer(200, answer)
    meta = answer["metadata"]
    return Answer(
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": refusals.details(kind, meta["name"], uid=meta["uid"]),
        },
    )


async def delete_collection(services: Services, request: Request) -> Answer:
    """Delete everything a list would show and answer with that list."""
    how = options.read_delete(request.options, request.body)
    kind, version = request.kind, request.version
    found, revision = list_objects(services, request)
    items = []
    for obj in found:
        meta = obj["metadata"]
        one = Request(
            "delete", kind, version, request.user, meta.get("namespace", ""), meta["name"],
            options=request.options,
        )  # fmt: skip
        try:
            items.append((await delete_one(services, one, how))[0])
        except NotFound:
            continue  # another client was faster, which is what was asked for
    if not kind.custom:
        items = [{k: v for k, v in i.items() if k not in ("kind", "apiVersion")} for i in items]
    return Answer(
        200,
        {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version_of(version),
            "metadata": {"resourceVersion": str(revision)},
            "items": items,
        },
    )


async def delete_one(
    services: Services, request: Request, how: DeleteOptions
) -> tuple[Object, bool]:
    """Delete an object; return its last state and whether it is gone."""
    key = objects.key_of(request.kind, request.namespace, request.name)
    done = await services.turns.write(key, lambda: _try(services, request, how))
    if done is None:
        raise refusals.modified(request.kind, request.name)
    return done


async def _try(
    services: Services, request: Request, how: DeleteOptions
) -> tuple[Object, bool] | None:
    """Delete an object as it is now; None if it changed meanwhile."""
    kind, version = request.kind, request.version
    rules = services.rules_of(kind)
    stored = services.stored(request)
    obj = objects.read(kind, version, stored.value)
    check_preconditions(kind, request.name, how, obj)
    rules.check_delete(services.review(request, "delete", obj, obj))
    gone, changed = mark(kind, obj, how, rules.grace(obj, how.grace), services)
    if how.dry_run or not changed:
        return obj, gone
    operation = _operation(kind, obj, stored, gone)
    try:
        written, *_ = await services.store.write(operation)
    except (Stale, Missing):
        return None
    return objects.read(kind, version, written.value), gone


def _operation(kind: Kind, obj: Object, stored: Stored, gone: bool) -> Put | Delete:
    write = objects.writer(kind, obj)
    if gone:
        return Delete(stored.key, stored.revision, write)
    return Put(stored.key, stored.revision, write)


def mark(
    kind: Kind, obj: Object, how: DeleteOptions, grace: int, services: Services
) -> tuple[bool, bool]:
    """Do to `obj` what deleting does; return whether it is gone and whether anything changed."""
    meta = obj["metadata"]
    grace = min(grace, _LONGEST_GRACE)
    finalizers = _finalizers(meta, how)
    held = services.rules_of(kind).held(obj)
    if not finalizers and grace == 0 and not held:
        meta.pop("finalizers", None)
        return True, True
    before = (meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds"))
    if "deletionTimestamp" not in meta:
        if server_services.counted(kind):
            meta["generation"] = meta.get("generation", 0) + 1
        meta["deletionTimestamp"] = times.format_time(services.now() + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
    elif grace < meta.get("deletionGracePeriodSeconds", 0):
        was = times.parse_time(meta["deletionTimestamp"])
        asked = was - timedelta(seconds=meta["deletionGracePeriodSeconds"])
        meta["deletionTimestamp"] = times.format_time(asked + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
    changed = before != (meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds"))
    if finalizers != meta.get("finalizers", []):
        meta["finalizers"] = finalizers
        changed = True
    services.rules_of(kind).on_marked(obj)
    return False, changed


def _finalizers(meta: Object, how: DeleteOptions) -> list[str]:
    """Return the finalizers the chosen propagation policy leaves on the object."""
    found = list(meta.get("finalizers", []))
    if not how.propagation:
        return found
    found = [name for name in found if name not in (FOREGROUND, ORPHAN)]
    if how.propagation == "Foreground":
        found.append(FOREGROUND)
    elif how.propagation == "Orphan":
        found.append(ORPHAN)
    return found


def check_preconditions(kind: Kind, name: str, how: DeleteOptions, obj: Object) -> None:
    """Refuse to delete another object, or another version of it, than the options name."""
    meta = obj["metadata"]
    if how.uid and how.uid != meta["uid"]:
        raise refusals.precondition(kind, name, "UID", how.uid, meta["uid"])
    if how.resource_version and how.resource_version != meta["resourceVersion"]:
        raise refusals.precondition(
            kind, name, "ResourceVersion", how.resource_version, meta["resourceVersion"]
        )
