"""AdmissionReview and ConversionReview, answered by the rules the embedded server applies.

The rules look up other objects in informer caches. A cache may lag behind a write that was just
made, such as the instance type of a VM in the same file. So what it does not hold is read from the
API server before a rule may conclude that it does not exist, and a refusal is decided again from
objects that were read from the API server.
"""

from __future__ import annotations

import base64
import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import jsonpatch
import msgspec

from livevirt.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    LivevirtError,
    NotFound,
    TooManyRequests,
)
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.objects import core, refusals, structural
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Reader, Review, Rules
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules.matchers import Lookup, decide
from livevirt.vm.volumes import attachment_pods

log = logging.getLogger(__name__)

T = TypeVar("T")
ADMISSION, CONVERSION = "admission.k8s.io/v1", "apiextensions.k8s.io/v1"
_VERBS = {"CREATE": "create", "UPDATE": "update"}
_NO_RULES = Rules()


class LookupFailed(LivevirtError):
    """Something that a rule depends on could not be read, so that nothing can be decided."""


class EvictionGuard(Protocol):
    """Refuses the eviction of a pod by raising an ApiError."""

    async def __call__(self, pod: Object, *, dry_run: bool) -> None:
        """Return if the pod may be evicted."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The `request` of an AdmissionReview about one of our kinds."""

    uid: str
    kind: Kind
    version: str
    verb: str
    name: str
    subresource: str
    user: User
    dry_run: bool
    new: Object
    old: Object | None

    def review(self, read: Reader, now: Now) -> Review:
        """Return the write as the rules see it, with an object of its own to change."""
        return Review(
            self.verb, self.kind, self.version, copy.deepcopy(self.new), self.old, self.user, read,
            now(), self.subresource, self.dry_run,
        )  # fmt: skip

    def schema_errors(self) -> list[FieldError]:
        """List what breaks the schema, and what the rules rely on beyond it."""
        schema = self.kind.schema(self.version)
        if self.old is None:
            return structural.validate(schema, self.new)
        return structural.validate_update(schema, self.new, self.old)


