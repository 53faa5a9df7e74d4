"""The accelerator is tried once per boot, and again whenever the answer may be another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from livevirt.node import host
from livevirt.qemu import accelerator
from livevirt.qemu.accelerator import NOTHING, Accelerator, Offer

OFFER = Offer(("qemu64",), ("sse2",), ("q35",))


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often the machine is really tried."""
    tried: list[str] = []

    async def probe(kvm: str) -> Accelerator:
        tried.append(kvm)
        return Accelerator("tcg", f"try {len(tried)}")

    async def version() -> tuple[int, int, int]:
        return (7, 2, 22)

    async def ask(_: Accelerator) -> Offer:
        return OFFER

    monkeypatch.setattr(accelerator, "probe", probe)
    monkeypatch.setattr(accelerator, "ask", ask)
    monkeypatch.setattr(accelerator, "version", version)
    return tried


async def test_a_second_look_believes_the_first(probes: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "accelerator.json"
    first = await host.look(kept)
    assert first.offer == OFFER
    second = await host.look(kept)
    assert (second.accelerator, second.offer) == (first.accelerator, first.offer)
    assert len(probes) == 1


async def test_a_new_boot_or_a_new_qemu_is_looked_at_again(
    probes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "accelerator.json"
    await host.look(kept)
    monkeypatch.setattr(host, "boot_id", lambda: "another")
    await host.look(kept)
    assert len(probes) == 2

    async def newer() -> tuple[int, int, int]:
        return (9, 0, 0)

    monkeypatch.setattr(accelerator, "version", newer)
    assert (await host.look(kept)).qemu == (9, 0, 0)
    assert len(probes) == 3


async def test_a_damaged_record_is_no_record(probes: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "accelerator.json"
    kept.write_text("{")
    await host.look(kept)
    assert (await host.look(kept)).accelerator.reason == "try 1"


async def test_given_qemu_does_not_tell_what_it_can_do_then_it_is_asked_again_next_time(
    probes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: Accelerator) -> Offer:
        raise OSError("not today")

    kept = tmp_path / "accelerator.json"
    with monkeypatch.context() as patched:
        patched.setattr(accelerator, "ask", silent)
        assert (await host.look(kept)).offer == NOTHING
    assert (await host.look(kept)).offer == OFFER


async def test_a_record_of_an_earlier_release_is_no_record(
    probes: list[str], tmp_path: Path
) -> None:
    kept = tmp_path / "accelerator.json"
    await host.look(kept)
    record = json.loads(kept.read_bytes())
    del record["offer"]
    kept.write_text(json.dumps(record))
    assert (await host.look(kept)).offer == OFFER
    assert len(probes) == 2
