"""What is wrong with a pod, and which of its fields may still change."""

from __future__ import annotations

import copy
from typing import Any

from livevirt.kube.admission.container_validation import RESTART_POLICIES, validate_containers
from livevirt.kube.admission.volume_validation import validate_volumes
from livevirt.kube.objects import field_checks, names
from livevirt.kube.objects.field_checks import MAX_INT32, between, named, one_of, optional_one_of
from livevirt.kube.objects.field_error import FieldError, duplicate, forbidden, invalid, required
from livevirt.kube.objects.request import Object, status_of
from livevirt.kube.objects.review import keep
from livevirt.kube.objects.scheduling_validation import DNS_POLICIES, validate_scheduling

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be "
    "set to 1 if it was previously negative)"
)


def validate_pod(pod: Object) -> list[FieldError]:
    """List what is wrong with a pod's spec, whatever was stored before."""
    spec = pod["spec"]
    found = [
        *validate_volumes(spec.get("volumes") or []),
        *validate_containers(spec),
        *one_of("spec.restartPolicy", spec.get("restartPolicy", ""), RESTART_POLICIES),
        *one_of("spec.dnsPolicy", spec.get("dnsPolicy", ""), DNS_POLICIES),
        *field_checks.not_negative(
            "spec.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds")
        ),
        *validate_scheduling("spec", spec),
    ]
    for field, rule in (
        ("nodeName", names.validate_dns1123_subdomain),
        ("serviceAccountName", names.validate_dns1123_subdomain),
        ("schedulerName", names.validate_dns1123_subdomain),
        ("priorityClassName", names.validate_dns1123_subdomain),
        ("runtimeClassName", names.validate_dns1123_subdomain),
        ("hostname", names.validate_dns1123_label),
        ("subdomain", names.validate_dns1123_label),
    ):
        found += named(f"spec.{field}", spec.get(field) or "", rule, needed=False)
    if (deadline := spec.get("activeDeadlineSeconds")) is not None:
        found += between("spec.activeDeadlineSeconds", deadline, 1, MAX_INT32)
    found += optional_one_of(
        "spec.preemptionPolicy", spec.get("preemptionPolicy"), {"Never", "PreemptLowerPriority"}
    )
    found += _gate_errors(spec.get("schedulingGates") or [], bool(spec.get("nodeName")))
    found += field_checks.quantities("spec.overhead", spec.get("overhead"))
    return found


def validate_new(pod: Object) -> list[FieldError]:
    """List what is wrong with a pod that is to be created."""
    found = validate_pod(pod)
    if pod["spec"].get("ephemeralContainers"):
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return found


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """List what is wrong with a pod and with what changed in it."""
    after, before = new["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if len(after.get(field) or ()) != len(before.get(field) or ()):
            why = "pod updates may not add or remove containers"
            return [*validate_pod(new), forbidden(f"spec.{field}", why)]
    found = [*validate_pod(new), *_deadline_errors(after, before)]
    found += _toleration_errors(after, before)
    changed = changed_fields(_without_changeable(after, before), before)
    if changed and not found:
        found.append(forbidden("spec", f"{_CHANGEABLE}; changed: {', '.join(changed)}"))
    return found


def validate_status(new: Object, old: Object) -> list[FieldError]:
    """List what is wrong with a pod's new status."""
    status, before = status_of(new), status_of(old)
    found = field_checks.immutable(
        "status.qosClass", status.get("qosClass"), before.get("qosClass")
    )
    found += named(
        "status.nominatedNodeName",
        status.get("nominatedNodeName", ""),
        names.validate_dns1123_subdomain,
        needed=False,
    )
    return found


def changed_fields(new: Object, old: Object) -> list[str]:
    """Name the fields of a spec that differ."""
    return [
        f"spec.{key}" for key in sorted(new.keys() | old.keys()) if new.get(key) != old.get(key)
    ]


def _without_changeable(after: Object, before: Object) -> Object:
    """Return the new spec with the old values wherever a change is allowed."""
    spec = copy.deepcopy(after)
    for field in ("containers", "initContainers"):
        for container, stored in zip(spec.get(field) or (), before.get(field) or (), strict=True):
            keep(container, stored, "image")
    for field in ("activeDeadlineSeconds", "tolerations"):
        keep(spec, before, field)
    gated = bool(before.get("schedulingGates"))
    if gated:
        for field in ("nodeSelector", "affinity"):  # a gated pod may still be narrowed down
            keep(spec, before, field)
    if _names(after) <= _names(before):
        keep(spec, before, "schedulingGates")
    grace = "terminationGracePeriodSeconds"
    if before.get(grace, 0) < 0 and after.get(grace) == 1:
        keep(spec, before, grace)
    return spec


def _names(spec: Object) -> set[str]:
    return {gate["name"] for gate in spec.get("schedulingGates") or ()}


def _deadline_errors(after: Object, before: Object) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    new: Any = after.get("activeDeadlineSeconds")
    old: Any = before.get("activeDeadlineSeconds")
    if old is None or new == old:
        return []
    if new is None:
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    why = "must be less than or equal to previous value"
    return [invalid(path, new, why)] if new > old else []


def _toleration_errors(after: Object, before: Object) -> list[FieldError]:
    kept = [_timeless(each) for each in after.get("tolerations") or ()]
    if all(_timeless(each) in kept for each in before.get("tolerations") or ()):
        return []
    why = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", why)]


def _timeless(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _gate_errors(gates: list[Object], placed: bool) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for at, gate in enumerate(gates):
        path = f"spec.schedulingGates[{at}]"
        name = gate.get("name", "")
        if not name:
            found.append(required(f"{path}.name"))
        found += [invalid(path, name, why) for why in names.validate_qualified_name(name) if name]
        if name in seen:
            found.append(duplicate(path, name))
        seen.add(name)
    if gates and placed:
        why = "cannot be set until all schedulingGates have been cleared"
        found.append(forbidden("spec.nodeName", why))
    return found
