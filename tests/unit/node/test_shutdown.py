from __future__ import annotations

from typing import Any

import pytest

from livevirt.node.migration.facts import PodFacts
from livevirt.node.migration.handover import Departure
from livevirt.node.shutdown import Role, role


def a_pod(incoming: str = "", leaves: str = "", **facts: Any) -> PodFacts:
    departure = Departure(uid=leaves) if leaves else None
    reserved = bool(incoming)
    return PodFacts(
        pod="p", incoming=incoming, reserved=reserved, intended=True, departure=departure, **facts
    )


SOURCE = a_pod(leaves="m2")
ROLES: dict[str, tuple[PodFacts, list[PodFacts], Role]] = {
    "a guest that never moved": (a_pod(), [], "guest"),
    "one that arrived": (a_pod("m1", arrived=True), [], "guest"),
    "a QEMU that waits for one": (a_pod("m2"), [SOURCE], "target"),
    "the source of that": (SOURCE, [a_pod("m2")], "guest"),
    "a source whose target is gone": (SOURCE, [], "guest"),
    "a source whose guest has arrived elsewhere": (
        SOURCE, [a_pod("m2", arrived=True)], "left",
    ),
    "one that is known to": (a_pod(left=True), [], "left"),
    "an earlier migration means nothing": (SOURCE, [a_pod("m1", arrived=True)], "guest"),
    "a guest that arrived and leaves again": (
        a_pod("m1", "m2", arrived=True), [a_pod("m2")], "guest",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "others", "expected"), ROLES.values(), ids=ROLES)
def test_where_the_guest_of_an_instance_is(
    pod: PodFacts, others: list[PodFacts], expected: Role
) -> None:
    assert role(pod, [pod, *others]) == expected
