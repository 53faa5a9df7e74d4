"""Switching a running VM to another instance type or preference: what to send, when it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from livevirt.cli.vm.documents import Named, status_of
from livevirt.kube.objects import conditions, quantity
from livevirt.kube.objects.conditions import FINAL, Condition
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.conflicts import ANNOTATIONS, conflicts
from livevirt.vm.instancetypes.rules.matchers import INSTANCETYPE, ROLES, Role
from livevirt.vm.sizing import guest_size
from livevirt.vm.sizing.hot_change import reported, under_way
from livevirt.vm.verdict.comparison import MEMORY, SOCKETS
from livevirt.vm.verdict.judgement import Verdict
from livevirt.vm.verdict.summary import RESTART_REQUIRED

_FAILURE = "Failure"


class Outcome(Enum):
    """Where a switch can end."""

    LIVE = "live"
    RESTART = "needs a restart"
    AT_START = "takes effect at the next start"
    FAILED = "failed"
    WINDOW = "waits for its maintenance window"


@dataclass(frozen=True, slots=True)
class Switch:
    """What a VM should refer to."""

    to: Named

    @property
    def role(self) -> Role:
        """What it is to the VM."""
        return next(role for role in ROLES if self.to.kind in (role.cluster, role.namespaced))

    def conflicts(self, vm: Object, obj: Object) -> list[str]:
        """List the fields that a VM sets and the instance type to switch to, `obj`, sets too."""
        if self.role is not INSTANCETYPE:
            return []  # what the VM sets counts more than a preference
        return conflicts(vm["spec"]["template"], obj.get("spec") or {})

    def patch(self, removed: Iterable[str] = ()) -> Object:
        """Return the merge patch of the VM; what was pinned or inferred before is dropped.

        `removed` are paths of fields that the VM should no longer set.
        """
        matcher = {
            "kind": self.to.kind.singular,
            "name": self.to.name,
            "revisionName": None,
            "inferFromVolume": None,
            "inferFromVolumeFailurePolicy": None,
        }
        patch: Object = {"spec": {self.role.field: matcher}}
        for path in removed:
            *above, last = _segments(path)
            at = patch
            for name in above:
                at = at.setdefault(name, {})
            at[last] = None
        return patch

    def refresh(self) -> Object:
        """Return the merge patch of the VM's status that lets the newest generation be taken."""
        return {"status": {self.role.reference: None}}

    def is_made(self, vm: Object) -> bool:
        """Return whether the VM refers to it already, if perhaps to an older generation of it."""
        matcher = vm["spec"].get(self.role.field) or {}
        kind = self.role.kind(matcher.get("kind") or "")
        return kind is self.to.kind and matcher.get("name") == self.to.name

    def is_seen(self, vm: Object, generation: int) -> bool:
        """Return whether the controller has looked at the VM as it was switched."""
        status = status_of(vm)
        if (status.get("desiredGeneration") or 0) < generation:
            return False
        if self.role.field not in vm["spec"]:
            return True  # it was expanded into the VM, as the reference policy said
        taken = status.get(self.role.reference) or {}
        return taken.get("name") == self.to.name and "controllerRevisionRef" in taken

    def has_taken(self, vm: Object) -> bool:
        """Return whether the VM goes by some generation of what it refers to."""
        return bool(status_of(vm).get(self.role.reference))


def refusal(paths: Iterable[str], to: Named) -> str:
    """Return why a VM that sets these fields itself is not switched, and what to do."""
    fields = ", ".join(paths)
    return (
        f"the VM sets {fields} itself, and so does {to.title}; remove it from the VM first, or"
        " have it removed with --take-over"
    )


def _segments(path: str) -> list[str]:
    """Return the names of a path; the key of an annotation may have dots in it."""
    if path.startswith(f"{ANNOTATIONS}."):
        return [*ANNOTATIONS.split("."), path.removeprefix(f"{ANNOTATIONS}.")]
    return path.split(".")


