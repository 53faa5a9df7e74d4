from pathlib import Path

import pytest

from livevirt.node.reboot import LEAST_SECONDS, Reboot


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_wish_holds_until_it_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    reboot = Reboot(tmp_path / "reboot", clock)
    assert not reboot.wished
    reboot.wish(300)
    assert reboot.wished
    reboot.forget()
    reboot.forget()
    assert not reboot.wished


def test_a_wish_outlives_who_had_it(tmp_path: Path, clock: Clock) -> None:
    Reboot(tmp_path / "reboot", clock).wish(300)
    assert Reboot(tmp_path / "reboot", clock).wished


@pytest.mark.parametrize(("seconds", "holds"), [(300, 300), (0, LEAST_SECONDS)])
def test_a_wish_expires(tmp_path: Path, clock: Clock, seconds: float, holds: float) -> None:
    reboot = Reboot(tmp_path / "reboot", clock)
    reboot.wish(seconds)
    clock.now += holds - 1
    assert reboot.wished
    clock.now += 1
    assert not reboot.wished
