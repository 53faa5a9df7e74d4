"""Finds what a VM is sized by, keeps a revision of it, and hands the VM on expanded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from livevirt.errors import AlreadyExists, Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.key import Key
from livevirt.kube.control.runtime import Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.conditions import Condition
from livevirt.kube.objects.field_error import FieldError
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.instancetypes.newer import condition
from livevirt.vm.instancetypes.rules import machine as machines
from livevirt.vm.instancetypes.rules import revisions
from livevirt.vm.instancetypes.rules.lookup import decide
from livevirt.vm.instancetypes.rules.machine import Machine
from livevirt.vm.instancetypes.rules.matchers import ROLES, Role
from livevirt.vm.instancetypes.rules.policy import to_be_rewritten
from livevirt.vm.instancetypes.rules.resolution import Resolved, references

log = logging.getLogger(__name__)

FAILED_CREATE = "FailedCreate"
_STORING = "error encountered while storing instancetype.kubevirt.io controllerRevisions: "
KINDS = (
    kinds.INSTANCETYPE, kinds.CLUSTER_INSTANCETYPE, kinds.PREFERENCE,
    kinds.CLUSTER_PREFERENCE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sized:
    """A VM to go on with: expanded, its status naming the revisions in use.

    With a `failure` ("Reason: message" of the Failure condition) it is as written, and nothing may
    be started or rolled out.
    """

    vm: Object
    references: Object = field(default_factory=dict)  # fields of the status to write
    failure: str = ""
    newer: Condition | None = None


class Caches:
    """What is known of instance types, preferences and the revisions of both without asking."""

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
            machine = machines.expand_with(vm, Resolved())
            return Sized(machine.vm, failure=_failure(machine))
        machine = await self._expanded(vm)
        # A change that the caches have not seen yet wakes the VM when they do.
        newer = condition(vm, machine.resolved, self.caches)
        written, wanted = vm.get("status") or {}, references(vm, machine.resolved)
        changed = {name: value for name, value in wanted.items() if written.get(name) != value}
        failure = _failure(machine)
        if changed and not failure:  # admission has not seen all of it, if it was not there then
            failure = _unmet(vm, machine) or await self._capture(vm, machine)
        if failure:
            return Sized(vm, failure=failure, newer=newer)
        status = {**written, **wanted}
        return Sized(
            {**machine.vm, "status": {k: v for k, v in status.items() if v is not None}},
            changed,
            newer=newer,
        )

    async def rewrite(self, vm: Object, policy: str) -> str | None:
        """Write a VM that is to say its sizes itself, by the cluster's reference policy.

        Return None if it is to stay as it is, else why it could not be written, or nothing. Its
        revisions stay until the VM goes: they are its way back.
        """
        if not to_be_rewritten(vm, policy):
            return None
        machine = await self._expanded(vm)
        if failure := _failure(machine) or _unmet(vm, machine):
            why = failure.partition(": ")[2]
            problem = f"error encountered while expanding into VirtualMachine: {why}"
            return f"UnsupportedSyncError: unsupported error: {problem}"
        written = await self._client.update(kinds.VM, machines.detached(machine.vm))
        log.info("instance type written into VM", extra={"vm": _shown(vm)})
        gone = {role.reference: None for role in ROLES if _recorded(vm, role)}
        if gone:
            meta = written["metadata"]
            version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            await self._client.patch(
                kinds.VM, meta["name"], meta["namespace"], {"metadata": version, "status": gone},
                subresource="status",
            )  # fmt: skip
        return ""

    async def _expanded(self, vm: Object) -> Machine:
        return await decide(lambda lookup: machines.expand_vm(vm, lookup), self._fetch, self.caches)

    async def _fetch(self, kind: Kind, name: str, namespace: str) -> Object | None:
        # A cache may lag behind what was applied together with the VM.
        with contextlib.suppress(NotFound):
            return await self._client.get(kind, name, namespace)
        return None

    async def _capture(self, vm: Object, machine: Machine) -> str:
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
                return f"{FAILED_CREATE}: {_STORING}{revisions.unexpected(name)}"
            if not revisions.is_owned(there, vm):
                # Of an earlier VM of this name: it may be deleted for that one at any time, by its
                # uid. So it is taken anew.
                with contextlib.suppress(NotFound):
                    await self._client.delete(
                        core.REVISION, name, namespace, uid=there["metadata"]["uid"]
                    )
                if not await self._create(vm, wanted):
                    raise Conflict(f"ControllerRevision {name} was made by somebody else")
        return ""

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
    return bool((vm.get("status") or {}).get(role.reference))


def _failure(machine: Machine) -> str:
    """Return the reason and message of the Failure condition, or nothing."""
    if machine.problems:
        messages = ", ".join(problem.message for problem in machine.problems)
        return f"{machine.problems[0].reason}: {messages}"
    if machine.conflicts:
        paths = ", ".join(machine.conflicts)
        return f"{FAILED_CREATE}: VM conflicts with instancetype spec in fields: [{paths}]"
    if machine.errors:
        return _failed_create(machine.errors)
    return ""


def _unmet(vm: Object, machine: Machine) -> str:
    """Return the same for what a preference requires and the VM has not, or nothing."""
    found = machines.unmet_requirements(vm, machine)
    return _failed_create(found) if found else ""


def _failed_create(errors: Iterable[FieldError]) -> str:
    return f"{FAILED_CREATE}: {', '.join(error.message for error in errors)}"


def _shown(vm: Object) -> str:
    return f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"
