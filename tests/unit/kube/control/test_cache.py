"""The cache says what each write changed, and its indexes follow."""

from __future__ import annotations

from livevirt.kube.control.cache import Cache, Change, Key
from livevirt.kube.objects.request import Object


def an_object(name: str, version: int, uid: str = "u", node: str = "") -> Object:
    metadata = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"node": node}}


def node_of(obj: Object) -> list[str]:
    return [obj["spec"]["node"]]


def key(name: str) -> Key:
    return Key("ns", name)


def test_a_new_object_is_added_and_a_newer_one_updates_it() -> None:
    cache = Cache()
    old, new = an_object("a", 1), an_object("a", 2)
    assert cache.put(old) == [Change(key("a"), None, old)]
    assert cache.put(new) == [Change(key("a"), old, new)]
    assert cache.get(key("a")) is new


def test_the_same_version_again_changes_nothing() -> None:
    cache = Cache()
    cache.put(an_object("a", 1))
    assert cache.put(an_object("a", 1)) == []


def test_another_uid_is_another_object() -> None:
    cache = Cache()
    old, new = an_object("a", 1, uid="one"), an_object("a", 5, uid="two")
    cache.put(old)
    assert cache.put(new) == [Change(key("a"), old, None), Change(key("a"), None, new)]


def test_given_a_replacement_list_then_deletions_come_first_and_nothing_unchanged_is_told() -> None:
    cache = Cache()
    a, b, c = an_object("a", 1), an_object("b", 2), an_object("c", 3)
    cache.replace([a, b, c])
    newer, d = an_object("b", 4), an_object("d", 5)
    assert cache.replace([c, newer, d]) == [
        Change(key("a"), a, None),
        Change(key("b"), b, newer),
        Change(key("d"), None, d),
    ]


def test_an_index_follows_every_write() -> None:
    cache = Cache()
    cache.put(an_object("a", 1, node="one"))
    cache.index("node", node_of)
    cache.put(an_object("b", 2, node="one"))
    assert [o["metadata"]["name"] for o in cache.by("node", "one")] == ["a", "b"]
    cache.put(an_object("a", 3, node="two"))
    assert [o["metadata"]["name"] for o in cache.by("node", "one")] == ["b"]
    assert [o["metadata"]["name"] for o in cache.by("node", "two")] == ["a"]
    cache.remove(an_object("a", 4, node="two"))
    assert cache.by("node", "two") == []


def test_an_object_the_index_cannot_read_is_held_and_not_indexed() -> None:
    cache = Cache()
    cache.index("node", node_of)
    odd = {"metadata": {"name": "odd", "namespace": "ns", "resourceVersion": "1"}}
    cache.put(odd)
    assert cache.get(key("odd")) is odd
    cache.remove(odd)
    assert len(cache) == 0


def test_list_is_of_a_namespace_or_of_all() -> None:
    cache = Cache()
    here = an_object("a", 1)
    there = {"metadata": {"namespace": "other", "name": "a", "resourceVersion": "2"}}
    cache.replace([here, there])
    assert cache.list("other") == [there]
    assert cache.list() == [here, there]
