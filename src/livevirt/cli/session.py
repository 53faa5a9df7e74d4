"""A command's session with a cluster: connect, send requests, show refusals as KubeVirt does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from livevirt.cli import cluster
from livevirt.errors import ApiError, Timeout
from livevirt.kube.client.refusals import Refusal, causes, classify
from livevirt.paths import DataDir
from livevirt.vm.kinds import support
from livevirt.vm.kinds.subresources import (
    GUEST_AGENT_STOPPED,
    GUEST_NOT_RUNNING,
    NO_GUEST_AGENT,
)

if TYPE_CHECKING:  # costly to import, and `virtctl version --client` needs none of it
    from livevirt.kube.client.remote import RemoteClient

T = TypeVar("T")

VM, VMI = "virtualmachines", "virtualmachineinstances"
DRY_RUN = {"dryRun": ["All"]}

_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """A client and the namespace to work in."""

    client: RemoteClient
    namespace: str
    timeout: float | None = None  # seconds for one request

    def path(self, resource: str, name: str, verb: str) -> str:
        """Return the path of a verb of `subresources.kubevirt.io` on an object."""
        from livevirt.kube.objects import names

        wrong = names.validate_path_segment(name)
        if wrong or not name:
            raise click.UsageError(f"{name!r} is no name of an object")
        root = f"/apis/subresources.kubevirt.io/v1/namespaces/{self.namespace}"
        return f"{root}/{resource}/{name}/{verb}"

    async def ask(
        self, method: str, resource: str, name: str, verb: str, body: Any = None
    ) -> bytes:
        """Send a verb of `subresources.kubevirt.io`; return the answer."""
        path = self.path(resource, name, verb)
        try:
            async with asyncio.timeout(self.timeout):
                return await self.client.raw(method, path, body=body)
        except TimeoutError:
            raise Timeout(
                f"the server did not answer within {self.timeout:g} s; try again, or wait longer"
                " with --request-timeout"
            ) from None
        except UnicodeEncodeError as error:  # JSON has only Unicode, arguments may be any bytes
            raise click.UsageError(f"{error.object!a} is no text in UTF-8") from None


def talk(work: Callable[[Session], Awaitable[T]], data: DataDir | None = None) -> T:
    """Connect as the global flags say, do the work and disconnect."""
    choice = cluster.chosen()
    found = cluster.access(choice, data)
    timeout = seconds(choice.request_timeout, "--request-timeout")

    async def connected() -> T:
        client = cluster.connect(found)
        session = Session(client, found.namespace, timeout)
        try:
            return await work(session)
        except ApiError as error:
            if error.status_code < 503:
                await _compare_versions(client)
            raise
        finally:
            await client.close()

    return asyncio.run(connected())


def seconds(text: str, flag: str = "") -> float | None:
    """Return how long `30`, `30s`, `1m30s` or `1h` are; None for `0` and nothing: no limit."""
    found = _DURATION.fullmatch(text)
    if found is None:
        why = f"{text!r} is no duration; write 30s or 1m30s"
        raise click.BadParameter(why, param_hint=flag or None)
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(hours * 3600 + minutes * 60 + rest) or None


async def _compare_versions(client: RemoteClient) -> None:
    """Mention a server of another version: it may be why the request failed."""
    from livevirt.kube.client.wire import decoded

    mine = support.info()
    with suppress(ApiError):
        theirs = decoded(await client.raw("GET", support.PATH))
        if support.differ(mine["gitVersion"], theirs.get("gitVersion", "")):
            click.echo(
                "You are using a client virtctl version that is different from the KubeVirt"
                " version running in the cluster\n"
                f"Client Version: {mine['gitVersion']}\nServer Version: {theirs['gitVersion']}",
                err=True,
            )


@contextmanager
def refusals(wording: str) -> Iterator[None]:
    """Print a refusal on one line, `{}` in the format being its reason, and exit with 1."""
    try:
        yield
    except ApiError as error:
        text = wording.replace("{}", error.message)
        hint = advice(error)
        click.echo(f"{text}; {hint}" if hint else text, err=True)
        raise click.exceptions.Exit(1) from None


def advice(error: ApiError) -> str:
    """Return what to do about a refusal, where the refusal itself does not say it."""
    refusal = classify(error)
    if refusal is Refusal.UNREACHABLE:
        return "see `livevirt status`, start it with `livevirt up --detach`"
    about = error.details.get("kind", "")
    missing = refusal is Refusal.NOT_FOUND
    if missing and about == VM:
        return "see `kubectl get vm --all-namespaces`"
    if missing and about == VMI:
        return "it does not run: see `kubectl get vm`, start it with `virtctl start`"
    if missing and about.endswith(("instancetypes", "preferences")):
        return f"see `kubectl get {about}`"
    name = error.details.get("name")
    if GUEST_NOT_RUNNING in causes(error) and name:
        return f"see why with `kubectl describe vmi {name}`"
    if GUEST_AGENT_STOPPED in causes(error) and name:
        return (
            f"start it in the guest (`virtctl console {name}`, then for example `systemctl start"
            " qemu-guest-agent`), or wait for it if the guest is rebooting"
        )
    if NO_GUEST_AGENT in causes(error) and name:
        return f"wait for it: `kubectl wait vmi {name} --for=condition=AgentConnected`"
    return ""
