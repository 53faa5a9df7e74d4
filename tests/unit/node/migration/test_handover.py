from __future__ import annotations

from livevirt.node.migration.handover import Handovers, Offer
from livevirt.qemu.machine import MIB, Cpu, Machine, Memory

OFFER = Offer(
    Machine(
        name="web",
        uuid="12345678-1234-1234-1234-123456789abc",
        accelerator="tcg",
        cpu=Cpu(model="max"),
        memory=Memory(boot=MIB, max=MIB),
        run_dir="/run/vm",
        serial_log="/serial",
    )
)


def test_each_side_hears_of_the_other_whoever_comes_first() -> None:
    handovers, heard = Handovers(), list[str]()
    assert (handovers.get("m").offer, handovers.get("m").socket) == (None, "")
    handovers.subscribe("m", "target", lambda: heard.append("target"))
    handovers.subscribe("m", "source", lambda: heard.append("source"))
    handovers.subscribe("m", "source", lambda: heard.append("source"))  # in place of the first
    handovers.offer("m", OFFER)
    assert heard == ["target", "source"]
    handovers.listen("m", "/guest.sock")
    assert (handovers.get("m").offer, handovers.get("m").socket) == (OFFER, "/guest.sock")
    assert handovers.get("another").offer is None


def test_nothing_stays_of_a_handover_that_is_over() -> None:
    handovers, heard = Handovers(), list[str]()
    handovers.subscribe("m", "target", lambda: heard.append("target"))
    handovers.offer("m", OFFER)
    handovers.remove("m")
    handovers.remove("m")
    handovers.listen("m", "/guest.sock")
    assert heard == ["target"]
    assert handovers.get("m").offer is None
