"""ResourceQuotas: which resources and scopes they may name, and what a write is charged.

A quota is enforced by its `status`: the controller copies `spec.hard` there with a first count,
and every write after that is added at once, so two writes can never both take the last piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.core import CLAIM, POD
from livevirt.kube.objects.field_checks import IMMUTABLE, quantity, quota_resource_name
from livevirt.kube.objects.field_error import FieldError, invalid, required
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.pod_resources import (
    Amounts,
    add,
    amounts,
    masked,
    over,
    round_up,
    subtract,
    written,
)
from livevirt.kube.objects.quantity import ZERO
from livevirt.kube.objects.quota_usage import (
    MUST_BE_STATED,
    POD_SCOPES,
    compute_usage,
    in_scope,
    scope_tracks,
    tracks,
    usage,
)
from livevirt.kube.objects.refusals import forbidden
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Review, Rules

# ---------------------------------------------------------------- the objects

SCOPES = POD_SCOPES | {"VolumeAttributesClass"}
_WITH_VALUES = ("PriorityClass", "VolumeAttributesClass")
_OPPOSITES = ({"Terminating", "NotTerminating"}, {"BestEffort", "NotBestEffort"})


class QuotaRules(Rules):
    """What a ResourceQuota must be."""

    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """Round amounts up to thousandths."""
        round_up((obj.get("spec") or {}).get("hard"))
        for field in ("hard", "used"):
            round_up(status_of(obj).get(field))

    def prepare(self, review: Review) -> None:
        """Start without a status: the quota controller counts."""
        if review.old is None:
            review.new["status"] = {}

    def validate(self, review: Review) -> list[FieldError]:
        """List unknown resources, impossible amounts and bad or changed scopes."""
        new, old = review.new, review.old
        spec = new.get("spec") or {}
        found = _amount_errors("spec.hard", spec.get("hard") or {})
        found += _scope_errors(spec)
        found += _selector_errors(spec)
        for field in ("hard", "used"):
            found += _amount_errors(f"status.{field}", status_of(new).get(field) or {})
        if old is not None:
            scopes = spec.get("scopes") or []
            if set(scopes) != set((old.get("spec") or {}).get("scopes") or []):
                found.append(invalid("spec.scopes", scopes, IMMUTABLE))
        return found


def _amount_errors(path: str, given: dict[str, str]) -> list[FieldError]:
    found: list[FieldError] = []
    for resource, value in sorted(given.items()):
        at = f"{path}[{resource}]"
        found += quota_resource_name(at, resource)
        found += quantity(at, resource, value)
    return found


def _scope_errors(spec: Object) -> list[FieldError]:
    scopes = spec.get("scopes") or []
    found = []
    for scope in scopes:
        if scope not in SCOPES:
            found.append(invalid("spec.scopes", scopes, "unsupported scope"))
        found += [
            invalid("spec.scopes", scopes, "unsupported scope applied to resource")
            for resource in spec.get("hard") or ()
            if not scope_tracks(scope, resource)
        ]
    if any(pair <= set(scopes) for pair in _OPPOSITES):
        found.append(invalid("spec.scopes", scopes, "conflicting scopes"))
    return found


def _selector_errors(spec: Object) -> list[FieldError]:
    found = []
    at_terms = "spec.scopeSelector.matchExpressions"
    terms = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    for at, term in enumerate(terms):
        path = f"{at_terms}[{at}]"
        scope, operator = term.get("scopeName", ""), term.get("operator", "")
        values = term.get("values") or []
        if scope not in SCOPES:
            found.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        elif scope not in _WITH_VALUES and operator != "Exists":
            why = "must be 'Exist' when scope is any of " + ", ".join(
                sorted(SCOPES - set(_WITH_VALUES))
            )
            found.append(invalid(f"{path}.operator", operator, why))
        if operator in ("In", "NotIn"):
            if not values:
                why = (
                    "must be at least one value when `operator` is 'In' or 'NotIn' "
                    "for scope selector"
                )
                found.append(required(f"{path}.values", why))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = (
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' "
                    "for scope selector"
                )
                found.append(invalid(f"{path}.values", values, why))
        else:
            found.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    if any(pair <= {term.get("scopeName", "") for term in terms} for pair in _OPPOSITES):
        found.append(
            invalid(at_terms, [t.get("scopeName", "") for t in terms], "conflicting scopes")
        )
    return found


# ---------------------------------------------------------------- their effect


def charge(quotas: Iterable[Object], review: Review) -> list[Object]:
    """Return the quotas of the namespace that a write uses more of, each with its new status.

    A write over any of them is refused. What is given back is not booked here: the quota
    controller counts again after deletions and shrinking.
    """
    if not _is_charged(review):
        return []
    kind, new, name = review.kind, review.new, review.new["metadata"].get("name", "")
    concerned = [quota for quota in quotas if _concerns(quota, kind, new)]
    for quota in concerned:
        _check_stated(quota, kind, new, name)
    grown = usage(kind, new, review.now)
    if review.old is not None:
        grown = subtract(grown, usage(kind, review.old, review.now))
    grown = {resource: value for resource, value in grown.items() if value}
    charged = [_charged(quota, kind, name, grown) for quota in concerned]
    return [quota for quota in charged if quota is not None]


def recount(quota: Object, objects: Mapping[Kind, Iterable[Object]], now: datetime) -> Object:
    """Return the status of a quota whose namespace holds these objects."""
    hard = amounts((quota.get("spec") or {}).get("hard"))
    used: Amounts = dict.fromkeys(hard, ZERO)
    for kind, found in objects.items():
        tracked = [resource for resource in hard if tracks(kind, resource)]
        if not tracked:
            continue
        for obj in found:
            if in_scope(quota, kind, obj):
                used = add(used, masked(usage(kind, obj, now), tracked))
    return {"hard": written(hard), "used": written(used)} if hard else {}


def _is_charged(review: Review) -> bool:
    match review.verb, review.subresource:
        case "create", "":
            return True
        case "update", "":
            return review.kind == CLAIM
        case "update", "resize":
            return review.kind == POD
        case _:
            return False


def _concerns(quota: Object, kind: Kind, obj: Object) -> bool:
    return bool(_tracked(quota, kind)) and in_scope(quota, kind, obj)


def _tracked(quota: Object, kind: Kind) -> list[str]:
    hard = status_of(quota).get("hard") or {}
    return [resource for resource in sorted(hard) if tracks(kind, resource)]


def _check_stated(quota: Object, kind: Kind, obj: Object, name: str) -> None:
    quota_name, tracked = quota["metadata"]["name"], _tracked(quota, kind)
    if kind == POD and (missing := _not_stated(obj, MUST_BE_STATED.intersection(tracked))):
        raise forbidden(kind, name, f"failed quota: {quota_name}: must specify {missing}")
    used = status_of(quota).get("used") or {}
    if any(resource not in used for resource in tracked):
        why = f"status unknown for quota: {quota_name}, resources: {','.join(tracked)}"
        raise forbidden(kind, name, why)


def _not_stated(pod: Object, demanded: Iterable[str]) -> str:
    """Return which containers leave out what must be stated."""
    own = pod["spec"].get("resources") or {}
    stated_by_pod = compute_usage(amounts(own.get("requests")), amounts(own.get("limits"))).keys()
    silent: dict[str, list[str]] = {}
    for container in pod_resources.containers(pod):
        resources = container.get("resources") or {}
        stated = compute_usage(amounts(resources.get("requests")), amounts(resources.get("limits")))
        for resource in set(demanded) - stated.keys() - stated_by_pod:
            silent.setdefault(resource, []).append(container["name"])
    return "; ".join(
        f"{resource} for: {','.join(sorted(silent[resource]))}" for resource in sorted(silent)
    )


def _charged(quota: Object, kind: Kind, name: str, grown: Amounts) -> Object | None:
    status = quota["status"]
    hard, used = amounts(status.get("hard")), amounts(status.get("used"))
    asked = masked(grown, hard)
    if not asked:
        return None
    after = add(used, asked)
    if exceeded := over(masked(after, asked), hard):
        why = (
            f"exceeded quota: {quota['metadata']['name']}, requested: {_shown(asked, exceeded)}, "
            f"used: {_shown(used, exceeded)}, limited: {_shown(hard, exceeded)}"
        )
        raise forbidden(kind, name, why)
    return {**quota, "status": {**status, "used": written(after)}}


def _shown(values: Amounts, resources: Iterable[str]) -> str:
    return ",".join(f"{r}={values.get(r, ZERO)}" for r in sorted(resources))
