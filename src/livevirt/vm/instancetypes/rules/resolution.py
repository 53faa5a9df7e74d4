"""What the matchers of a VM name: found by revision first, so that edits elsewhere do nothing."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.instancetypes.rules.expansion import Sizing
from livevirt.vm.instancetypes.rules.inference import Inferred, NotInferred, infer
from livevirt.vm.instancetypes.rules.matchers import (
    IGNORE,
    INSTANCETYPE,
    PREFERENCE,
    ROLES,
    Lookup,
    Role,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a matcher leads nowhere. `passing` means that it may lead somewhere later."""

    role: Role
    part: str  # of the matcher; empty for all of it
    message: str
    passing: bool

    @property
    def field(self) -> str:
        """The field of the VM."""
        return f"{self.role.path}.{self.part}" if self.part else self.role.path

    @property
    def reason(self) -> str:
        """The reason of the VM's Failure condition."""
        return self.role.not_found


class _Nowhere(Exception):
    def __init__(self, role: Role, part: str, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.problem = Problem(role, part, message, passing)


class Choice(msgspec.Struct, frozen=True):
    """The object one matcher came to.

    `revision` is the one in use; `capture` is the object to take a revision of first, if there is
    none of the right version yet.
    """

    object: Object  # in the stored version
    kind: Kind
    revision: str = ""
    capture: Object | None = None
    volume: str = ""  # it was inferred from
    policy: str = ""

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.object["metadata"]["name"])

    def reference(self, revision: str) -> Object:
        """Return the VM's status field about it once the revision exists."""
        found: Object = {
            "name": self.name,
            "kind": self.kind.kind,
            "controllerRevisionRef": {"name": revision},
        }
        if self.volume:
            found["inferFromVolume"] = self.volume
        if self.policy:
            found["inferFromVolumeFailurePolicy"] = self.policy
        return found


class Resolved(msgspec.Struct, frozen=True):
    """What both matchers of a VM came to; None where there is no matcher."""

    instancetype: Choice | None = None
    preference: Choice | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def sizing(self) -> Sizing:
        """What the VM is expanded with."""
        size, preference = self.instancetype, self.preference
        return Sizing(
            size.object["spec"] if size is not None else None,
            preference.object["spec"] if preference is not None else None,
            size.name if size is not None else "",
            size is not None and bool(size.volume) and size.policy == IGNORE,
        )

    def of(self, role: Role) -> Choice | None:
        """Return the choice of a role."""
        return self.instancetype if role is INSTANCETYPE else self.preference


_NOTHING = Resolved()


def resolve(vm: Object, lookup: Lookup) -> Resolved:
    """Return what the matchers of a VM name; those that lead nowhere are among the problems."""
    found: dict[str, Choice | None] = {}
    problems = []
    for role in ROLES:
        if vm["spec"].get(role.field) is None:
            continue
        try:
            found[role.field] = _choose(role, vm, lookup)
        except _Nowhere as error:
            problems.append(error.problem)
    if not found and not problems:
        return _NOTHING
    return Resolved(found.get(INSTANCETYPE.field), found.get(PREFERENCE.field), tuple(problems))


def references(vm: Object, resolved: Resolved) -> Object:
    """Return `instancetypeRef` and `preferenceRef` of the status, None for one that must go.

    A matcher that inferred nothing, and may, is remembered without a name, so that a label that
    appears later does not resize the VM. While there are problems what is recorded stays.
    """
    found: Object = {}
    broken = [problem.role for problem in resolved.problems]
    for role in ROLES:
        if role in broken:
            continue
        matcher, choice = vm["spec"].get(role.field), resolved.of(role)
        reference = None
        if choice is not None:
            captured = choice.capture
            name = revisions.name_of(vm, captured) if captured is not None else choice.revision
            reference = choice.reference(name)
        elif matcher is not None and matcher.get("inferFromVolume"):
            reference = {
                "inferFromVolume": matcher["inferFromVolume"],
                "inferFromVolumeFailurePolicy": IGNORE,
            }
        found[role.reference] = reference
    return found


def newer(choice: Choice, namespace: str, lookup: Lookup) -> Object | None:
    """Return the object a VM's revision was taken of if it has changed since."""
    live = lookup.get(choice.kind, choice.name, namespace if choice.kind.namespaced else "")
    if live is None:
        return None
    used, meta = choice.object["metadata"], live["metadata"]
    same = (used.get("uid"), used.get("generation")) == (meta.get("uid"), meta.get("generation"))
    return None if same else live


# ---------------------------------------------------------------- one matcher


