import pytest

from livevirt.qemu.translation import room

MIB = 2**20


def told(used: int, size: int = 256 * MIB) -> str:
    return f"Translation buffer state:\ngen code size       {used}/{size}\nTB count  1\n"


@pytest.mark.parametrize(
    ("used", "cpus", "there"),
    [
        (0, 4, True),
        (122 * MIB, 4, True),  # after a boot
        (207 * MIB, 4, True),  # 26 of 32 regions
        (208 * MIB, 4, False),  # each CPU may have just begun one, and two may go meanwhile
        (255 * MIB, 4, False),
        (127 * MIB, 128, True),  # many CPUs: never more than half
        (128 * MIB, 128, False),
    ],
)
def test_a_cpu_is_plugged_only_while_regions_are_left(used: int, cpus: int, there: bool) -> None:
    assert room(told(used), cpus) is there


def test_words_that_are_not_known_do_not_stand_in_the_way() -> None:
    assert room("something else", 4)
