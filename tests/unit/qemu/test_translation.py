import pytest

from livevirt.qemu.translation import room

MIB = 2**20


def told(used: int, size: int = 256 * MIB) -> str:
    return f"Translation buffer state:\ngen code size       {used}/{size}\nTB count  1\n"


@pytest.mark.parametrize(
    ("used", "cpus", "present", "there"),
    [
        (0, 4, 1, True),
        (122 * MIB, 4, 1, True),  # after a boot
        (231 * MIB, 4, 1, True),  # 29 of 32 regions
        (232 * MIB, 4, 1, False),  # the CPU may have just begun one, and two may go meanwhile
        (208 * MIB, 4, 3, True),
        (216 * MIB, 4, 3, False),
        (255 * MIB, 4, 1, False),
        (127 * MIB, 128, 120, True),  # many CPUs: half of it is safe
        (128 * MIB, 128, 120, False),
    ],
)
def test_a_cpu_is_plugged_only_while_regions_are_left(
    used: int, cpus: int, present: int, there: bool
) -> None:
    assert room(told(used), cpus, present) is there


def test_words_that_are_not_known_do_not_stand_in_the_way() -> None:
    assert room("something else", 4, 1)
