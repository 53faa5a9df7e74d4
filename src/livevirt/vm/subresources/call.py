"""One call of a subresource verb: what the verbs share to read, refuse and write."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from livevirt.errors import BadRequest, Conflict, NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.clock import Now
from livevirt.kube.control.turns import Turns
from livevirt.kube.objects import field_error, structural
from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Answer, Object, User
from livevirt.kube.objects.schema import definitions
from livevirt.vm import kinds


class GuestEndpoint(Protocol):
    """Reaches the guests that run here, by the namespace and name of their instance.

    The caller has checked in the status that the guest runs. Raises Conflict if it does not any
    more.
    """

    async def pause(self, namespace: str, vmi: str) -> None:
        """Stop the guest's CPUs; the condition Paused follows."""

    async def unpause(self, namespace: str, vmi: str) -> None:
        """Let a paused guest go on."""

    async def soft_reboot(self, namespace: str, vmi: str) -> None:
        """Ask the guest to reboot: by its agent, else by the power button of ACPI."""

    async def reset(self, namespace: str, vmi: str) -> None:
        """Reset the machine, whatever the guest is doing."""

    def agent_answered(self, namespace: str, vmi: str) -> bool:
        """Return whether the agent of the guest is known to have answered at some time."""

    async def guest_os_info(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceGuestAgentInfo."""

    async def user_list(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceGuestOSUserList."""

    async def filesystem_list(self, namespace: str, vmi: str) -> Object:
        """Return a VirtualMachineInstanceFileSystemList."""


DONE = Answer(200, b"")


def utc_now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Call:
    """Everything a verb may need."""

    client: Client  # acts for us, not for the caller
    guests: GuestEndpoint
    namespace: str
    name: str
    user: User
    http: web.BaseRequest
    body: Any = None
    rest: str = ""  # of the path, below the verb
    turns: Turns = field(default_factory=Turns)  # of those who write the same object
    now: Now = utc_now

    @property
    def options(self) -> Object:
        """The body as an object; an empty one means no options."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            raise BadRequest("the body of the request must be an object")
        return self.body

    async def vm(self) -> Object:
        """Return the VM; raises NotFound."""
        return await self.client.get(kinds.VM, self.name, self.namespace)

    async def instance(self) -> Object:
        """Return the instance; raises NotFound."""
        return await self.client.get(kinds.VMI, self.name, self.namespace)

    async def instance_or_none(self) -> Object | None:
        """Return the instance of the VM's name, if there is one."""
        try:
            return await self.instance()
        except NotFound:
            return None

    def refuse(self, kind: Kind, why: str, cause: str = "") -> Conflict:
        """Return the refusal of something the object's state does not allow.

        `cause` is a reason that programs may read.
        """
        details: Object = {"name": self.name, "group": kind.group, "kind": kind.singular}
        if cause:
            details["causes"] = [{"reason": cause, "message": why}]
        return Conflict(
            f'Operation cannot be fulfilled on {kind.singular}.{kind.group} "{self.name}": {why}',
            details=details,
        )


Verb = Callable[[Call], Awaitable[Answer | web.StreamResponse]]


def phase(vmi: Object | None) -> str:
    """Return the phase of an instance, empty without one."""
    return str(((vmi or {}).get("status") or {}).get("phase") or "")


def running(vmi: Object | None) -> bool:
    """Return whether there is an instance that has not ended."""
    return vmi is not None and phase(vmi) not in FINAL


async def decided(call: Call, decide: Callable[[], Awaitable[Answer]]) -> Answer:
    """Read, decide and write; all of it again after a conflicting write."""

    async def attempt() -> Answer | None:
        with contextlib.suppress(Stale):
            return await decide()
        return None

    key = (kinds.VM.resource, call.namespace, call.name)
    return await call.turns.write(key, attempt) or await decide()


class Stale(Conflict):
    """What was read is old by now; not a refusal of what was asked."""


async def patch_vm(call: Call, vm: Object, patch: Object, subresource: str = "") -> Object:
    """Change the VM as it was read and return it; raises Stale if it is another one by now."""
    version = {"resourceVersion": vm["metadata"]["resourceVersion"]}
    try:
        return await call.client.patch(
            kinds.VM,
            call.name,
            call.namespace,
            {"metadata": version, **patch},
            subresource=subresource,
        )
    except Conflict as error:
        raise Stale(error.message, details=error.details) from error


async def set_strategy(call: Call, vm: Object, strategy: str) -> None:
    """Change the run strategy, in the field that the VM's owner chose."""
    if vm["spec"].get("running") is not None:
        spec: Object = {"running": strategy != "Halted"}
    else:
        spec = {"runStrategy": strategy}
    await patch_vm(call, vm, {"spec": spec})


async def shorten_grace(call: Call, vmi: Object, seconds: int) -> None:
    """Give a guest another time to shut down by itself."""
    version = {"uid": vmi["metadata"]["uid"]}
    patch = {"metadata": version, "spec": {"terminationGracePeriodSeconds": seconds}}
    with contextlib.suppress(NotFound):  # gone already, which is what was asked for
        await call.client.patch(kinds.VMI, call.name, call.namespace, patch)


class Options(NamedTuple):
    """What a request asks for."""

    given: Object
    dry_run: bool
    warnings: tuple[str, ...] = ()  # of unknown fields


def read(call: Call, kind: str) -> Options:
    """Return the options of a request, none if it has no body; raises BadRequest."""
    given, unknown = pruned(kind, call.options)
    return Options(given, dry_run(kind, given), unknown)


def pruned(kind: str, body: Object) -> tuple[Object, tuple[str, ...]]:
    """Return the fields that options of a kind have, and a warning for each of the others."""
    unknown: list[str] = []
    found = structural.prune(definitions()[f"kubevirt.{kind}"], body, unknown)
    return found, tuple(f'unknown field "{path}"' for path in unknown)


def dry_run(kind: str, given: Object) -> bool:
    """Check pruned options; return whether nothing may be changed."""
    if errors := structural.validate(definitions()[f"kubevirt.{kind}"], given):
        raise BadRequest(", ".join(map(str, errors)))
    wanted = given.get("dryRun") or []
    if strange := [each for each in wanted if each != "All"]:
        raise BadRequest(str(field_error.not_supported("dryRun", strange[0], ["All"])))
    return bool(wanted)


def grace(options: Options, field: str) -> int | None:
    """Return the seconds a guest is given to shut down, None if nothing is said of them."""
    value = options.given.get(field)
    if value is None:
        return None
    if not isinstance(value, int):
        raise BadRequest(f"{field} must be a whole number")
    if value < 0:
        raise BadRequest("gracePeriod has to be greater or equal to 0")
    return value
