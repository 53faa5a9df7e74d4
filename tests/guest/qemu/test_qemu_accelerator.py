"""The accelerator is what really ran a guest here."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.qemu import accelerator

pytestmark = pytest.mark.guest
QEMU = "qemu-system-x86_64"


async def test_emulation_runs_the_probe() -> None:
    assert await accelerator.guest_failure(QEMU, accel="tcg", cpu="max") is None


async def test_a_guest_without_long_mode_is_a_failure_told_in_time(monkeypatch) -> None:
    # It faults at the switch to long mode and starts over, for ever.
    monkeypatch.setattr(accelerator, "PROBE_SECONDS", 1.0)
    failure = await accelerator.guest_failure(QEMU, accel="tcg", cpu="qemu32")
    assert failure == "it started and came to nothing in 1 s"


async def test_an_early_exit_is_a_failure_in_qemus_words() -> None:
    failure = await accelerator.guest_failure(QEMU, accel="tcg", cpu="nonsense")
    assert failure is not None
    assert "unable to find CPU model 'nonsense'" in failure


async def test_the_probe_agrees_with_what_kvm_does_here() -> None:
    found = await accelerator.probe()
    works = await accelerator.guest_failure(QEMU, accel="kvm", cpu="host") is None
    assert (found.name == "kvm") == works
    assert found.reason


@pytest.mark.parametrize(
    ("emulator", "kvm", "reason"),
    [(QEMU, "/nonexistent", "does not exist"), ("/nonexistent", "/dev/null", "cannot run a guest")],
)
async def test_without_kvm_it_is_emulation_and_says_why(emulator, kvm, reason) -> None:
    found = await accelerator.probe(emulator, kvm)
    assert found.name == "tcg"
    assert reason in found.reason


async def test_the_version_is_read() -> None:
    assert await accelerator.version() >= (7, 2, 0)


# ---------------------------------------------------------------- a server killed while it tries

#: What a server does; this trial goes on for longer than the test.
TRIAL = """
import asyncio
from livevirt.qemu import accelerator
accelerator.PROBE_SECONDS = 600.0
asyncio.run(accelerator.guest_failure("qemu-system-x86_64", accel="tcg", cpu="qemu32"))
"""
SECONDS = 30.0


def qemu_under(parent: int) -> int | None:
    """Return the QEMU that a process has started, None while there is none."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(QEMU.encode()):
                return int(pid)
    return None


@contextlib.contextmanager
def trying(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a trial in a process of its own; give that and the pidfd of its QEMU."""
    trial = subprocess.Popen(
        [sys.executable, "-c", TRIAL], env=os.environ | {"TMPDIR": str(folder)}
    )
    try:
        deadline = time.monotonic() + SECONDS
        while (pid := qemu_under(trial.pid)) is None:
            assert trial.poll() is None, "the trial has ended by itself"
            assert time.monotonic() < deadline, "no QEMU was started"
            time.sleep(0.02)  # another process starts it
        descriptor = os.pidfd_open(pid)
        try:
            yield trial, descriptor
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
    finally:
        trial.kill()
        trial.wait()


def ended(descriptor: int, seconds: float) -> bool:
    """Tell whether a process ends in that time; a pidfd becomes readable when it does."""
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_given_the_server_is_killed_while_it_tries_then_its_qemu_ends_too(tmp_path: Path) -> None:
    with trying(tmp_path) as (trial, qemu):
        assert not ended(qemu, 0)
        trial.kill()
        trial.wait()
        assert ended(qemu, SECONDS)
