"""Instance types and preferences of VMs: their revisions, expanded VMs, and which VMs use them.

It promises: a VM is handed on as one that writes its sizes itself; a revision is stored before
anything refers to it, and none that a VM uses is ever deleted here, so that it can go back; the
VM's spec is rewritten only where the cluster's reference policy demands it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from livevirt.errors import AlreadyExists, Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.cache import Change, Key, key_of
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import conditions, core
from livevirt.kube.objects.conditions import Condition, Failure
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object, status_of
from livevirt.vm import kinds
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.instancetypes.rules.machine import (
    Machine,
    detached,
    expand_vm,
    expand_with,
    unmet_requirements,
)
from livevirt.vm.instancetypes.rules.matchers import (
    INSTANCETYPE,
    ROLES,
    Lookup,
    Role,
    decide,
    to_be_rewritten,
)
from livevirt.vm.instancetypes.rules.resolution import Resolved, newer, references

log = logging.getLogger(__name__)

FAILED_CREATE = "FailedCreate"
NEWER = "NewerInstancetype"  # the condition of a VM whose instance type has changed since
_CHANGED = {True: "InstancetypeChanged", False: "PreferenceChanged"}
_STORING = "error encountered while storing instancetype.kubevirt.io controllerRevisions: "
KINDS = (
    kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE, kinds.PREFERENCE,
    kinds.CLUSTER_PREFERENCE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sized:
    """A VM to go on with: expanded, its status naming the revisions in use.

    With a `failure` (for the condition of that type) it is as written, and nothing may be started
    or rolled out.
    """

    vm: Object
    references: Object = field(default_factory=dict)  # fields of the status to write
    failure: Failure | None = None
    newer: Condition | None = None


class Caches:
    """Instance types, preferences and the revisions of both, as informers hold them."""

    def __init__(self, informers: Informers) -> None:
        self.revisions = informers.of(core.REVISION, labels=revisions.NAME)
        self._by_kind: dict[str, Informer] = {kind.resource: informers.of(kind) for kind in KINDS}
        self._by_kind[core.REVISION.resource] = self.revisions

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object; None does not mean that there is none."""
        cache = self._by_kind.get(kind.resource)
        return None if cache is None else cache.get(Key(namespace, name))


