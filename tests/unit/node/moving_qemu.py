"""A QEMU that a guest leaves or comes to, as far as its monitor tells; and the guest in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

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
        self.told.append(command)
        return {}

    @contextmanager
    def listen(self, *names: str) -> Iterator[Any]:
        yield None


def a_guest(qmp: Qmp) -> Any:
    """Return a guest in that QEMU."""

    async def look_again() -> None:
        qmp.told.append("look")

    return SimpleNamespace(
        intent=SimpleNamespace(vmi="web", namespace="default", machine=MACHINE),
        view=SimpleNamespace(observed=SimpleNamespace(run_state=qmp.run_state)),
        qmp=lambda: qmp,
        look_away=lambda: None,
        look_again=look_again,
    )
