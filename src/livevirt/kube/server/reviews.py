"""Reviews: who am I, may I? Answered on the spot, never stored.

Every authenticated user is an administrator for now, so every access review allows access.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from livevirt.kube.objects import core, field_error, refusals, times
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, Request
from livevirt.kube.server import options
from livevirt.kube.server.api import Verb
from livevirt.kube.server.authenticate import Tokens
from livevirt.kube.server.incoming import receive, receive_as
from livevirt.kube.server.services import Services

_ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_ALL_PATHS = {"verbs": ["*"], "nonResourceURLs": ["*"]}
_TOKEN_REQUEST = Kind(
    "authentication.k8s.io", "TokenRequest", "tokenrequests", ("v1",),
    "authentication.TokenRequest", stored=False,
)  # fmt: skip
_TOKEN_SECONDS = 3600
_MIN_TOKEN_SECONDS = 600
_MAX_TOKEN_SECONDS = 1 << 32


def verbs(tokens: Tokens) -> dict[tuple[str, str], Verb]:
    """Return what answers each review and token request."""
    return {
        (core.SELF_REVIEW.resource, ""): _self_review,
        (core.SELF_ACCESS_REVIEW.resource, ""): _access_review,
        (core.ACCESS_REVIEW.resource, ""): _access_review,
        (core.LOCAL_ACCESS_REVIEW.resource, ""): _access_review,
        (core.RULES_REVIEW.resource, ""): _rules_review,
        (core.TOKEN_REVIEW.resource, ""): _token_review(tokens),
        (core.SERVICE_ACCOUNT.resource, "token"): _token_request(tokens),
    }


def _received(request: Request) -> Object:
    options.check_write(request.options, "CreateOptions")
    obj, _ = receive(request, request.body)
    return obj


async def _self_review(services: Services, request: Request) -> Answer:
    obj = _received(request)
    user = request.user
    info: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    obj["metadata"] = {"creationTimestamp": times.format_time(services.now())}
    return Answer(201, {**obj, "status": {"userInfo": info}})


async def _access_review(services: Services, request: Request) -> Answer:
    obj = _received(request)
    return Answer(
        201,
        {**obj, "status": {"allowed": True, "reason": "authenticated users are administrators"}},
    )


async def _rules_review(services: Services, request: Request) -> Answer:
    obj = _received(request)
    status = {"resourceRules": [_ALL], "nonResourceRules": [_ALL_PATHS], "incomplete": False}
    return Answer(201, {**obj, "status": status})


def _token_review(tokens: Tokens) -> Verb:
    async def review(services: Services, request: Request) -> Answer:
        obj = _received(request)
        claims = tokens.read(obj.get("spec", {}).get("token", ""))
        good = claims is not None and claims["exp"] > services.now().timestamp()
        status: Object = {"authenticated": good}
        if good and claims is not None:
            bound = claims["kubernetes.io"]["serviceaccount"]
            status["user"] = {"username": claims["sub"], "uid": bound["uid"]}
        return Answer(201, {**obj, "status": status})

    return review


def _token_request(tokens: Tokens) -> Verb:
    async def grant(services: Services, request: Request) -> Answer:
        account = services.reader.get(core.SERVICE_ACCOUNT, request.name, request.namespace)
        if account is None:
            raise refusals.not_found(core.SERVICE_ACCOUNT, request.name)
        spec = receive_as(_TOKEN_REQUEST, request)["spec"]
        wanted = spec.get("expirationSeconds") or _TOKEN_SECONDS
        audiences = spec.get("audiences") or ["https://kubernetes.default.svc"]
        errors = []
        if wanted < _MIN_TOKEN_SECONDS:
            errors.append(
                field_error.invalid(
                    "spec.expirationSeconds",
                    wanted,
                    "may not specify a duration less than 10 minutes",
                )
            )
        if wanted > _MAX_TOKEN_SECONDS:
            errors.append(
                field_error.invalid(
                    "spec.expirationSeconds",
                    wanted,
                    "may not specify a duration larger than 2^32 seconds",
                )
            )
        if errors:
            raise refusals.invalid(_TOKEN_REQUEST, request.name, errors)
        now = services.now()
        return Answer(201, _granted(tokens, account, audiences, now, wanted, spec))

    return grant


def _granted(
    tokens: Tokens, account: Object, audiences: list[str], now: datetime, seconds: int, spec: Object
) -> Object:
    meta = account["metadata"]
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "creationTimestamp": times.format_time(now),
        },
        "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
        "status": {
            "token": tokens.issue(account, audiences, now, seconds),
            "expirationTimestamp": times.format_time(now + timedelta(seconds=seconds)),
        },
    }
