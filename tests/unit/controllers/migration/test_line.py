"""Who may begin, when only what has changed is looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.control.key import Key
from livevirt.vm.migration.line import Going, Later, Line, Place
from livevirt.vm.migration.turn import Limits, Waiting

from .migration_builders import NOON, later

LIMITS = Limits(cluster=2, node=2)
A, B, C = (Key("default", name) for name in "abc")


def waits(key: Key, second: int = 0) -> Waiting:
    return Waiting(key.name, "n1", 0, later(seconds=second))


class Places:
    """Where everybody stands; counts how often it is asked."""

    def __init__(self, **places: Place) -> None:
        self.of = {Key("default", name): place for name, place in places.items()}
        self.asked = 0
        self.line = Line(self.read)
        self.line.note(self.of)

    def read(self, key: Key) -> Place | None:
        self.asked += 1
        return self.of.get(key)

    def first(self, limits: Limits = LIMITS, seconds: int = 0) -> set[Key]:
        return set(self.line.first(limits, later(seconds=seconds)))


def test_nobody_is_looked_at_again_who_has_not_changed() -> None:
    places = Places(a=waits(A), b=waits(B, 1), c=waits(C, 2))
    for _ in range(9):
        assert places.first() == {A, B}
    assert places.asked == 3
    places.of[A] = Going("n1")
    places.line.note([A])
    assert places.first() == {B}
    assert places.asked == 4


def test_one_that_has_ended_makes_room() -> None:
    places = Places(a=Going("n1"), b=waits(B), c=waits(C, 1))
    assert places.first() == {B}
    del places.of[A]
    places.line.note([A])
    assert places.first() == {B, C}


def test_other_limits_count_at_once() -> None:
    places = Places(a=waits(A), b=waits(B, 1), c=waits(C, 2))
    assert places.first(Limits(1, 1)) == {A}
    assert places.first(Limits(3, 3)) == {A, B, C}


def test_one_that_backs_off_is_looked_at_when_that_is_over() -> None:
    places = Places(a=Later(later(seconds=20)), b=Later())
    assert places.first() == set()
    places.of[A] = places.of[B] = waits(A)
    assert places.first(seconds=19) == set()
    assert places.first(seconds=20) == {A}  # of the other nobody has heard


PLACES = st.one_of(
    st.none(),
    st.builds(Going, st.sampled_from(["n1", "n2"])),
    st.builds(lambda second: waits(A, second), st.integers(0, 9)),
    st.builds(lambda second: Later(later(seconds=second)), st.integers(0, 9)),
)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), PLACES), max_size=30))
def test_it_answers_as_if_it_looked_at_all(changes: list[tuple[str, Place | None]]) -> None:
    known = Places()
    for name, place in changes:
        key = Key("default", name)
        if isinstance(place, Waiting):
            place = Waiting(name, "n1", 0, place.created)
        known.of.pop(key, None)
        if place is not None:
            known.of[key] = place
        known.line.note([key])
        anew = Line(known.read)
        anew.note(known.of)
        assert known.first() == anew.first(LIMITS, NOON)