def _choose(role: Role, vm: Object, lookup: Lookup) -> Choice | None:
    """Return what a matcher names; None if it need not name anything."""
    matcher = vm["spec"][role.field]
    volume = matcher.get("inferFromVolume") or ""
    policy = matcher.get("inferFromVolumeFailurePolicy") or "" if volume else ""
    name = matcher.get("name") or ""
    used = status_of(vm).get(role.reference) or {}
    if (pinned := _pinned(role, vm, used, lookup)) is not None:
        return _with_origin(pinned, volume, policy)
    if volume and not name:
        if used.get("inferFromVolume") == volume:
            if not used.get("name"):
                return None  # inferred nothing when it was asked
            name, kind = used["name"], used.get("kind") or ""
        else:
            inferred = _infer(role, volume, policy, vm, lookup)
            if inferred is None:
                return None
            name, kind = inferred.name, inferred.kind
    else:
        kind = matcher.get("kind") or ""
    wanted = role.kind(kind)
    if wanted is None:
        message = f"got unexpected kind in {role.matcher}: {kind.lower()}"
        raise _Nowhere(role, "kind", message, passing=False)
    recorded = _recorded(role, vm, used, name, wanted, lookup)
    return _with_origin(recorded or _live(role, vm, name, wanted, lookup), volume, policy)


def _pinned(role: Role, vm: Object, used: Object, lookup: Lookup) -> Choice | None:
    """Return what the matcher pins; a pin that was left behind when the name changed is none."""
    matcher = vm["spec"][role.field]
    pin, name, kind = (matcher.get(part) or "" for part in ("revisionName", "name", "kind"))
    if not pin:
        return None
    revision = lookup.get(core.REVISION, pin, vm["metadata"]["namespace"])
    if revision is None:
        if _left_behind(pin, name, used, vm):
            return None
        message = f'controllerrevisions.apps "{pin}" not found'
        raise _Nowhere(role, "revisionName", message, passing=True)
    found = _of_revision(role, revision)
    other_name = name and found.name != name
    other_kind = kind and found.kind is not role.kind(kind)
    return None if other_name or other_kind else found


def _left_behind(pin: str, name: str, used: Object, vm: Object) -> bool:
    """Return whether a pin to a revision that is gone was one of something else.

    What is gone cannot say what it held: its name does, and what the VM goes by.
    """
    if not name or not used.get("name") or revisions.is_named_for(pin, vm, name):
        return False
    in_use = (used.get("controllerRevisionRef") or {}).get("name")
    return bool(used["name"] != name or in_use != pin)


def _recorded(
    role: Role, vm: Object, used: Object, name: str, kind: Kind, lookup: Lookup
) -> Choice | None:
    """Return what is in use by the status, if that is what the matcher names."""
    recorded = (used.get("controllerRevisionRef") or {}).get("name")
    if not recorded or used.get("name") != name:
        return None
    revision = lookup.get(core.REVISION, recorded, vm["metadata"]["namespace"])
    if revision is None:
        if role.kind(used.get("kind") or "") is not kind:
            return None
        message = (
            f'controllerrevisions.apps "{recorded}" not found: it holds what this VM was given of'
            f" {role.noun} {name}; `virtctl vm update-{role.noun.replace(' ', '-')}"
            f" {vm['metadata']['name']} {kind.singular}/{name}` takes it as it is now"
        )
        raise _Nowhere(role, "", message, passing=True)
    found = _of_revision(role, revision)
    # The kind counts as well: a cluster's type is not the namespace's of the same name.
    if found.name != name or found.kind is not kind:
        return None
    if revisions.is_current(revision):
        return found
    return Choice(found.object, found.kind, found.revision, capture=found.object)


def _of_revision(role: Role, revision: Object) -> Choice:
    try:
        found = revisions.content(role, revision)
    except revisions.Unreadable as error:
        raise _Nowhere(role, "", str(error), passing=False) from error
    kind = role.kind(found["kind"])
    assert kind is not None  # `content` has looked
    return Choice(found, kind, revision["metadata"]["name"])


def _live(role: Role, vm: Object, name: str, kind: Kind, lookup: Lookup) -> Choice:
    namespace = vm["metadata"]["namespace"] if kind.namespaced else ""
    live = lookup.get(kind, name, namespace)
    if live is None:
        message = f'{kind.resource} "{name}" not found'
        raise _Nowhere(role, "name", message, passing=True)
    return Choice(live, kind, capture=live)


def _infer(role: Role, volume: str, policy: str, vm: Object, lookup: Lookup) -> Inferred | None:
    try:
        return infer(role, volume, vm, lookup)
    except NotInferred as error:
        if error.ignorable and policy == IGNORE:
            return None
        raise _Nowhere(role, "inferFromVolume", str(error), passing=False) from error


def _with_origin(choice: Choice, volume: str, policy: str) -> Choice:
    if not volume:
        return choice
    return Choice(choice.object, choice.kind, choice.revision, choice.capture, volume, policy)