class Sizes:
    """Sizes VMs; what they are sized by is read from caches, and asked for where it is missing."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self.caches = Caches(informers)

    async def size(self, vm: Object) -> Sized:
        """Return a VM expanded, with a revision of all that it is sized by in the store."""
        if not any(vm["spec"].get(role.field) or _recorded(vm, role) for role in ROLES):
            machine = expand_with(vm, Resolved())
            return Sized(machine.vm, failure=_failure(machine))
        machine = await self._expanded(vm)
        # A change that the caches have not seen yet wakes the VM when they do.
        found = newer_condition(vm, machine.resolved, self.caches)
        written, wanted = status_of(vm), references(vm, machine.resolved)
        changed = {name: value for name, value in wanted.items() if written.get(name) != value}
        failure = _failure(machine)
        if changed and not failure:  # admission has not seen all of it, if it was not there then
            failure = _unmet(vm, machine) or await self._capture(vm, machine)
        if failure:
            return Sized(vm, failure=failure, newer=found)
        status = {**written, **wanted}
        return Sized(
            {**machine.vm, "status": {k: v for k, v in status.items() if v is not None}},
            changed,
            newer=found,
        )

    async def rewrite(self, vm: Object, policy: str) -> Failure | bool:
        """Write the sizes into a VM whose reference policy demands it.

        Return whether it was written, or why it could not be. Its revisions stay until the VM is
        deleted: they are its way back.
        """
        if not to_be_rewritten(vm, policy):
            return False
        machine = await self._expanded(vm)
        if failure := _failure(machine) or _unmet(vm, machine):
            problem = f"error encountered while expanding into VirtualMachine: {failure.message}"
            return Failure("UnsupportedSyncError", f"unsupported error: {problem}")
        written = await self._client.update(kinds.VM, detached(machine.vm))
        log.info("instance type written into VM", extra={"vm": _shown(vm)})
        gone = {role.reference: None for role in ROLES if _recorded(vm, role)}
        if gone:
            meta = written["metadata"]
            version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            await self._client.patch(
                kinds.VM, meta["name"], meta["namespace"], {"metadata": version, "status": gone},
                subresource="status",
            )  # fmt: skip
        return True

    async def _expanded(self, vm: Object) -> Machine:
        return await decide(lambda lookup: expand_vm(vm, lookup), self._fetch, self.caches)

    async def _fetch(self, kind: Kind, name: str, namespace: str) -> Object | None:
        # A cache may lag behind what was applied together with the VM.
        with contextlib.suppress(NotFound):
            return await self._client.get(kind, name, namespace)
        return None

    async def _capture(self, vm: Object, machine: Machine) -> Failure | None:
        """Store the revisions that are missing; return why that is not possible."""
        for role in ROLES:
            choice = machine.resolved.of(role)
            if choice is None or choice.capture is None:
                continue
            wanted = revisions.revision_of(vm, choice.capture)
            name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
            if await self._create(vm, wanted):
                continue
            there = await self._fetch(core.REVISION, name, namespace)
            if there is None:
                raise Conflict(f"ControllerRevision {name} has just gone")
            if not revisions.is_same(there, wanted):
                return Failure(FAILED_CREATE, f"{_STORING}{revisions.unexpected(name)}")
            if not revisions.is_owned(there, vm):
                # Of an earlier VM of this name: it may be deleted for that one at any time, by its
                # uid. So it is stored again.
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        core.REVISION, name, namespace, uid=there["metadata"]["uid"]
                    )
                if not await self._create(vm, wanted):
                    raise Conflict(f"ControllerRevision {name} belongs to another owner")
        return None

    async def _create(self, vm: Object, revision: Object) -> bool:
        """Store a revision; return whether its name was free."""
        meta = revision["metadata"]
        try:
            await self._client.create(core.REVISION, revision, meta["namespace"])
        except AlreadyExists:
            return False
        log.info("revision taken", extra={"vm": _shown(vm), "revision": meta["name"]})
        return True


def _recorded(vm: Object, role: Role) -> bool:
    return bool(status_of(vm).get(role.reference))


def _failure(machine: Machine) -> Failure | None:
    """Return why a VM cannot be expanded, None if it can."""
    if machine.problems:
        messages = ", ".join(problem.message for problem in machine.problems)
        return Failure(machine.problems[0].reason, messages)
    if machine.conflicts:
        paths = ", ".join(machine.conflicts)
        return Failure(FAILED_CREATE, f"VM conflicts with instancetype spec in fields: [{paths}]")
    return _failed_create(machine.errors)


def _unmet(vm: Object, machine: Machine) -> Failure | None:
    """Return what a preference requires and the VM does not have, None if nothing."""
    return _failed_create(unmet_requirements(vm, machine))


def _failed_create(errors: Iterable[FieldError]) -> Failure | None:
    messages = [error.message for error in errors]
    return Failure(FAILED_CREATE, ", ".join(messages)) if messages else None


def _shown(vm: Object) -> str:
    return f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"


# ---------------------------------------------------------------- newer generations


def newer_condition(vm: Object, resolved: Resolved, lookup: Lookup) -> Condition | None:
    """Return the condition of a VM whose instance type or preference has a newer generation."""
    texts, reason = [], ""
    for role in ROLES:
        choice = resolved.of(role)
        live = None if choice is None else newer(choice, vm["metadata"]["namespace"], lookup)
        if choice is None or live is None:
            continue
        command = f"virtctl vm update-{role.noun.replace(' ', '-')}"
        texts.append(
            f"{role.noun} {choice.name} {_changed(choice.object['metadata'], live['metadata'])};"
            f" `{command} {vm['metadata']['name']} {choice.kind.singular}/{choice.name}`"
            " takes the newer one"
        )
        reason = reason or _CHANGED[role is INSTANCETYPE]
    if not texts:
        return None
    return conditions.condition(NEWER, "True", reason, "; ".join(texts))


def _changed(used: Object, live: Object) -> str:
    """Return how what a VM has differs from what there is, given the metadata of both."""
    has, is_at = used.get("generation", 0), live.get("generation", 0)
    if used.get("uid") != live.get("uid"):
        return f"was deleted and created again, this VM has generation {has} of the deleted one"
    return f"is at generation {is_at}, this VM has generation {has} of it"


# ---------------------------------------------------------------- which VMs use them


def users(machines: Iterable[Object], obj: Object) -> list[Key]:
    """Return the VMs that name an object, or were sized by it without naming it."""
    return [key_of(vm) for vm in machines if _names(vm, obj)]


def revisions_used(vm: Object) -> list[Key]:
    """Return the revisions a VM uses: those it pins and those its status names."""
    found = []
    for role in ROLES:
        matcher = vm["spec"].get(role.field)
        if matcher is None:
            continue
        recorded = status_of(vm).get(role.reference) or {}
        in_use = (recorded.get("controllerRevisionRef") or {}).get("name")
        for name in (matcher.get("revisionName"), in_use):
            if name:
                found.append(Key(vm["metadata"].get("namespace") or "", name))
    return found


def is_missed(change: Change, vm: Object) -> bool:
    """Return whether a VM must be reconciled because a revision it uses has come or gone.

    A new one matters only to a VM that could not be sized without it.
    """
    if change.old is not None and change.new is not None:
        return False  # what it holds never changes
    listed = status_of(vm).get("conditions")
    return change.new is None or conditions.is_true(listed, "Failure")


def _names(vm: Object, obj: Object) -> bool:
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace") or ""
    for role in ROLES:
        if vm["spec"].get(role.field) is None:
            continue
        recorded = status_of(vm).get(role.reference) or {}
        for given in (vm["spec"][role.field], recorded):
            kind = role.kind(given.get("kind") or "")
            if given.get("name") != name or kind is None or kind.kind != obj["kind"]:
                continue
            if not kind.namespaced or vm["metadata"]["namespace"] == namespace:
                return True
    return False
