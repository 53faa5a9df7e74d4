"""What is wrong with the scheduling constraints of a pod."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import named, not_negative, one_of, optional_one_of
from livevirt.kube.objects.field_error import FieldError, forbidden, invalid, required
from livevirt.kube.objects.metadata import validate_labels
from livevirt.kube.objects.request import Object

EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
DNS_POLICIES = frozenset({"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"})

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SETS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_NUMBERS = ("Gt", "Lt")


def validate_scheduling(path: str, spec: Object) -> list[FieldError]:
    """List what is wrong with node selector, tolerations, affinity and spread of a spec."""
    spread = spec.get("topologySpreadConstraints") or []
    return [
        *validate_labels(spec.get("nodeSelector"), f"{path}.nodeSelector"),
        *_toleration_errors(f"{path}.tolerations", spec.get("tolerations") or []),
        *_affinity_errors(f"{path}.affinity", spec.get("affinity") or {}),
        *_spread_errors(f"{path}.topologySpreadConstraints", spread),
    ]


def node_selector_errors(path: str, selector: Object) -> list[FieldError]:
    """List what is wrong with a choice of nodes by terms."""
    at_terms = f"{path}.nodeSelectorTerms"
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(at_terms, "must have at least one node selector term")]
    return [
        error for at, term in enumerate(terms) for error in _term_errors(f"{at_terms}[{at}]", term)
    ]


def _toleration_errors(at: str, tolerations: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for number, toleration in enumerate(tolerations):
        path = f"{at}[{number}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        found += named(f"{path}.key", key, names.validate_label_key, needed=False)
        if not key and operator != "Exists":
            why = (
                "operator must be Exists when `key` is empty, "
                'which means "match all values and all keys"'
            )
            found.append(invalid(f"{path}.operator", operator, why))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(f"{path}.effect", effect, why))
        if operator == "Exists" and value:
            why = "value must be empty when `operator` is 'Exists'"
            found.append(invalid(f"{path}.operator", toleration, why))
        elif operator in ("", "Equal"):
            found += [
                invalid(f"{path}.operator", value, why) for why in names.validate_label_value(value)
            ]
        found += optional_one_of(f"{path}.operator", operator or None, {"Equal", "Exists"})
        found += optional_one_of(f"{path}.effect", effect or None, EFFECTS)
    return found


def _affinity_errors(whole: str, affinity: Object) -> list[FieldError]:
    found: list[FieldError] = []
    if node := affinity.get("nodeAffinity"):
        path = f"{whole}.nodeAffinity"
        if (selector := node.get(_REQUIRED)) is not None:
            found += node_selector_errors(f"{path}.{_REQUIRED}", selector)
        for at, preferred in enumerate(node.get(_PREFERRED) or ()):
            here = f"{path}.{_PREFERRED}[{at}]"
            found += _weight_errors(here, preferred)
            found += _term_errors(f"{here}.preference", preferred.get("preference") or {})
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        path = f"{whole}.{kind}"
        for at, term in enumerate(pods.get(_REQUIRED) or ()):
            found += _pod_term_errors(f"{path}.{_REQUIRED}[{at}]", term)
        for at, preferred in enumerate(pods.get(_PREFERRED) or ()):
            here = f"{path}.{_PREFERRED}[{at}]"
            found += _weight_errors(here, preferred)
            found += _pod_term_errors(
                f"{here}.podAffinityTerm", preferred.get("podAffinityTerm") or {}
            )
    return found


def _weight_errors(path: str, preferred: Object) -> list[FieldError]:
    weight = preferred.get("weight", 0)
    if 1 <= weight <= 100:
        return []
    return [invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _term_errors(path: str, term: Object) -> list[FieldError]:
    found: list[FieldError] = []
    for at, expression in enumerate(term.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{at}]"
        found += _values_errors(here, expression, (*_SETS, *_PRESENCE, *_NUMBERS))
        found += named(f"{here}.key", expression.get("key", ""), names.validate_label_key)
    for at, expression in enumerate(term.get("matchFields") or ()):
        here = f"{path}.matchFields[{at}]"
        if expression.get("operator") in _SETS and len(expression.get("values") or ()) != 1:
            why = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            found.append(required(f"{here}.values", why))
        elif expression.get("operator") not in _SETS:
            why = "not a valid selector operator"
            found.append(invalid(f"{here}.operator", expression.get("operator", ""), why))
        if expression.get("key") != "metadata.name":
            why = "not a valid field selector key"
            found.append(invalid(f"{here}.key", expression.get("key", ""), why))
    return found


def _values_errors(path: str, expression: Object, allowed: tuple[str, ...]) -> list[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator not in allowed:
        return [invalid(f"{path}.operator", operator, "not a valid selector operator")]
    if operator in _SETS and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        return [required(f"{path}.values", why)]
    if operator in _PRESENCE and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(f"{path}.values", why)]
    if operator in _NUMBERS and len(values) != 1:
        why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        return [required(f"{path}.values", why)]
    return []


def label_selector_errors(path: str, selector: Object) -> list[FieldError]:
    """List what is wrong with a label selector in an object."""
    found = validate_labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for at, expression in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{at}]"
        found += _values_errors(here, expression, (*_SETS, *_PRESENCE))
        found += named(f"{here}.key", expression.get("key", ""), names.validate_label_key)
        found += [
            invalid(f"{here}.values[{index}]", value, why)
            for index, value in enumerate(expression.get("values") or ())
            for why in names.validate_label_value(value)
        ]
    return found


def _pod_term_errors(path: str, term: Object) -> list[FieldError]:
    found: list[FieldError] = []
    for field in ("labelSelector", "namespaceSelector"):
        if (selector := term.get(field)) is not None:
            found += label_selector_errors(f"{path}.{field}", selector)
    found += [
        invalid(f"{path}.namespace", namespace, why)
        for namespace in term.get("namespaces") or ()
        for why in names.validate_dns1123_label(namespace)
    ]
    if not (key := term.get("topologyKey", "")):
        found.append(required(f"{path}.topologyKey", "can not be empty"))
    return found + named(f"{path}.topologyKey", key, names.validate_label_key, needed=False)


def _spread_errors(at: str, constraints: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    for number, constraint in enumerate(constraints):
        path = f"{at}[{number}]"
        if (skew := constraint.get("maxSkew", 0)) <= 0:
            found.append(invalid(f"{path}.maxSkew", skew, "must be greater than zero"))
        if not constraint.get("topologyKey"):
            found.append(required(f"{path}.topologyKey", "can not be empty"))
        found += one_of(
            f"{path}.whenUnsatisfiable",
            constraint.get("whenUnsatisfiable", ""),
            {"DoNotSchedule", "ScheduleAnyway"},
        )
        if (selector := constraint.get("labelSelector")) is not None:
            found += label_selector_errors(f"{path}.labelSelector", selector)
        found += not_negative(f"{path}.minDomains", constraint.get("minDomains"))
    return found
