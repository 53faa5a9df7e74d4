"""Finds what a VM is sized by, keeps a revision of it, and hands the VM on expanded."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field

from livevirt.api import registry
from livevirt.api.conditions import Condition
from livevirt.api.kind import Kind
from livevirt.api.request import Object
from livevirt.client.interface import Client
from livevirt.control.key import Key
from livevirt.controllers.informers import Informers
from livevirt.controllers.instancetypes.newer import condition
from livevirt.errors import AlreadyExists, NotFound
from livevirt.rollout.instancetypes import machine as machines
from livevirt.rollout.instancetypes import revisions
from livevirt.rollout.instancetypes.lookup import Lookup, decide
from livevirt.rollout.instancetypes.machine import Machine
from livevirt.rollout.instancetypes.matchers import ROLES, Role
from livevirt.rollout.instancetypes.policy import to_be_rewritten
from livevirt.rollout.instancetypes.resolution import Resolved, references

log = logging.getLogger(__name__)

FAILED_CREATE = "FailedCreate"
_STORING = "error encountered while storing instancetype.kubevirt.io controllerRevisions: "
KINDS = (
    registry.INSTANCETYPE, registry.CLUSTER_INSTANCETYPE, registry.PREFERENCE,
    registry.CLUSTER_PREFERENCE,
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


class Sizes:
    """Sizes VMs; instance types and preferences are read from caches."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._caches = {kind.resource: informers.of(kind) for kind in KINDS}

    async def size(self, vm: Object) -> Sized:
        """Return a VM expanded, with a revision of all that it is sized by in the store."""
        if not any(vm["spec"].get(role.field) or _recorded(vm, role) for role in ROLES):
            machine = machines.expand_with(vm, Resolved())
            return Sized(machine.vm, failure=_failure(machine))
        machine, newer = await decide(lambda lookup: _look(vm, lookup), self._fetch)
        failure = _failure(machine) or await self._capture(vm, machine)
        if failure:
            return Sized(vm, failure=failure, newer=newer)
        wanted = references(vm, machine.resolved)
        status = {**(vm.get("status") or {}), **wanted}
        written = vm.get("status") or {}
        return Sized(
            {**machine.vm, "status": {k: v for k, v in status.items() if v is not None}},
            {name: value for name, value in wanted.items() if written.get(name) != value},
            newer=newer,
        )

    async def rewrite(self, vm: Object, policy: str) -> str | None:
        """Write a VM that is to say its sizes itself, by the cluster's reference policy.

        Return None if it is to stay as it is, else why it could not be written, or nothing. Its
        revisions stay until the VM goes: they are its way back.
        """
        if not to_be_rewritten(vm, policy):
            return None
        machine = await decide(lambda lookup: machines.expand_vm(vm, lookup), self._fetch)
        if not machine.usable:
            why = _failure(machine).partition(": ")[2]
            problem = f"error encountered while expanding into VirtualMachine: {why}"
            return f"UnsupportedSyncError: unsupported error: {problem}"
        written = await self._client.update(registry.VM, machines.detached(machine.vm))
        log.info("instance type written into VM", extra={"vm": _shown(vm)})
        gone = {role.reference: None for role in ROLES if _recorded(vm, role)}
        if gone:
            meta = written["metadata"]
            version = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            await self._client.patch(
                registry.VM, meta["name"], meta["namespace"], {"metadata": version, "status": gone},
                subresource="status",
            )  # fmt: skip
        return ""

    async def _fetch(self, kind: Kind, name: str, namespace: str) -> Object | None:
        cache = self._caches.get(kind.resource)
        if cache is not None and (found := cache.get(Key(namespace, name))) is not None:
            return found
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
            try:
                await self._client.create(registry.REVISION, wanted, namespace)
                log.info("revision taken", extra={"vm": _shown(vm), "revision": name})
            except AlreadyExists:
                there = await self._client.get(registry.REVISION, name, namespace)
                if not revisions.is_same(there, wanted):
                    return f"{FAILED_CREATE}: {_STORING}{revisions.unexpected(name)}"
        return ""


def _recorded(vm: Object, role: Role) -> bool:
    return bool((vm.get("status") or {}).get(role.reference))


def _look(vm: Object, lookup: Lookup) -> tuple[Machine, Condition | None]:
    machine = machines.expand_vm(vm, lookup)
    return machine, condition(vm, machine.resolved, lookup)


def _failure(machine: Machine) -> str:
    """Return the reason and message of the Failure condition, or nothing."""
    if machine.problems:
        messages = ", ".join(problem.message for problem in machine.problems)
        return f"{machine.problems[0].reason}: {messages}"
    if machine.conflicts:
        paths = ", ".join(machine.conflicts)
        return f"{FAILED_CREATE}: VM conflicts with instancetype spec in fields: [{paths}]"
    if machine.errors:
        return f"{FAILED_CREATE}: {', '.join(error.message for error in machine.errors)}"
    return ""


def _shown(vm: Object) -> str:
    return f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"
