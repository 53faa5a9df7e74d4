"""Whether VMs keep naming what they were sized by, or are rewritten to say it themselves."""

from __future__ import annotations

from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.matchers import ROLES

REFERENCE, EXPAND, EXPAND_ALL = "reference", "expand", "expandAll"
POLICIES = (REFERENCE, EXPAND, EXPAND_ALL)


def reference_policy(kubevirt: Object | None) -> str:
    """Return the policy of the cluster."""
    settings = ((kubevirt or {}).get("spec") or {}).get("configuration") or {}
    return str((settings.get("instancetype") or {}).get("referencePolicy") or REFERENCE)


def to_be_rewritten(vm: Object, policy: str) -> bool:
    """Tell whether a VM is to lose its matchers: by `expand` only one that holds no revision."""
    if policy == REFERENCE or not any(vm["spec"].get(role.field) for role in ROLES):
        return False
    status = vm.get("status") or {}
    held = any((status.get(role.reference) or {}).get("controllerRevisionRef") for role in ROLES)
    return policy == EXPAND_ALL or not held
