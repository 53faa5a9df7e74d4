"""Commands in a guest: the subresource `exec` of a running instance, through its agent."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Protocol

from livevirt.errors import BadRequest
from livevirt.kube.objects import conditions
from livevirt.kube.objects.request import Answer, Object
from livevirt.vm import kinds
from livevirt.vm.guest.subresources import check_agent, running_instance
from livevirt.vm.subresources.call import Call, Verb


class Finished(Protocol):
    """How a command in a guest ended."""

    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def stdout(self) -> bytes: ...
    @property
    def stderr(self) -> bytes: ...
    @property
    def truncated(self) -> bool: ...


class ExecEndpoint(Protocol):
    """Runs commands in the guests that run here."""

    async def exec(
        self, namespace: str, vmi: str, command: Sequence[str], stdin: bytes
    ) -> Finished:
        """Run a command in a guest and return how it ended.

        The caller has checked in the status that the guest runs and its agent answers. Raises
        Conflict if that is so no more, or the command cannot be started.
        """


def verb(endpoint: ExecEndpoint) -> Verb:
    """Return the verb that takes `{command: […], stdin?: base64}` and answers how it ended."""

    async def run(call: Call) -> Answer:
        command, stdin = _asked(call.body)
        vmi = await running_instance(call)
        listed = (vmi.get("status") or {}).get("conditions")
        if conditions.is_true(listed, "Paused"):
            raise call.refuse(kinds.VMI, "VMI is paused")
        check_agent(call, vmi)
        ended = await endpoint.exec(call.namespace, call.name, command, stdin)
        return Answer(200, answer_of(ended))

    return run


def answer_of(finished: Finished) -> Object:
    """Return how a command ended; one ended by a signal has the status shells give it."""
    status = finished.exit_code
    if status is None:
        status = 128 + (finished.signal or 0)
    answer: Object = {
        "exitCode": status,
        "stdout": base64.b64encode(finished.stdout).decode(),
        "stderr": base64.b64encode(finished.stderr).decode(),
    }
    if finished.truncated:
        answer["truncated"] = True
    return answer


def _asked(body: Any) -> tuple[list[str], bytes]:
    if not isinstance(body, dict):
        raise BadRequest('the body must be an object with a "command"')
    command = body.get("command")
    if not isinstance(command, list) or not command or not command[0]:
        raise BadRequest('"command" must be a list: the program, then its arguments')
    if not all(isinstance(each, str) and "\0" not in each for each in command):
        raise BadRequest('"command" may only hold texts without NUL')
    try:
        return command, base64.b64decode(body.get("stdin") or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise BadRequest('"stdin" must be base64') from None
