"""Kinds with few rules: nodes, leases, events, revisions, service accounts and roles."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.core import EVENT_VIEW
from livevirt.kube.objects.field_checks import immutable, named, not_negative, one_of, quantities
from livevirt.kube.objects.field_error import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from livevirt.kube.objects.pod_resources import round_up
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Review, Rules
from livevirt.kube.objects.scheduling_validation import EFFECTS


class LeaseRules(Rules):
    """What a Lease must be."""

    put_creates = True
    unconditional_update = False  # a blind PUT would steal the lease

    def validate(self, review: Review) -> list[FieldError]:
        """List durations and counts that cannot be, and a holder preferred by no strategy."""
        spec = review.new.get("spec") or {}
        found = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            found.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        found += not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))
        strategy = spec.get("strategy") or ""
        found += named("spec.strategy", strategy, names.validate_qualified_name, needed=False)
        if spec.get("preferredHolder") and not strategy:
            found.append(
                forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")
            )
        return found


class EndpointSliceRules(Rules):
    """What an EndpointSlice must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List an unknown or changed type of addresses, and endpoints without any."""
        new, old = review.new, review.old
        found = one_of("addressType", new.get("addressType", ""), ("FQDN", "IPv4", "IPv6"))
        if old is not None:
            found += immutable("addressType", new.get("addressType"), old.get("addressType"))
        found += [
            required(f"endpoints[{at}].addresses", "must contain at least 1 address")
            for at, each in enumerate(new.get("endpoints") or ())
            if not each.get("addresses")
        ]
        return found


class RevisionRules(Rules):
    """What a ControllerRevision must be."""

    def validate(self, review: Review) -> list[FieldError]:
        """List missing or changed data and a number below zero."""
        new, old = review.new, review.old
        found = [] if new.get("data") is not None else [required("data", "data is mandatory")]
        found += not_negative("revision", new.get("revision"))
        if old is not None:
            found += immutable("data", new.get("data"), old.get("data"))
        return found


class ServiceAccountRules(Rules):
    """What a ServiceAccount must be: nothing beyond its metadata."""

    delete_returns_object = True


_ELSEWHERE = "does not match event.namespace"
_WORD_MAX = 128
_MESSAGE_MAX = 1024


class EventRules(Rules):
    """What an Event must be; it is validated in its core form, whichever group it came by."""

    put_creates = True

    def validate(self, review: Review) -> list[FieldError]:
        """List a namespace that is not the object's, and missing fields of a new-style event."""
        event = review.new
        strict = review.kind.group == EVENT_VIEW.group and review.old is None
        found = []
        if event.get("eventTime"):
            found += _new_style_errors(
                event, "reportingController" if strict else "reportingComponent"
            )
        else:
            found += _namespace_errors(event)
            if strict:
                found.append(required("eventTime"))
        if strict and event.get("type") not in ("Normal", "Warning"):
            found.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
        return found


def _namespace_errors(event: Object) -> list[FieldError]:
    namespace, about = event["metadata"].get("namespace", ""), _about(event)
    allowed = (about,) if about else ("", "default")
    return [] if namespace in allowed else [_elsewhere(about)]


def _new_style_errors(event: Object, controller_field: str) -> list[FieldError]:
    found = []
    about = _about(event)
    if not about and event["metadata"].get("namespace", "") not in ("default", "kube-system"):
        found.append(_elsewhere(about))
    controller = event.get("reportingComponent", "")
    found += named(controller_field, controller, names.validate_qualified_name)
    for field in ("reportingInstance", "action", "reason"):
        if not (text := event.get(field, "")):
            found.append(required(field))
        elif len(text) > _WORD_MAX:
            found.append(invalid(field, "", f"can have at most {_WORD_MAX} characters"))
    if len(event.get("message", "")) > _MESSAGE_MAX:
        found.append(invalid("message", "", f"can have at most {_MESSAGE_MAX} characters"))
    return found


def _about(event: Object) -> str:
    """The namespace of what the event is about."""
    namespace: str = event.get("involvedObject", {}).get("namespace", "")
    return namespace


def _elsewhere(about: str) -> FieldError:
    return invalid("involvedObject.namespace", about, _ELSEWHERE)