class Caches:
    """A reader of admission: objects that were looked up, and informers for lists."""

    def __init__(self, lookup: Lookup, informers: Reader) -> None:
        self._lookup = lookup
        self._informers = informers

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, None if the API server has none."""
        return self._lookup.get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with "")."""
        return self._informers.list(kind, namespace)

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the other pods of that node use."""
        return self._informers.occupancy(node, instance)


@dataclass(frozen=True, slots=True)
class Admission:
    """Answers AdmissionReviews."""

    kinds: Mapping[tuple[str, str], Kind]  # by group and plural
    rules: Mapping[str, Rules]  # by resource
    informers: Reader
    client: Client
    guard: EvictionGuard
    now: Now

    async def default(self, body: Object) -> Object:
        """Answer with a patch of what the rules set in an object."""

        def patch(request: AdmissionRequest, read: Reader) -> Object:
            if request.schema_errors():
                return {}  # kube-apiserver refuses it next
            review = self._prepared(request, read)
            steps = jsonpatch.make_patch(request.new, review.new).patch
            if not steps:
                return {}
            packed = base64.b64encode(msgspec.json.encode(steps)).decode()
            return {"patchType": "JSONPatch", "patch": packed}

        return await self._answer(body, patch, self.informers)

    async def validate(self, body: Object) -> Object:
        """Answer whether the rules accept an object; a refusal never rests on a cached object."""

        def check(request: AdmissionRequest, read: Reader) -> Object:
            errors = request.schema_errors()
            if not errors:
                errors = self._rules_of(request).validate(request.review(read, self.now))
            if errors:
                raise refusals.invalid(request.kind, request.name, errors)
            return {}

        answer = await self._answer(body, check, self.informers)
        if answer["response"]["allowed"]:
            return answer
        return await self._answer(body, check, None)

    async def warn(self, body: Object) -> Object:
        """Answer with the warnings the rules have about an object they accept."""

        def warnings(request: AdmissionRequest, read: Reader) -> Object:
            if request.schema_errors():
                return {}
            try:
                review = self._prepared(request, read)
                refused = self._rules_of(request).validate(review)
            except ApiError:
                return {}  # the other webhook refuses it
            found = list(dict.fromkeys(review.warnings))
            return {"warnings": found} if found and not refused else {}

        return await self._answer(body, warnings, self.informers)

    async def evict(self, body: Object) -> Object:
        """Answer whether a pod may be evicted; the guest of one that may not is to migrate."""
        request = _request_of(body)
        name, namespace = str(request.get("name")), str(request.get("namespace"))
        options = (request.get("object") or {}).get("deleteOptions") or {}
        try:
            pod = await self._fetch(core.POD, name, namespace)
            if pod is not None:
                dry_run = bool(request.get("dryRun") or options.get("dryRun"))
                await self.guard(pod, dry_run=dry_run)
                if why := await self._attached(pod):
                    raise TooManyRequests(why)
        except (TooManyRequests, Conflict) as error:
            return _response(ADMISSION, "AdmissionReview", request, _denied(error))
        return _response(ADMISSION, "AdmissionReview", request, {"allowed": True})

    async def detach(self, body: Object) -> Object:
        """Answer whether an attachment pod may be deleted: not while its volume is in use."""
        request = _request_of(body)
        why = await self._attached(request.get("oldObject") or {"metadata": {}})
        answer = _denied(Forbidden(why)) if why else {"allowed": True}
        return _response(ADMISSION, "AdmissionReview", request, answer)

    async def _attached(self, pod: Object) -> str:
        if not attachment_pods.is_attachment(pod):
            return ""
        namespace, name = attachment_pods.instance_key(pod)
        return attachment_pods.refusal(pod, await self._fetch(kinds.VMI, name, namespace))

    async def _answer(
        self,
        body: Object,
        decision: Callable[[AdmissionRequest, Reader], Object],
        at_hand: Lookup | None,
    ) -> Object:
        """Answer with a decision; what it looks up and is not at hand is read from the server."""
        raw = _request_of(body)
        try:
            request = self._parsed(raw)

            def decided(lookup: Lookup) -> Object:
                return decision(request, Caches(lookup, self.informers))

            answer = {"allowed": True} | await decide(decided, self._fetch, at_hand)
        except ApiError as error:
            answer = _denied(error)
        return _response(ADMISSION, "AdmissionReview", raw, answer)

    def _parsed(self, raw: Object) -> AdmissionRequest:
        resource = raw.get("resource") or {}
        kind = self.kinds.get((resource.get("group", ""), resource.get("resource", "")))
        verb = _VERBS.get(raw.get("operation", ""))
        if kind is None or verb is None or resource.get("version") not in kind.versions:
            raise BadRequest(f"the webhook has no rules for {raw.get('operation')} of {resource}")
        version = resource["version"]
        new, old = (_shaped(kind, version, raw.get(part)) for part in ("object", "oldObject"))
        if new is None:
            raise BadRequest("the request has no object")
        meta = new["metadata"]
        if kind.namespaced and raw.get("namespace"):
            meta.setdefault("namespace", raw["namespace"])
        if verb == "create":
            # An object gets its uid after it was defaulted. What is derived from it only has to be
            # unique, as the uid of the request is.
            meta.setdefault("uid", raw["uid"])
            if kind.has_status:
                new.pop("status", None)
        name = meta.get("name") or raw.get("name") or ""
        return AdmissionRequest(
            raw["uid"], kind, version, verb, name, raw.get("subResource") or "",
            _user(raw.get("userInfo") or {}), bool(raw.get("dryRun")), new,
            old if verb == "update" else None,
        )  # fmt: skip

    def _prepared(self, request: AdmissionRequest, read: Reader) -> Review:
        review, rules = request.review(read, self.now), self._rules_of(request)
        rules.default(review.new)
        rules.prepare(review)
        return review

    def _rules_of(self, request: AdmissionRequest) -> Rules:
        return self.rules.get(request.kind.resource, _NO_RULES)

    async def _fetch(self, kind: Kind, name: str, namespace: str) -> Object | None:
        try:
            return await self.client.get(kind, name, namespace)
        except NotFound:
            return None
        except ApiError as error:
            raise LookupFailed(f"cannot read {kind.resource} {name}: {error}") from error


def convert(kinds: Iterable[Kind], body: Object) -> Object:
    """Answer a ConversionReview."""
    request = _request_of(body)
    by_kind = {(kind.group, kind.kind): kind for kind in kinds}
    wanted = str(request.get("desiredAPIVersion") or "")
    try:
        converted = [_converted(by_kind, wanted, obj) for obj in request.get("objects") or ()]
    except BadRequest as error:
        log.warning("conversion refused", extra={"version": wanted, "error": error.message})
        answer: Object = {"result": {"status": "Failure", "message": error.message}}
    else:
        answer = {"result": {"status": "Success"}, "convertedObjects": converted}
    return _response(CONVERSION, "ConversionReview", request, answer)


def _converted(by_kind: Mapping[tuple[str, str], Kind], wanted: str, obj: Object) -> Object:
    group, _, version = wanted.rpartition("/")
    kind = by_kind.get((group, obj.get("kind", "")))
    if kind is None or version not in kind.versions:
        raise BadRequest(f"cannot convert {obj.get('apiVersion')} {obj.get('kind')} to {wanted}")
    return kind.as_version(version, obj)


def _request_of(body: Any) -> Object:
    request = body.get("request") if isinstance(body, dict) else None
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise BadRequest("the body must be a review with a request that has a uid")
    return request


def _response(api_version: str, kind: str, request: Object, answer: Object) -> Object:
    response = {"uid": request["uid"], **answer}
    return {"apiVersion": api_version, "kind": kind, "response": response}


def _denied(error: ApiError) -> Object:
    answer: Object = {"allowed": False, "status": error.status()}
    return answer | ({"warnings": list(error.warnings)} if error.warnings else {})


def _shaped(kind: Kind, version: str, obj: Any) -> Object | None:
    """Return an object as the embedded server would read it: pruned and without nulls."""
    return structural.shape(kind, version, obj)[0] if isinstance(obj, dict) else None


def _user(info: Object) -> User:
    extra = {key: tuple(values or ()) for key, values in (info.get("extra") or {}).items()}
    groups = tuple(info.get("groups") or ())
    return User(info.get("username") or "", groups, info.get("uid") or "", extra)
