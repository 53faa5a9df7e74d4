"""PriorityClasses, and the priority that admission resolves for a pod."""

from __future__ import annotations

from livevirt.kube.objects.core import POD, PRIORITY_CLASS
from livevirt.kube.objects.field_checks import immutable, one_of
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.field_error import forbidden as forbidden_field
from livevirt.kube.objects.priority import (
    DEFAULT_PREEMPTION,
    HIGHEST_USER_VALUE,
    PREEMPTION_POLICIES,
    SYSTEM_CLASSES,
    SYSTEM_PREFIX,
    find,
    global_default,
)
from livevirt.kube.objects.refusals import forbidden
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Reader, Review, Rules


class PriorityClassRules(Rules):
    """What a PriorityClass must be."""

    def default(self, obj: Object) -> None:
        """Set the preemption policy of a class that names none."""
        obj.setdefault("preemptionPolicy", DEFAULT_PREEMPTION)

    def validate(self, review: Review) -> list[FieldError]:
        """List values that are reserved or may not change; refuse a second global default."""
        new, old = review.new, review.old
        found = _class_errors(new)
        if old is not None:
            if new.get("value", 0) != old.get("value", 0):
                found.append(forbidden_field("value", "may not be changed in an update."))
            policy, before = (each.get("preemptionPolicy") for each in (new, old))
            found += immutable("preemptionPolicy", policy, before)
        if not found and new.get("globalDefault"):
            _check_only_default(new["metadata"].get("name", ""), review.read)
        return found

    def check_delete(self, review: Review) -> None:
        """Refuse to delete a class of the system."""
        name = review.new["metadata"]["name"]
        if name in SYSTEM_CLASSES:
            why = "this is a system priority class and cannot be deleted"
            raise forbidden(PRIORITY_CLASS, name, why)


def _class_errors(new: Object) -> list[FieldError]:
    name, value = new["metadata"].get("name", ""), new.get("value", 0)
    found = one_of("preemptionPolicy", new["preemptionPolicy"], PREEMPTION_POLICIES)
    if name.startswith(SYSTEM_PREFIX):
        known = SYSTEM_CLASSES.get(name)
        if known is None or known["value"] != value or new.get("globalDefault"):
            why = f"names that start with '{SYSTEM_PREFIX}' are reserved for system use only"
            found.append(forbidden_field("metadata.name", why))
    elif value > HIGHEST_USER_VALUE:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_USER_VALUE}"
        found.append(forbidden_field("value", why))
    return found


def _check_only_default(name: str, read: Reader) -> None:
    other = global_default(read)
    if other is not None and other["metadata"]["name"] != name:
        already = other["metadata"]["name"]
        why = f"PriorityClass {already} is already marked as default. Only one default can exist"
        raise forbidden(PRIORITY_CLASS, name, why)


def resolve(pod: Object, read: Reader) -> None:
    """Set the priority of a new pod from its class, in place; refuse one that no class gives."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    if class_name := spec.get("priorityClassName", ""):
        chosen = find(read.get, class_name)
        if chosen is None:
            raise forbidden(POD, name, f"no PriorityClass with name {class_name} was found")
    elif chosen := global_default(read):
        spec["priorityClassName"] = chosen["metadata"]["name"]
    resolved = {
        "priority": chosen["value"] if chosen else 0,
        "preemptionPolicy": (chosen or {}).get("preemptionPolicy") or DEFAULT_PREEMPTION,
    }
    for field, value in resolved.items():
        given = spec.get(field)
        if given is not None and given != value:
            why = (
                f"{field} ({given}) must not be provided in pod spec; the priority admission"
                f" controller computed {value} from the given PriorityClass name"
            )
            raise forbidden(POD, name, why)
    spec.update(resolved)
