"""Kinds with few rules: nodes, leases, events, revisions and service accounts."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.core import EVENT_VIEW
from livevirt.kube.objects.field_checks import immutable, named, not_negative, one_of, quantities
from livevirt.kube.objects.field_error import FieldError, duplicate, forbidden, invalid, required
from livevirt.kube.objects.pod_resources import round_up
from livevirt.kube.objects.request import Object
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
        """List a namespace that is not the object's, and what a new-style event lacks."""
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
        if not (word := event.get(field, "")):
            found.append(required(field))
        elif len(word) > _WORD_MAX:
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
        """Let everything the node has be allocatable unless it says otherwise."""
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
            found += quantities(f"status.{field}", (new.get("status") or {}).get(field))
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
