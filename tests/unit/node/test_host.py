"""The accelerator is tried once per boot, and again whenever the answer may be another."""

from __future__ import annotations

from pathlib import Path

import pytest

from livevirt.node import host
from livevirt.qemu import accelerator
from livevirt.qemu.accelerator import Accelerator


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often the machine is really tried."""
    tried: list[str] = []

    async def probe(kvm: str) -> Accelerator:
        tried.append(kvm)
        return Accelerator("tcg", f"try {len(tried)}")

    async def version() -> tuple[int, int, int]:
        return (7, 2, 22)

    monkeypatch.setattr(accelerator, "probe", probe)
    monkeypatch.setattr(accelerator, "version", version)
    return tried


async def test_a_second_look_believes_the_first(probes: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "accelerator.json"
    first = await host.look(kept)
    assert await host.look(kept) == first
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
