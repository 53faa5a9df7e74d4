"""POST: a new object."""

from __future__ import annotations

from datetime import datetime

from livevirt.errors import BadRequest
from livevirt.kube.objects import core, names, refusals, structural, times
from livevirt.kube.objects.managed_fields import Entry
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.objects.review import Review, Rules
from livevirt.kube.server import managed, objects, options
from livevirt.kube.server import services as server_services
from livevirt.kube.server.incoming import receive
from livevirt.kube.server.services import Services, check
from livevirt.kube.store import Exists, Put, Stale

_NAME_TRIES = 8  # a generated name that is taken is drawn again
_SERVER_METADATA = {
    "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
    "resourceVersion", "managedFields",
}  # fmt: skip


async def create(services: Services, request: Request) -> Answer:
    """Store a new object and answer with it."""
    options.check_write(request.options, "CreateOptions")
    obj, warnings = receive(request, request.body)
    return await create_object(services, request, obj, warnings)


async def create_object(
    services: Services,
    request: Request,
    obj: Object,
    warnings: list[str],
    entries: list[Entry] | None = None,
) -> Answer:
    """Store an object of the right shape; also what a PUT to a free name of some kinds does.

    `entries` are the managedFields of an apply.
    """
    kind = request.kind
    rules = services.rules_of(kind)
    meta = obj["metadata"]
    place(request, meta)
    review = services.review(request, "create", obj, None)
    generated = _own_metadata(meta, review.now)
    services.check_namespace(kind, request.namespace, meta.get("name", ""))
    _admit(request, review, rules, entries)
    warnings += review.warnings
    answer = None
    if not services.reader.list(core.QUOTA, request.namespace):
        answer = await _store(services, request, review, warnings, generated)
    if answer is None:  # creators meet at the quotas of their namespace
        meeting = objects.key_of(core.QUOTA, request.namespace, "")
        answer = await services.turns.write(
            meeting, lambda: _store(services, request, review, warnings, generated)
        )
    if answer is None:
        raise refusals.modified(core.QUOTA, request.namespace)
    return answer


async def _store(
    services: Services, request: Request, review: Review, warnings: list[str], generated: bool
) -> Answer | None:
    """Write a new object; None if its quotas were changed by another write meanwhile."""
    kind, obj = request.kind, review.new
    meta = obj["metadata"]
    for _ in range(_NAME_TRIES):
        charges = server_services.charge(services, review)
        if request.dry_run:
            _refuse_taken(services, request, meta["name"])
            return Answer(201, obj, tuple(warnings))
        key = objects.key_of(kind, request.namespace, meta["name"])
        try:
            stored, *_ = await services.store.write(
                Put(key, None, objects.writer(kind, obj)), *charges
            )
        except Exists:
            if not generated:
                raise refusals.already_exists(kind, meta["name"]) from None
            meta["name"] = names.generate(meta["generateName"])
        except Stale:
            return None
        else:
            return Answer(201, objects.body(kind, request.version, stored), tuple(warnings))
    raise refusals.already_exists(kind, meta["name"])


def place(request: Request, meta: Object) -> None:
    """Put the object into the request's namespace, or refuse another one."""
    if not request.kind.namespaced:
        meta.pop("namespace", None)
        return
    if meta.setdefault("namespace", request.namespace) != request.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _own_metadata(meta: Object, now: datetime) -> bool:
    """Set what belongs to the server; return whether the name was generated."""
    if meta.get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    for name in _SERVER_METADATA & meta.keys():
        del meta[name]
    meta["uid"] = names.unique_id()
    meta["creationTimestamp"] = times.format_time(now)
    if meta.get("name") or not meta.get("generateName"):
        return False
    meta["name"] = names.generate(meta["generateName"])
    return True


def _admit(request: Request, review: Review, rules: Rules, entries: list[Entry] | None) -> None:
    """Default, prepare and check a new object."""
    kind, obj = review.kind, review.new
    if "status" in obj and kind.has_status:
        if kind.custom:
            del obj["status"]
        elif not rules.creates_with_status:
            obj["status"] = {}
    if server_services.counted(kind):
        obj["metadata"]["generation"] = 1
    if kind.custom:
        errors = structural.validate(kind.schema(review.version), obj)
        if errors:
            raise refusals.invalid(kind, obj["metadata"].get("name", ""), errors)
    else:
        rules.default(obj)
    if entries is None:
        managed.track_create(request, obj, review.now)
    else:
        managed.record(obj, entries)
    if kind.custom:  # as a webhook does: what it fills in has no owner
        rules.default(obj)
    server_services.limit(review)
    rules.prepare(review)
    check(review, rules)


def _refuse_taken(services: Services, request: Request, name: str) -> None:
    if services.store.get(objects.key_of(request.kind, request.namespace, name)) is not None:
        raise refusals.already_exists(request.kind, name)
