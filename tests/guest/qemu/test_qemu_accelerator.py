"""The accelerator is what really ran a guest here."""

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
