from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livevirt.node import process as processes
from livevirt.node.guest import Guest, qmp_connection
from livevirt.node.guest.view import RebootRequest
from livevirt.qemu.observe import MemoryState, Observed
from livevirt.qemu.session import Event, Events

from ..moving_qemu import MACHINE, Qmp

OFF = Event("SHUTDOWN", {"guest": True, "reason": "guest-shutdown"})


class Talking(Qmp):
    """A QEMU that also says things by itself."""

    connected = True

    def __init__(self) -> None:
        super().__init__()
        self.events = Events(frozenset(), "qmp.sock")

    async def __aenter__(self) -> Talking:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def close(self) -> None:
        pass

    @contextmanager
    def listen(self, *names: str) -> Iterator[Events]:
        yield self.events


@asynccontextmanager
async def followed(
    qmp: Talking, root: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Guest]:
    """Have a guest in that QEMU followed."""

    async def connect(_: str) -> Talking:
        return qmp

    async def observe(_: Talking) -> Observed:
        return Observed(qmp.run_state, (), MemoryState(0, 0, 0))

    async def nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr(qmp_connection, "Session", SimpleNamespace(connect=connect))
    monkeypatch.setattr(qmp_connection, "observe", observe)
    monkeypatch.setattr(qmp_connection, "forget_files", nothing)
    monkeypatch.setattr(qmp_connection, "forget_forwards", nothing)
    monkeypatch.setattr(qmp_connection, "_machine_type", nothing)
    monkeypatch.setattr(processes, "exited", lambda _: asyncio.Event().wait())
    intent: Any = SimpleNamespace(
        vmi="web", namespace="d", machine=MACHINE, exclusive=None,
        agent_socket="/none", qmp_socket="/none",
    )  # fmt: skip
    process: Any = None
    reboot = RebootRequest(root / "reboot")
    guest = Guest(intent, process, lambda: None, lambda _: None, reboot)
    try:
        await stands(guest, "running")
        yield guest
    finally:
        await guest.close()


async def stands(guest: Guest, condition: str) -> None:
    async with asyncio.timeout(30):
        while True:
            if guest.view.standing is not None and guest.view.standing.condition == condition:
                return
            await asyncio.sleep(0.01)


async def test_a_guest_that_powers_off_while_it_is_sent_is_seen_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qmp = Talking()
    async with followed(qmp, tmp_path, monkeypatch) as guest:
        guest.suspend_observation()
        qmp.run_state = "shutdown"
        qmp.events._put(OFF)
        await stands(guest, "shutdown")


async def test_a_reboot_waits_until_the_guest_was_sent_or_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second half resumes the guest, which may have been sent whole by then."""
    qmp = Talking()
    async with followed(qmp, tmp_path, monkeypatch) as guest:
        await guest.reboot()
        guest.suspend_observation()
        qmp.run_state = "shutdown"
        qmp.events._put(OFF)
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert "cont" not in qmp.told
        await guest.resume_observation()
        assert qmp.told == ["system_powerdown", "system_reset", "cont"]
