"""What QEMU says it can give guests is what it can."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from livevirt.qemu import accelerator
from livevirt.qemu.accelerator import Accelerator

pytestmark = pytest.mark.guest
QEMU = "qemu-system-x86_64"
EMULATED = Accelerator("tcg", "for the test")


async def refusal(*options: str) -> str:
    """Start a machine that never runs, with a CPU that must be whole; return QEMU's complaint."""
    process = await asyncio.create_subprocess_exec(
        QEMU, "-nodefaults", "-display", "none", "-S", "-accel", "tcg", "-monitor", "stdio",
        *options, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, complaint = await process.communicate(b"quit\n")
    return complaint.decode()


async def test_models_are_offered_that_can_be_had_whole_and_no_others() -> None:
    found = await accelerator.ask(EMULATED)
    assert "Westmere" in found.cpu_models
    assert await refusal("-machine", "q35", "-cpu", "Westmere,enforce") == ""
    assert "Skylake-Server" not in found.cpu_models
    assert "features" in await refusal("-machine", "q35", "-cpu", "Skylake-Server,enforce")


async def test_features_are_offered_that_can_be_had_and_no_others() -> None:
    found = await accelerator.ask(EMULATED)
    assert "avx2" in found.cpu_features
    assert await refusal("-machine", "q35", "-cpu", "qemu64,avx2=on,enforce") == ""
    assert "avx512f" not in found.cpu_features
    assert "avx512f" in await refusal("-machine", "q35", "-cpu", "qemu64,avx512f=on,enforce")
    settings = {"check", "migratable", "l3-cache"}  # of a CPU, and nothing a guest sees
    assert not settings & set(found.cpu_features)


async def test_machine_types_are_offered_by_alias_and_version() -> None:
    found = await accelerator.ask(EMULATED)
    assert {"q35", "pc-q35-6.2"} <= set(found.machine_types)
    assert not [name for name in found.machine_types if "i440fx" in name]
    assert await refusal("-machine", "pc-q35-6.2") == ""


async def test_every_name_fits_into_a_label() -> None:
    found = await accelerator.ask(EMULATED)
    for name in (*found.cpu_models, *found.cpu_features, *found.machine_types):
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", name), name


async def test_given_a_qemu_that_says_nothing_then_that_is_said() -> None:
    with pytest.raises(OSError, match="capabilities"):
        await accelerator.ask(EMULATED, "/bin/false")
    with pytest.raises(OSError, match="invalid accelerator"):
        await accelerator.ask(Accelerator("nonsense", ""))  # type: ignore[arg-type]


async def test_given_a_qemu_that_hangs_then_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "ASK_SECONDS", 0.5)
    told = tmp_path / "pid"
    hanging = tmp_path / "qemu"
    hanging.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 60\n")
    hanging.chmod(0o755)
    with pytest.raises(OSError, match="no capabilities"):
        await accelerator.ask(EMULATED, str(hanging))
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
