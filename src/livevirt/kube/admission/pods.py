"""Pods: defaults, what the server sets, and the rules of each subresource."""

from __future__ import annotations

from collections.abc import Callable

from livevirt.kube.admission import limit_ranges, priority_classes
from livevirt.kube.admission.pod_defaults import add_tolerations, set_defaults
from livevirt.kube.admission.pod_resize import check_node, keep_all_but_resources, validate_resize
from livevirt.kube.admission.pod_validation import validate_new, validate_status, validate_update
from livevirt.kube.objects import pod_resources
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import Review, Rules

DEFAULT_ACCOUNT = "default"


class PodRules(Rules):
    """What a Pod must be.

    `not_run` returns why no node runs a pod, empty if nodes do; its creator is warned of it.
    """

    delete_returns_object = True

    def __init__(self, not_run: Callable[[Object], str] = lambda pod: "") -> None:
        self._not_run = not_run

    def default(self, obj: Object) -> None:
        """Fill in every default of the API."""
        set_defaults(obj)

    def prepare(self, review: Review) -> None:
        """Set status, priority, tolerations and account."""
        new, old = review.new, review.old
        if old is None:
            _set_account(new["spec"])
            priority_classes.resolve(new, review.read)
            add_tolerations(new)
            new["status"] = {"phase": "Pending", "qosClass": pod_resources.qos_class(new)}
            if reason := self._not_run(new):
                review.warnings.append(f"the pod will not run: {reason}")
        elif review.subresource == "status":
            if qos := status_of(old).get("qosClass"):
                new.setdefault("status", {}).setdefault("qosClass", qos)
        elif not review.subresource:
            add_tolerations(new)
            for field in ("priority", "preemptionPolicy"):
                if field in old["spec"]:
                    new["spec"].setdefault(field, old["spec"][field])

    def validate(self, review: Review) -> list[FieldError]:
        """List what is wrong with the pod; refuse a right one that its surroundings forbid."""
        new, old = review.new, review.old
        if old is None:
            found = validate_new(new)
            if not found:
                limit_ranges.check(review)
            return found
        match review.subresource:
            case "resize":
                found = validate_resize(new, old)
                if not found:
                    limit_ranges.check(review)
                    check_node(new, review.read)
                return found
            case "status":
                return validate_status(new, old)
            case "":
                return validate_update(new, old)
            case _:
                return []

    def through(self, subresource: str, review: Review) -> None:
        """Keep in `review.new` only what a write to this subresource may change, in place."""
        if subresource == "resize" and review.old is not None:
            keep_all_but_resources(review.new, review.old)
        else:
            super().through(subresource, review)

    def grace(self, obj: Object, wanted: int | None) -> int:
        """Return the seconds its node has to stop the pod; one that runs nowhere has none."""
        spec = obj["spec"]
        if not spec.get("nodeName") or status_of(obj).get("phase") in FINAL:
            return 0
        period: int = spec.get("terminationGracePeriodSeconds", 0) if wanted is None else wanted
        return period if period >= 0 else 1


def _set_account(spec: Object) -> None:
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT_ACCOUNT
