"""Durations, and what to do about a refusal."""

from __future__ import annotations

import click
import pytest

from livevirt.cli.session import VMI, Session, advice, seconds
from livevirt.errors import ApiError, Conflict, NotFound
from livevirt.kube.client.access import Access
from livevirt.kube.client.errors import Unreachable
from livevirt.kube.client.remote import RemoteClient

DURATIONS = {"": None, "0": None, "0s": None, "30": 30.0, "30s": 30.0, "1m30s": 90.0, "1h": 3600.0}


@pytest.mark.parametrize(("text", "length"), DURATIONS.items(), ids=lambda v: repr(v))
def test_durations(text: str, length: float | None) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["soon", "-1", "1d", "1.5s", "²", "9" * 5000])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        seconds(text)


async def test_an_argument_that_is_no_text_is_refused() -> None:
    client = RemoteClient(Access("https://127.0.0.1:1"))
    with pytest.raises(click.UsageError, match=r"'\\udcff' is no text in UTF-8"):
        await Session(client, "default").ask("POST", VMI, "web", "exec", {"command": ["\udcff"]})
    await client.close()


ADVICE = {
    "no VM": (NotFound("…", details={"kind": "virtualmachines"}), "kubectl get vm"),
    "no instance": (NotFound("…", details={"kind": "virtualmachineinstances"}), "virtctl start"),
    "no agent": (
        Conflict("…", details={"name": "web", "causes": [{"reason": "GuestAgentNotConnected"}]}),
        "kubectl wait vmi web",
    ),
    "an agent that has stopped": (
        Conflict("…", details={"name": "web", "causes": [{"reason": "GuestAgentStopped"}]}),
        "virtctl console web",
    ),
    "a guest that does not run": (
        Conflict("…", details={"name": "web", "causes": [{"reason": "GuestNotRunning"}]}),
        "kubectl describe vmi web",
    ),
    "no server": (Unreachable("https://x cannot be reached: …"), "livevirt up"),
    "a reason that speaks for itself": (Conflict("VM is already running"), ""),
}


@pytest.mark.parametrize(("error", "hint"), ADVICE.values(), ids=ADVICE)
def test_refusals_come_with_the_next_move(error: ApiError, hint: str) -> None:
    assert hint in advice(error)
    assert bool(hint) == bool(advice(error))
