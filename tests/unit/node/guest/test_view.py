from pathlib import Path

import pytest

from livevirt.node.guest.view import LEAST_SECONDS, RebootRequest


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_request_holds_until_it_is_withdrawn(tmp_path: Path, clock: Clock) -> None:
    reboot = RebootRequest(tmp_path / "reboot", clock)
    assert not reboot.pending
    reboot.write(300)
    assert reboot.pending
    reboot.remove()
    reboot.remove()
    assert not reboot.pending


def test_a_request_outlives_the_agent(tmp_path: Path, clock: Clock) -> None:
    RebootRequest(tmp_path / "reboot", clock).write(300)
    assert RebootRequest(tmp_path / "reboot", clock).pending


@pytest.mark.parametrize(("seconds", "holds"), [(300, 300), (0, LEAST_SECONDS)])
def test_a_request_expires(tmp_path: Path, clock: Clock, seconds: float, holds: float) -> None:
    reboot = RebootRequest(tmp_path / "reboot", clock)
    reboot.write(seconds)
    clock.now += holds - 1
    assert reboot.pending
    clock.now += 1
    assert not reboot.pending
