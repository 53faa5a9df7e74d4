"""Events: they lie in the namespace of what they are about, and newer ones say who saw it."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.core import EVENT_VIEW
from livevirt.kube.objects.field_checks import named
from livevirt.kube.objects.field_error import FieldError, invalid, required
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

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
