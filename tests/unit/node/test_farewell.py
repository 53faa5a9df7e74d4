from __future__ import annotations

import pytest

from livevirt.node.farewell import Part, Place, part

SOURCE = Place(going="m2")
PARTS: dict[str, tuple[Place, list[Place], Part]] = {
    "a guest that never moved": (Place(), [], "guest"),
    "one that came": (Place(coming="m1", arrived=True), [], "guest"),
    "a QEMU that waits for one": (Place(coming="m2"), [SOURCE], "target"),
    "the source of that": (SOURCE, [Place(coming="m2")], "guest"),
    "a source whose target is gone": (SOURCE, [], "guest"),
    "a source whose guest has come elsewhere": (
        SOURCE, [Place(coming="m2", arrived=True)], "left",
    ),
    "one that is known to": (Place(left=True), [], "left"),
    "an earlier move means nothing": (SOURCE, [Place(coming="m1", arrived=True)], "guest"),
    "a guest that came and leaves again": (
        Place(coming="m1", arrived=True, going="m2"), [Place(coming="m2")], "guest",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("place", "others", "expected"), PARTS.values(), ids=PARTS)
def test_where_the_guest_of_an_instance_is(
    place: Place, others: list[Place], expected: Part
) -> None:
    assert part(place, [place, *others]) == expected
