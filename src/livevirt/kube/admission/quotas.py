"""ResourceQuota objects: which resources and scopes a quota may name."""

from __future__ import annotations

from livevirt.kube.objects.field_checks import IMMUTABLE, quantity, quota_resource_name
from livevirt.kube.objects.field_error import FieldError, invalid, required
from livevirt.kube.objects.quota_usage import POD_SCOPES, scope_tracks
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.resource_lists import round_up
from livevirt.kube.objects.review import Review, Rules

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
            round_up((obj.get("status") or {}).get(field))

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
            found += _amount_errors(f"status.{field}", (new.get("status") or {}).get(field) or {})
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
