"""A QEMU that a guest leaves or comes to, as far as its monitor tells; and the guest in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from livevirt.node.guest import View
from livevirt.qemu.errors import Disconnected
from livevirt.qemu.lifecycle import standing
from livevirt.qemu.machine import MIB, Cpu, Machine, Memory

MACHINE = Machine(
    name="web",
    uuid="12345678-1234-1234-1234-123456789abc",
    accelerator="tcg",
    cpu=Cpu(model="max"),
    memory=Memory(boot=MIB, max=MIB),
    run_dir="/run/vm",
    serial_log="/serial",
)


class Qmp:
    """Answers what a QEMU in that state would; remembers what it was told to do."""

    def __init__(self, run_state: str = "running", status: str = "") -> None:
        self.run_state, self.status = run_state, status
        self.told: list[str] = []
        self.gone = False

    async def execute(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        match command:
            case "query-status":
                return {"status": self.run_state}
            case "query-migrate":
                return {"status": self.status} if self.status else {}
            case "cont":
                self.run_state = "running"
            case "stop":
                self.run_state = "paused"
            case "migrate":
                self.status = "active"
            case "quit":
                self.gone = True
        self.told.append(command)
        return {}

    @contextmanager
    def listen(self, *names: str) -> Iterator[Any]:
        yield None


class FakeGuest:
    """The guest in that QEMU, as far as those see it who move it."""

    agent = adjuster = seen = None

    def __init__(self, qmp: Qmp, intent: Any = None) -> None:
        self._qmp = qmp
        self.intent = intent or SimpleNamespace(
            vmi="web", namespace="default", pod="t", node="n2", machine=MACHINE
        )
        self.view = View(standing(qmp.run_state))

    @property
    def ended(self) -> bool:
        return self._qmp.gone

    def qmp(self) -> Any:
        if self._qmp.gone:
            raise Disconnected("QEMU is gone")
        return self._qmp

    def suspend_observation(self) -> None:
        """Observe nothing by itself; it never does."""

    async def resume_observation(self) -> None:
        self._qmp.told.append("look")
        self.view = View(standing(self._qmp.run_state))

    async def power_down(self) -> None:
        await self._qmp.execute("system_powerdown")

    async def quit(self) -> None:
        await asyncio.sleep(0.02)  # it takes its time, and others go on meanwhile
        await self._qmp.execute("quit")


def a_guest(qmp: Qmp, intent: Any = None) -> Any:
    """Return a guest in that QEMU."""
    return FakeGuest(qmp, intent)