Sizes = dict[str, Any]  # by the path of the field


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of a plan for one generation of a VM."""

    generation: int
    sizes: Sizes = field(default_factory=dict)  # that the instance gets while it runs
    restart: bool = False


def planned(plan: Object, generation: int) -> Planned:
    """Return the result of a plan for that generation of a VM."""
    sizes, verdicts = {}, set()
    for change in plan["changes"]:
        verdicts.add(change["verdict"])
        if change["path"] in (SOCKETS, MEMORY) and change["verdict"].startswith("Live"):
            sizes[change["path"]] = change["to"]
    return Planned(generation, sizes, Verdict.RESTART in verdicts)


@dataclass(frozen=True, slots=True)
class Since:
    """The VM as a switch left it: what was reported before does not concern the switch.

    `failure` is what a reference that was dropped may have been the cause of.
    """

    generation: int
    failure: Condition | None = None

    def failed(self, vm: Object) -> bool:
        """Return whether the controller has said that it cannot do it."""
        status = status_of(vm)
        if (status.get("desiredGeneration") or 0) < self.generation:
            return False
        found, before = failure(vm), self.failure
        if found is None:
            return False
        return before is None or found.get("reason") != before.get("reason")


def failure(vm: Object) -> Condition | None:
    """Return the condition that reports what is wrong with a VM, if something is."""
    listed = status_of(vm).get("conditions")
    return conditions.find(listed, _FAILURE) if conditions.is_true(listed, _FAILURE) else None


def outcome(
    vm: Object, vmi: Object | None, since: Since, plan: Planned | None = None
) -> Outcome | None:
    """Return how the switch of a VM that the controller has looked at ended; None if not yet.

    The plan shows whether a restart is needed, as the condition may still be the one of before;
    without a plan, or one of this generation, the condition counts.
    """
    if since.failed(vm):
        return Outcome.FAILED
    if vmi is None or status_of(vmi).get("phase") in FINAL:
        return Outcome.AT_START
    said = conditions.is_true(status_of(vm).get("conditions"), RESTART_REQUIRED)
    if plan is None or plan.generation != vm["metadata"]["generation"]:
        needed = said
    else:
        needed = plan.restart
    if needed:
        return Outcome.RESTART if said else None
    if window(vm):
        return Outcome.WINDOW
    return Outcome.LIVE if _is_plugged(vmi, plan.sizes if plan is not None else {}) else None


def window(vm: Object) -> str:
    """Return when the maintenance window opens that edits of a VM wait for, empty if none does."""
    pending = status_of(vm).get("pendingChanges") or ()
    return next((each["appliesAt"] for each in pending if each.get("appliesAt")), "")


def _is_plugged(vmi: Object, expected: Sizes) -> bool:
    """Return whether the guest has what its instance asks for, and that is what is expected."""
    status = status_of(vmi)
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
    """Return whether two sizes are the same; one that is not reported cannot be compared."""
    if asked is None or other is None:
        return True
    if path == MEMORY:
        return quantity.parse(str(asked)) == quantity.parse(str(other))
    return bool(asked == other)


def state(vm: Object, vmi: Object | None) -> str:
    """Return in a line where a switch stands."""
    if vmi is not None:
        listed = reported(vmi)
        for type_ in under_way(vmi):
            found = conditions.find(listed, type_) or {}
            return f"{type_}: {found.get('message') or 'True'}"
    return str(status_of(vm).get("printableStatus") or "accepted")


def outcome_message(end: Outcome, vm: Object, vmi: Object | None, to: Named) -> str:
    """Return the sentence on how it ended."""
    name = vm["metadata"]["name"]
    match end:
        case Outcome.LIVE:
            assert vmi is not None
            unsure = unconfirmed(vmi)
            return f"VM {name} runs with {to.title}{_shown(vmi)}{f' ({unsure})' if unsure else ''}"
        case Outcome.RESTART:
            why = _message(vm, RESTART_REQUIRED)
            return f"VM {name} needs a restart for {to.title}: {why}; `virtctl restart {name}`"
        case Outcome.AT_START:
            return f"VM {name} does not run; it starts with {to.title}"
        case Outcome.WINDOW:
            return f"VM {name} gets {to.title} in its maintenance window at {window(vm)}"
        case Outcome.FAILED:
            return f"VM {name} cannot be switched to {to.title}: {_message(vm, _FAILURE)}"


def unconfirmed(vmi: Object | None) -> str:
    """Return that the guest has not confirmed its size, and why; empty if it has."""
    found = conditions.find(status_of(vmi).get("conditions"), guest_size.CONFIRMED) or {}
    return guest_size.UNCONFIRMED.get(found.get("reason", ""), "")


def _shown(vmi: Object) -> str:
    cpu = (vmi["spec"].get("domain") or {}).get("cpu") or {}
    vcpus = 1
    for part in ("sockets", "cores", "threads"):
        vcpus *= cpu.get(part) or 1
    memory = _asked(vmi)[MEMORY]
    parts = ["1 vCPU" if vcpus == 1 else f"{vcpus} vCPUs", *([str(memory)] if memory else [])]
    return f": {', '.join(parts)}"


def _message(vm: Object, condition: str) -> str:
    found = conditions.find(status_of(vm).get("conditions"), condition) or {}
    return str(found.get("message") or condition)
