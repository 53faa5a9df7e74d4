"""CPUs that are plugged into a guest with CPUs of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import exclusive
from livevirt.node import process as processes
from livevirt.node.guest import Guest
from livevirt.node.guest import guest as guest_module
from livevirt.node.guest.view import RebootRequest
from livevirt.node.intent import Exclusive
from livevirt.node.process import Process
from livevirt.qemu.machine import Thread
from livevirt.qemu.plan import PlugCpu, RequestMemory, Step

from ..moving_qemu import MACHINE

OWN = Exclusive(cpus=(3, 4), vcpus=(3, 4), emulator=(3, 4))
PLUG = PlugCpu("max-x86_64-cpu", Thread(1, 0, 0))


def an_intent(own: Exclusive | None) -> Any:
    return SimpleNamespace(
        vmi="web", namespace="default", machine=MACHINE, exclusive=own,
        agent_socket="/none", qmp_socket="/none",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "step", "done"),
    [
        (OWN, PLUG, ["plug", "pin"]),
        (OWN, RequestMemory(1), ["plug"]),
        (None, PLUG, ["plug"]),
    ],
    ids=["its own", "memory", "shared"],
)
async def test_a_cpu_is_pinned_as_soon_as_it_is_plugged(
    own: Exclusive | None, step: Step, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def act(*_: Any) -> None:
        told.append("plug")

    async def pin(*_: Any) -> None:
        told.append("pin")
        raise OSError("the kernel says no")  # and the guest runs on

    monkeypatch.setattr(guest_module, "act", act)
    monkeypatch.setattr(exclusive, "pin", pin)
    monkeypatch.setattr(Guest, "qmp", lambda _: None)
    monkeypatch.setattr(processes, "exited", lambda _: asyncio.Event().wait())
    nobody = Process(pid=0, started=0)
    reboot = RebootRequest(Path("/nonexistent/reboot"))
    guest = Guest(an_intent(own), nobody, lambda: None, lambda _: None, reboot)
    try:
        await guest.do(step)
        assert told == done
        assert not guest.ended
    finally:
        await guest.close()
