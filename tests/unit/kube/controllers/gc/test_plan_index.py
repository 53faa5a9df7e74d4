from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livevirt.kube.controllers.gc.plan import Index
from livevirt.kube.controllers.stored import Header, OwnerReference
from livevirt.kube.store import Key

KEYS = [Key("pods", "ns", name) for name in "abc"]
UIDS = ["1", "2", "3"]


def owned(*uids: str) -> Header:
    return Header("x", owner_references=tuple(OwnerReference("v1", "Pod", u, u) for u in uids))


def test_an_object_without_owners_is_not_remembered() -> None:
    index = Index()
    index.put(KEYS[0], owned())
    assert len(index) == 0


def test_dependents_follow_the_last_known_owners() -> None:
    index = Index()
    index.put(KEYS[0], owned("1", "2"))
    index.put(KEYS[0], owned("2"))
    assert index.dependents("1") == []
    assert index.dependents("2") == [KEYS[0]]


changes = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.sets(st.sampled_from(UIDS))))


@given(changes)
def test_given_any_changes_then_the_index_is_what_the_last_ones_say(
    history: list[tuple[Key, set[str] | None]],
) -> None:
    index, model = Index(), dict[Key, set[str]]()
    for key, uids in history:
        if uids is None:
            index.remove(key)
        else:
            index.put(key, owned(*sorted(uids)))
        model[key] = uids or set()
    for uid in UIDS:
        assert index.dependents(uid) == sorted(k for k, uids in model.items() if uid in uids)
    assert len(index) == sum(bool(uids) for uids in model.values())