_ONCE = ("podCIDR", "podCIDRs", "providerID")


class NodeRules(Rules):
    """What a Node must be."""

    creates_with_status = True

    def default(self, obj: Object) -> None:
        """Let everything the node has be allocatable unless `allocatable` is set."""
        status = obj.setdefault("status", {})
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])
        for field in ("capacity", "allocatable"):
            round_up(status.get(field))

    def validate(self, review: Review) -> list[FieldError]:
        """List bad taints and amounts, and changes of what identifies the machine."""
        new, old = review.new, review.old
        spec = new.get("spec") or {}
        found = _taint_errors(spec.get("taints") or [])
        for field in ("capacity", "allocatable"):
            found += quantities(f"status.{field}", status_of(new).get(field))
        if old is not None:
            before = old.get("spec") or {}
            found += [
                forbidden(
                    f"spec.{field}", f'node updates may not change {field} except from "" to valid'
                )
                for field in _ONCE
                if before.get(field) and spec.get(field) != before[field]
            ]
        return found


def _taint_errors(taints: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    seen = set()
    for at, taint in enumerate(taints):
        path = f"spec.taints[{at}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        if key:
            found += [invalid(f"{path}.key", key, why) for why in names.validate_label_key(key)]
        else:
            found.append(required(f"{path}.key"))
        if value:
            found += [
                invalid(f"{path}.value", value, why) for why in names.validate_label_value(value)
            ]
        found += one_of(f"{path}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            found.append(duplicate(path, taint))
        seen.add((key, effect))
    return found


GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


class RoleRules(Rules):
    """What a Role or ClusterRole must be."""

    name_rule = staticmethod(names.validate_path_segment)  # `system:node` is a name here

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def validate(self, review: Review) -> list[FieldError]:
        """List rules that grant nothing or mix resources with paths."""
        found = []
        for at, rule in enumerate(review.new.get("rules") or []):
            found += self._rule_errors(f"rules[{at}]", rule)
        return found

    def _rule_errors(self, path: str, rule: Object) -> list[FieldError]:
        found = []
        if not rule.get("verbs"):
            found.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if urls := rule.get("nonResourceURLs"):
            if self._namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, why))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, why))
            return found
        if not rule.get("apiGroups"):
            found.append(
                required(f"{path}.apiGroups", "resource rules must supply at least one api group")
            )
        if not rule.get("resources"):
            found.append(
                required(f"{path}.resources", "resource rules must supply at least one resource")
            )
        return found


class BindingRules(Rules):
    """What a RoleBinding or ClusterRoleBinding must be."""

    name_rule = staticmethod(names.validate_path_segment)

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def default(self, obj: Object) -> None:
        """Name the group of users, groups and the role where it was left out."""
        if obj.get("roleRef"):
            obj["roleRef"]["apiGroup"] = obj["roleRef"].get("apiGroup") or GROUP
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = GROUP

    def validate(self, review: Review) -> list[FieldError]:
        """List a role that changed or cannot be, and subjects that cannot be."""
        new, old = review.new, review.old
        role = new.get("roleRef") or {}
        if old is not None and role != old.get("roleRef"):
            return [invalid("roleRef", role, "cannot change roleRef")]
        kinds = ("Role", "ClusterRole") if self._namespaced else ("ClusterRole",)
        found = []
        if role.get("apiGroup") != GROUP:
            found.append(not_supported("roleRef.apiGroup", role.get("apiGroup", ""), [GROUP]))
        if role.get("kind") not in kinds:
            found.append(not_supported("roleRef.kind", role.get("kind", ""), kinds))
        if not role.get("name"):
            found.append(required("roleRef.name"))
        for at, subject in enumerate(new.get("subjects") or []):
            found += self._subject_errors(f"subjects[{at}]", subject)
        return found

    def _subject_errors(self, path: str, subject: Object) -> list[FieldError]:
        found = []
        if not subject.get("name"):
            found.append(required(f"{path}.name"))
        kind = subject.get("kind", "")
        if kind not in _SUBJECTS:
            found.append(not_supported(f"{path}.kind", kind, _SUBJECTS))
        elif kind == "ServiceAccount" and not self._namespaced and not subject.get("namespace"):
            found.append(required(f"{path}.namespace"))
        return found
