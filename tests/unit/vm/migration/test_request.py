from __future__ import annotations

from livevirt.kube.objects.request import Object
from livevirt.vm.migration.request import next_name

PREFIX = "kubevirt-evacuation-"


def an_instance(name: str = "web", uid: str = "u1") -> Object:
    return {"metadata": {"namespace": "ns", "name": name, "uid": uid}}


def a_migration(uid: str, vmi: str = "web", namespace: str = "ns") -> Object:
    meta = {"namespace": namespace, "name": f"m-{uid}", "uid": uid}
    return {"metadata": meta, "spec": {"vmiName": vmi}}


def test_given_the_same_migrations_then_two_controllers_choose_the_same_name() -> None:
    first, second = a_migration("a"), a_migration("b")
    name = next_name(PREFIX, an_instance(), [first, second])
    assert name == next_name(PREFIX, an_instance(), [second, first])
    assert name.startswith(PREFIX)


def test_given_another_instance_or_history_then_the_name_is_another() -> None:
    names = {
        next_name(PREFIX, an_instance(), []),
        next_name(PREFIX, an_instance(uid="u2"), []),
        next_name(PREFIX, an_instance(), [a_migration("a")]),
        next_name(PREFIX, an_instance(), [a_migration("b")]),
        next_name(PREFIX, an_instance(), [a_migration("a"), a_migration("b")]),
    }
    assert len(names) == 5


def test_given_migrations_of_others_then_the_name_stays() -> None:
    others = [a_migration("a", vmi="db"), a_migration("b", namespace="elsewhere")]
    assert next_name(PREFIX, an_instance(), others) == next_name(PREFIX, an_instance(), [])
