"""What is known of a running QEMU and its guest, and a reboot that was requested."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from livevirt.files import durable
from livevirt.qemu.agent import Interface, OsInfo, Timezone, Vcpu
from livevirt.qemu.guest_memory import GuestMemory
from livevirt.qemu.lifecycle import Standing
from livevirt.qemu.machine import Machine
from livevirt.qemu.observe import Observed
from livevirt.qemu.plan import MachineSnapshot

_NO_OS = OsInfo()


@dataclass(frozen=True, slots=True)
class AgentView:
    """What the guest agent last reported."""

    version: str
    os: OsInfo = _NO_OS
    timezone: Timezone | None = None
    interfaces: tuple[Interface, ...] = ()
    commands: frozenset[str] = frozenset()  # that the agent has and may be used
    vcpus: tuple[Vcpu, ...] | None = None  # None: the agent does not report them
    possible_cpus: int | None = None  # that the kernel can register until it boots again
    blocks: GuestMemory | None = None  # None: the agent does not report them
    auto_online: str | None = None  # what the kernel does with new memory; None: not asked yet
    unmovable: bool = False  # memory was brought online where the kernel may keep it

    @property
    def has_address(self) -> bool:
        """Whether a network card has an address that was assigned to it, not self-made."""
        return any(
            address.ip_address_type == "ipv4"
            for card in self.interfaces
            if card.hardware_address != "00:00:00:00:00:00"
            for address in card.ip_addresses
        )


@dataclass(frozen=True, slots=True)
class View:
    """What is known about a guest at one moment; None is not known yet."""

    standing: Standing | None = None
    observed: Observed | None = None
    machine_type: str = ""  # the one that an alias such as `q35` stands for
    agent: AgentView | None = None
    agent_silent: bool = False  # it has its port open and has not answered for long

    @property
    def agent_open(self) -> bool:
        """Whether an agent in the guest has opened its port."""
        return self.observed is not None and self.observed.agent_open


NOTHING_YET = View()


def snapshot(machine: Machine, observed: Observed, agent: AgentView | None) -> MachineSnapshot:
    """Return what plans are made from: how a guest was started, is, and reports itself to be."""
    if agent is None:
        return MachineSnapshot(machine, observed)
    return MachineSnapshot(
        machine, observed, agent.vcpus, agent.blocks, agent=True, auto_online=agent.auto_online
    )


class ViewStore:
    """The current view of one guest. `wake` is called whenever it has changed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.current = NOTHING_YET
        self._wake = wake

    def show(self, view: View) -> None:
        """Replace the view."""
        if view != self.current:
            self.current = view
            self._wake()


LEAST_SECONDS = 60.0  # a guest has at least so long to shut down for a reboot


class RebootRequest:
    """The request that one guest be started again after it shuts down."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        """`now` must continue for as long as the machine runs; a guest ends with it."""
        self._path, self._now = path, now

    @property
    def pending(self) -> bool:
        """Whether a guest that is found off now is to be started again."""
        try:
            return self._now() < float(self._path.read_text())
        except FileNotFoundError:
            return False

    def write(self, seconds: float) -> None:
        """Record the request durably, for so long."""
        until = self._now() + max(seconds, LEAST_SECONDS)
        durable.write(self._path, str(until).encode())

    def remove(self) -> None:
        """Withdraw the request: a guest that shuts down stays off."""
        self._path.unlink(missing_ok=True)
