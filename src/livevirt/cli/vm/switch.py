"""Switching a running VM to another instance type or preference: what to send, when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from livevirt.api import conditions, quantity
from livevirt.api.request import Object
from livevirt.cli.vm.named import Named
from livevirt.rollout.hot_change import under_way
from livevirt.rollout.instancetypes.matchers import ROLES, Role
from livevirt.rollout.live_patch import MEMORY, SOCKETS
from livevirt.rollout.summary import RESTART_REQUIRED

_FAILURE = "Failure"
_FINAL = ("Succeeded", "Failed")


class Outcome(Enum):
    """Where a switch can end."""

    LIVE = "live"
    RESTART = "needs a restart"
    AT_START = "takes effect at the next start"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Switch:
    """What a VM shall refer to."""

    to: Named

    @property
    def role(self) -> Role:
        """What it is to the VM."""
        return next(role for role in ROLES if self.to.kind in (role.cluster, role.namespaced))

    def patch(self) -> Object:
        """Return the merge patch of the VM; what was pinned or inferred before is let go."""
        matcher = {
            "kind": self.to.kind.singular,
            "name": self.to.name,
            "revisionName": None,
            "inferFromVolume": None,
            "inferFromVolumeFailurePolicy": None,
        }
        return {"spec": {self.role.field: matcher}}

    def refresh(self) -> Object:
        """Return the merge patch of the VM's status that lets the newest generation be taken."""
        return {"status": {self.role.reference: None}}

    def is_made(self, vm: Object) -> bool:
        """Tell whether the VM refers to it already, if perhaps to an older generation of it."""
        matcher = vm["spec"].get(self.role.field) or {}
        kind = self.role.kind(matcher.get("kind") or "")
        return kind is self.to.kind and matcher.get("name") == self.to.name

    def is_seen(self, vm: Object, generation: int) -> bool:
        """Tell whether the controller has looked at the VM as it was switched."""
        status = vm.get("status") or {}
        if (status.get("desiredGeneration") or 0) < generation:
            return False
        if self.role.field not in vm["spec"]:
            return True  # it was expanded into the VM, as the reference policy said
        taken = status.get(self.role.reference) or {}
        return taken.get("name") == self.to.name and "controllerRevisionRef" in taken


Sizes = dict[str, Any]  # by the path of the field


def sizes(plan: Object) -> Sizes:
    """Return the sizes that a plan says the instance gets while it runs."""
    return {
        change["path"]: change["to"]
        for change in plan["changes"]
        if change["path"] in (SOCKETS, MEMORY) and change["verdict"].startswith("Live")
    }


def outcome(vm: Object, vmi: Object | None, expected: Sizes) -> Outcome | None:
    """Return how the switch of a VM that the controller has looked at ended; None if not yet."""
    listed = (vm.get("status") or {}).get("conditions")
    if conditions.is_true(listed, RESTART_REQUIRED):
        return Outcome.RESTART
    if conditions.is_true(listed, _FAILURE):
        return Outcome.FAILED
    if vmi is None or _status(vmi).get("phase") in _FINAL:
        return Outcome.AT_START
    return Outcome.LIVE if _is_plugged(vmi, expected) else None


def _is_plugged(vmi: Object, expected: Sizes) -> bool:
    """Tell whether the guest has what its instance asks for, and that is what is expected."""
    status = _status(vmi)
    if status.get("phase") != "Running" or under_way(vmi):
        return False
    asked = _asked(vmi)
    has = {
        SOCKETS: (status.get("currentCPUTopology") or {}).get("sockets"),
        MEMORY: (status.get("memory") or {}).get("guestCurrent"),
    }
    return all(
        _equal(path, asked[path], expected.get(path)) and _equal(path, asked[path], has[path])
        for path in asked
    )


def _asked(vmi: Object) -> Sizes:
    domain = vmi["spec"].get("domain") or {}
    return {
        SOCKETS: (domain.get("cpu") or {}).get("sockets"),
        MEMORY: (domain.get("memory") or {}).get("guest"),
    }


def _equal(path: str, asked: Any, other: Any) -> bool:
    """Tell whether two sizes are the same; one that nobody told is none to compare with."""
    if asked is None or other is None:
        return True
    if path == MEMORY:
        return quantity.parse(str(asked)) == quantity.parse(str(other))
    return bool(asked == other)


def state(vm: Object, vmi: Object | None) -> str:
    """Return in a line where a switch stands."""
    if vmi is not None:
        for type_ in under_way(vmi):
            found = conditions.find(_status(vmi).get("conditions"), type_) or {}
            return f"{type_}: {found.get('message') or 'True'}"
    return str(_status(vm).get("printableStatus") or "accepted")


def told(end: Outcome, vm: Object, vmi: Object | None, to: Named) -> str:
    """Return the sentence on how it ended."""
    name = vm["metadata"]["name"]
    match end:
        case Outcome.LIVE:
            assert vmi is not None
            return f"VM {name} runs with {to.title}{_shown(vmi)}"
        case Outcome.RESTART:
            why = _message(vm, RESTART_REQUIRED)
            return f"VM {name} needs a restart for {to.title}: {why}; `virtctl restart {name}`"
        case Outcome.AT_START:
            return f"VM {name} does not run; it starts with {to.title}"
        case Outcome.FAILED:
            return f"VM {name} cannot be switched to {to.title}: {_message(vm, _FAILURE)}"


def _shown(vmi: Object) -> str:
    cpu = (vmi["spec"].get("domain") or {}).get("cpu") or {}
    vcpus = 1
    for part in ("sockets", "cores", "threads"):
        vcpus *= cpu.get(part) or 1
    memory = _asked(vmi)[MEMORY]
    parts = ["1 vCPU" if vcpus == 1 else f"{vcpus} vCPUs", *([str(memory)] if memory else [])]
    return f": {', '.join(parts)}"


def _message(vm: Object, condition: str) -> str:
    found = conditions.find(_status(vm).get("conditions"), condition) or {}
    return str(found.get("message") or condition)


def _status(obj: Object) -> Object:
    return obj.get("status") or {}
