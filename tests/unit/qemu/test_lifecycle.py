import pytest

from livevirt.qemu.lifecycle import fitting

MIB = 2**20


def told(used: int, size: int = 256 * MIB) -> str:
    return f"Translation buffer state:\ngen code size       {used}/{size}\nTB count  1\n"


@pytest.mark.parametrize(
    ("used", "cpus", "present", "more"),
    [
        (0, 4, 1, 3),
        (0, 4, 4, 0),  # there is no more
        (122 * MIB, 4, 1, 3),  # after a boot
        (223 * MIB, 4, 1, 2),  # a CPU that was plugged has a region too
        (231 * MIB, 4, 1, 1),  # 29 of 32 regions
        (232 * MIB, 4, 1, 0),  # the CPU may have just begun one, and two may go meanwhile
        (208 * MIB, 4, 3, 1),
        (216 * MIB, 4, 3, 0),
        (255 * MIB, 4, 1, 0),
        (127 * MIB, 128, 120, 8),  # many CPUs: half of it is safe
        (128 * MIB, 128, 120, 0),
    ],
)
def test_cpus_are_plugged_only_while_regions_are_left(
    used: int, cpus: int, present: int, more: int
) -> None:
    assert fitting(told(used), cpus, present) == more


def test_words_that_are_not_known_do_not_stand_in_the_way() -> None:
    assert fitting("something else", 4, 1) == 3
