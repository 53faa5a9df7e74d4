"""A pure decision, whatever it takes to look things up."""

from __future__ import annotations

from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.request import Object
from livevirt.vm.instancetypes.rules.machine import Machine, expand_vm
from livevirt.vm.instancetypes.rules.matchers import Lookup, decide

from .instancetype_builders import Objects, a_preference, a_type, a_vm, reference, taken

SMALL = a_type("small")
OBJECTS = Objects(taken(SMALL), a_preference("p"))


async def test_a_decision_is_the_same_when_what_it_needs_must_be_fetched() -> None:
    matchers = {"instancetype": {"name": "small"}, "preference": {"name": "p"}}
    vm = a_vm(status={"instancetypeRef": reference(taken(SMALL))}, **matchers)
    fetched = []

    async def fetch(kind: Kind, name: str, namespace: str) -> Object | None:
        fetched.append(name)
        return OBJECTS.get(kind, name, namespace)

    found = await decide(lambda lookup: expand_vm(vm, lookup), fetch)
    assert found.usable
    assert found == expand_vm(vm, OBJECTS)
    assert sorted(fetched) == ["p", taken(SMALL)["metadata"]["name"]]


async def test_what_is_at_hand_is_not_fetched_and_the_decision_is_made_once() -> None:
    matchers = {"instancetype": {"name": "small"}, "preference": {"name": "p"}}
    vm = a_vm(status={"instancetypeRef": reference(taken(SMALL))}, **matchers)
    made = []

    async def fetch(kind: Kind, name: str, namespace: str) -> Object | None:
        raise AssertionError(name)

    def decision(lookup: Lookup) -> Machine:
        made.append(lookup)
        return expand_vm(vm, lookup)

    assert (await decide(decision, fetch, OBJECTS)).usable
    assert len(made) == 1


async def test_what_is_not_at_hand_is_fetched() -> None:
    fetched = []

    async def fetch(kind: Kind, name: str, namespace: str) -> Object | None:
        fetched.append(name)
        return SMALL

    vm = a_vm(instancetype={"name": "small"}, preference={"name": "p"})
    found = await decide(lambda lookup: expand_vm(vm, lookup), fetch, OBJECTS)
    assert found.usable
    assert fetched == ["small"]


async def test_what_is_not_there_is_fetched_once() -> None:
    fetched = []

    async def fetch(kind: Kind, name: str, namespace: str) -> Object | None:
        fetched.append(name)
        return None

    found = await decide(
        lambda lookup: expand_vm(a_vm(instancetype={"name": "gone"}), lookup), fetch
    )
    assert [problem.part for problem in found.problems] == ["name"]
    assert fetched == ["gone"]
