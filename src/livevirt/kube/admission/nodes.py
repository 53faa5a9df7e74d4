"""Nodes: made with their status, and never moved to another machine."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_checks import one_of, quantities
from livevirt.kube.objects.field_error import FieldError, duplicate, forbidden, invalid, required
from livevirt.kube.objects.pod_resources import round_up
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules
from livevirt.kube.objects.scheduling_validation import EFFECTS

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
