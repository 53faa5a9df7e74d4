"""Says on a VM that what it was sized by has changed since."""

from __future__ import annotations

from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.lookup import Lookup
from livevirt.vm.instancetypes.rules.matchers import INSTANCETYPE, ROLES
from livevirt.vm.instancetypes.rules.resolution import Resolved, newer

TYPE = "NewerInstancetype"
_CHANGED = {True: "InstancetypeChanged", False: "PreferenceChanged"}


def condition(vm: Object, resolved: Resolved, lookup: Lookup) -> Condition | None:
    """Return the condition of a VM whose instance type or preference has a newer generation."""
    texts, reason = [], ""
    for role in ROLES:
        choice = resolved.of(role)
        live = None if choice is None else newer(choice, vm["metadata"]["namespace"], lookup)
        if choice is None or live is None:
            continue
        command = f"virtctl vm update-{role.words.replace(' ', '-')}"
        texts.append(
            f"{role.words} {choice.name} {_changed(choice.object['metadata'], live['metadata'])};"
            f" `{command} {vm['metadata']['name']} {choice.kind.singular}/{choice.name}`"
            " takes the newer one"
        )
        reason = reason or _CHANGED[role is INSTANCETYPE]
    if not texts:
        return None
    return {"type": TYPE, "status": "True", "reason": reason, "message": "; ".join(texts)}


def _changed(used: Object, live: Object) -> str:
    """Return how what a VM has differs from what there is, given the metadata of both."""
    has, is_at = used.get("generation", 0), live.get("generation", 0)
    if used.get("uid") != live.get("uid"):
        return f"was deleted and made anew, this VM has generation {has} of the deleted one"
    return f"is at generation {is_at}, this VM has generation {has} of it"
