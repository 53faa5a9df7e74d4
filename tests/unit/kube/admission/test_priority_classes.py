"""PriorityClasses, and the priority that a pod gets from them."""

from __future__ import annotations

import copy

import pytest

from livevirt.errors import Forbidden
from livevirt.kube.admission.builtin import RULES
from livevirt.kube.objects.core import POD, PRIORITY_CLASS
from livevirt.kube.objects.priority import SYSTEM_CLASSES
from livevirt.kube.objects.request import Object, User
from livevirt.kube.objects.review import Review

from .in_memory_server import NOON, InMemoryServer, Refused, a_pod

REFUSED: dict[str, tuple[str, Object, tuple[str, str]]] = {
    "a value of the system's": ("top", {"value": 1_000_000_001}, ("Forbidden", "value")),
    "a name of the system's": ("system-mine", {"value": 5}, ("Forbidden", "metadata.name")),
    "another value for a class of the system": (
        "system-node-critical", {"value": 5}, ("Forbidden", "metadata.name")),
    "a policy nobody knows": (
        "p", {"value": 5, "preemptionPolicy": "Sometimes"}, ("NotSupported", "preemptionPolicy")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "cause"), REFUSED.values(), ids=REFUSED)
def test_a_class_that_cannot_be_is_refused(
    name: str, fields: Object, cause: tuple[str, str]
) -> None:
    with pytest.raises(Refused) as refused:
        InMemoryServer().create(PRIORITY_CLASS, name, **fields)
    assert refused.value.causes == {cause}


def test_the_largest_value_of_a_user_and_the_classes_of_the_system_are_accepted() -> None:
    server = InMemoryServer()
    top = server.create(PRIORITY_CLASS, "top", value=1_000_000_000)
    assert top["preemptionPolicy"] == "PreemptLowerPriority"
    for name, each in SYSTEM_CLASSES.items():
        server.create(PRIORITY_CLASS, name, value=each["value"])


CHANGES: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "its value": ({"value": 6}, {("Forbidden", "value")}),
    "its policy": ({"preemptionPolicy": "Never"}, {("Invalid", "preemptionPolicy")}),
    "its description": ({"description": "for all"}, set()),
    "whether it is the default": ({"globalDefault": True}, set()),
}


@pytest.mark.parametrize(("change", "causes"), CHANGES.values(), ids=CHANGES)
def test_what_may_change_in_a_class(change: Object, causes: set[tuple[str, str]]) -> None:
    server = InMemoryServer()
    made = server.create(PRIORITY_CLASS, "p", value=5)
    changed = {**copy.deepcopy(made), **change}
    if not causes:
        server.update(PRIORITY_CLASS, changed)
        return
    with pytest.raises(Refused) as refused:
        server.update(PRIORITY_CLASS, changed)
    assert refused.value.causes == causes


def test_there_is_one_global_default() -> None:
    server = InMemoryServer()
    usual = server.create(PRIORITY_CLASS, "usual", value=5, globalDefault=True)
    with pytest.raises(Forbidden):
        server.create(PRIORITY_CLASS, "other", value=6, globalDefault=True)
    server.update(PRIORITY_CLASS, {**usual, "description": "of most"})
    other = server.create(PRIORITY_CLASS, "other", value=6)
    with pytest.raises(Forbidden):
        server.update(PRIORITY_CLASS, {**other, "globalDefault": True})


@pytest.mark.parametrize("name", SYSTEM_CLASSES)
def test_a_class_of_the_system_cannot_be_deleted(name: str) -> None:
    obj = SYSTEM_CLASSES[name]
    review = Review("delete", PRIORITY_CLASS, "v1", obj, obj, User("jane"), InMemoryServer(), NOON)
    with pytest.raises(Forbidden):
        RULES[PRIORITY_CLASS.resource].check_delete(review)


def test_a_pod_gets_the_priority_of_its_class() -> None:
    server = InMemoryServer()
    server.create(PRIORITY_CLASS, "gold", value=7, preemptionPolicy="Never")
    spec = server.create(POD, "p", **a_pod(priorityClassName="gold"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    spec = server.create(POD, "q", **a_pod(priorityClassName="system-node-critical"))["spec"]
    assert spec["priority"] == 2_000_001_000
    spec = server.create(POD, "r", **a_pod())["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


def test_a_pod_that_names_no_class_gets_the_global_default() -> None:
    server = InMemoryServer()
    server.create(PRIORITY_CLASS, "usual", value=5, globalDefault=True)
    spec = server.create(POD, "p", **a_pod())["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 5)


FORBIDDEN: dict[str, Object] = {
    "a class that does not exist": {"priorityClassName": "silver"},
    "a priority of its own": {"priority": 5},
    "a priority other than its class gives": {"priorityClassName": "gold", "priority": 8},
    "a policy other than its class gives": {
        "priorityClassName": "gold", "preemptionPolicy": "Never"},
}  # fmt: skip


@pytest.mark.parametrize("spec", FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_priority_that_no_class_gives_is_forbidden(spec: Object) -> None:
    server = InMemoryServer()
    server.create(PRIORITY_CLASS, "gold", value=7)
    with pytest.raises(Forbidden):
        server.create(POD, "p", **a_pod(**spec))
