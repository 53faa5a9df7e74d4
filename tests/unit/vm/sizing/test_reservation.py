from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.objects.quantity import parse
from livevirt.vm.sizing.reservation import (
    Size,
    asked,
    covers,
    held,
    reported_size,
    reservation,
    resized,
)
from livevirt.vm.spec.resources import Compute, Namespace

MIB = 2**20


def a_vmi(sockets: int = 1, guest: str = "512Mi", **resources: Any) -> Any:
    domain = {
        "cpu": {"sockets": sockets, "cores": 2, "threads": 1, "maxSockets": 8},
        "memory": {"guest": guest, "maxGuest": "4Gi"},
        "resources": resources,
    }
    return {"metadata": {"name": "web"}, "spec": {"domain": domain}, "status": {}}


def requests(found: Compute) -> dict[str, int]:
    return {
        "cpu": parse(found.requests["cpu"]).milli(),
        "memory": parse(found.requests["memory"]).bytes,
    }


def test_what_is_not_told_is_as_asked_for() -> None:
    vmi = a_vmi(2)
    assert reported_size(vmi) == asked(vmi) == Size(2, 512 * MIB)


def test_memory_that_was_offered_counts_as_taken() -> None:
    vmi = a_vmi()
    vmi["status"] = {
        "currentCPUTopology": {"sockets": 3},
        "memory": {"guestCurrent": "256Mi", "guestRequested": "768Mi"},
    }
    assert reported_size(vmi) == Size(3, 768 * MIB)


@pytest.mark.parametrize(
    ("has", "as_if"),
    [
        (Size(1, 512 * MIB), a_vmi(2, "1Gi")),  # growing: what is asked for
        (Size(4, 2048 * MIB), a_vmi(4, "2Gi")),  # shrinking: what it still has
        (Size(4, 512 * MIB), a_vmi(4, "1Gi")),  # one of each: the larger of both
    ],
    ids=["growing", "shrinking", "both"],
)
def test_a_pod_holds_the_larger_of_what_the_guest_has_and_should_have(
    has: Size, as_if: Any
) -> None:
    vmi = a_vmi(2, "1Gi")
    assert reservation(vmi, has).requests == held(as_if, asked(as_if)).requests


@pytest.mark.parametrize(
    ("has", "cpu", "memory"),
    [(Size(1, 512 * MIB), "1", "1Gi"), (Size(2, 768 * MIB), "1200m", "1280Mi")],
    ids=["as asked", "still larger"],
)
def test_requests_the_owner_wrote_move_with_the_size(has: Size, cpu: str, memory: str) -> None:
    vmi = a_vmi(1, "512Mi", requests={"cpu": "1", "memory": "1Gi"}, limits={"memory": "2Gi"})
    found = reservation(vmi, has)
    assert parse(found.requests["cpu"]) == parse(cpu)
    assert parse(found.requests["memory"]).bytes == parse(memory).bytes + found.overhead


def test_a_resize_changes_limits_only_where_there_are_some() -> None:
    need = reservation(a_vmi(2), Size(1, 512 * MIB), Namespace(limits_cpu=True, limits_memory=True))
    free = resized({"requests": {"cpu": "200m", "memory": "1Gi"}}, need)
    assert free == {"requests": {"cpu": need.requests["cpu"], "memory": need.requests["memory"]}}
    bound = resized(
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "hugepages-2Mi": "1Gi"}}, need
    )
    assert bound == {
        "requests": {"cpu": need.requests["cpu"]},
        "limits": {"cpu": "4", "hugepages-2Mi": "1Gi"},
    }


def test_the_same_amount_in_other_words_is_left_as_it_is() -> None:
    need = Compute({"cpu": "200m", "memory": "1Gi"}, {}, 0)
    written = {"requests": {"cpu": "0.2", "memory": "1024Mi"}}
    assert resized(written, need) == written


sizes = st.builds(Size, st.integers(1, 8), st.integers(128, 2048).map(lambda n: n * 2 * MIB))


@given(st.integers(1, 8), st.integers(64, 1024), sizes, sizes)
def test_a_larger_guest_never_needs_less(sockets: int, blocks: int, one: Size, other: Size) -> None:
    vmi = a_vmi(sockets, f"{blocks * 2}Mi")
    both = requests(held(vmi, one.largest(other)))
    for size in (one, other):
        needed = requests(held(vmi, size))
        assert needed["cpu"] <= both["cpu"]
        assert needed["memory"] <= both["memory"]
    assert covers({"requests": held(vmi, one.largest(other)).requests}, held(vmi, one))


def test_a_resource_that_is_not_in_force_covers_nothing() -> None:
    assert not covers({}, held(a_vmi(), Size(1, MIB)))


def test_huge_pages_that_are_not_in_force_are_not_given_to_a_guest() -> None:
    vmi = a_vmi()
    vmi["spec"]["domain"]["memory"]["hugepages"] = {"pageSize": "2Mi"}
    small, large = held(vmi, Size(1, 512 * MIB)), held(vmi, Size(1, 1024 * MIB))
    in_force = {**large.requests, "hugepages-2Mi": small.requests["hugepages-2Mi"]}
    assert covers({"requests": in_force}, small)
    assert not covers({"requests": in_force}, large)
