from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import pytest

from livevirt.kube.store import Compacted, Key, NotYet, Retention, Store

from .store_builders import a_key, churn, create, delete, state_of, update


async def test_objects_are_listed_in_byte_order_of_namespace_and_name(store: Store) -> None:
    names = ["b", "a", "a-b", "a.b", "Z", "ä", "a0"]
    keys = [a_key(name, namespace) for name in names for namespace in ("ns-b", "ns-a", "ns")]
    await store.write(*(create(key) for key in keys))
    listed = [(item.key.namespace, item.key.name) for item in store.list("configmaps").items]
    assert listed == sorted(listed, key=lambda place: (place[0].encode(), place[1].encode()))
    assert len(listed) == len(keys)


async def test_a_list_holds_only_the_resource_and_namespace_asked_for(store: Store) -> None:
    keys = [a_key("x", ns, res) for ns in ("one", "two") for res in ("pods", "secrets")]
    await store.write(*(create(key) for key in keys), create(Key("nodes", "", "x")))
    assert {item.key for item in store.list("pods").items} == {keys[0], keys[2]}
    assert {item.key for item in store.list("pods", "two").items} == {keys[2]}
    assert store.list("pods", "three").items == []
    assert store.count("pods") == 2
    assert store.count("pods", "two") == 1
    assert store.count("nodes") == 1
    assert store.count("pods", "three") == 0


async def test_pages_under_writes_add_up_to_the_state_at_the_first(store: Store) -> None:
    first = await store.write(*(create(f"{number:03}") for number in range(50)))
    before = state_of(store)
    listed = {}
    page = store.list("configmaps", limit=7)
    revision = page.revision
    for turn in itertools.count():
        assert page.revision == revision
        assert page.remaining == 50 - len(listed) - len(page.items)
        listed |= {item.key: item.value for item in page.items}
        if not page.more:
            break
        # Behind, at and ahead of the reader, things change, vanish and appear.
        await store.write(update(first[turn]), delete(first[49 - turn]), create(f"{turn:03}-new"))
        await store.write(create(f"{turn:03}-fleeting"))
        fleeting = store.get(a_key(f"{turn:03}-fleeting"))
        assert fleeting
        await store.write(delete(fleeting))
        after = page.items[-1].key[1:]
        where = {"after": after, "limit": 7, "revision": revision}
        page = store.list("configmaps", "default", **where)
        assert page == store.list("configmaps", **where)
        assert page == store.list("configmaps", **where, remaining=50 - len(listed))
    assert listed == before


async def test_a_list_at_any_kept_revision_is_what_a_list_was_then(store: Store) -> None:
    (a, b) = await store.write(create("a"), create("b"))
    then = {store.revision: state_of(store)}
    for change in (update(a), create("c"), delete(b), create("b", "again")):
        await store.write(change)
        then[store.revision] = state_of(store)
    assert {revision: state_of(store, revision=revision) for revision in then} == then
    assert store.list("configmaps", revision=1).items == []


async def test_given_a_revision_of_the_future_when_listed_then_it_is_not_yet(store: Store) -> None:
    with pytest.raises(NotYet, match="revision 9 does not exist yet; the newest is 1"):
        store.list("configmaps", revision=9)


async def test_given_compacted_history_when_listed_then_the_oldest_kept_is_named(
    path: Path,
) -> None:
    store = Store.open(path, keep=Retention(revisions=10, age=0, maximum=50))
    await churn(store, 400)
    assert store.oldest > 200
    with pytest.raises(Compacted) as gone:
        store.list("configmaps", revision=store.oldest - 1)
    assert gone.value.oldest == store.oldest
    assert len(store.list("configmaps", revision=store.oldest).items) == 1
    await store.close()


async def test_given_a_commit_not_yet_published_then_reads_agree_with_each_other(
    store: Store, path: Path
) -> None:
    """The moment between the commit and its publication, made to last."""
    published = store._hub.revision
    stranger = sqlite3.connect(path)
    with stranger:
        stranger.execute("INSERT INTO log VALUES (5, 'configmaps', 'default', 'a', 'ADDED', NULL,"
                         " 0, x'7b7d')")  # fmt: skip
        stranger.execute("INSERT INTO current VALUES ('configmaps', 'default', 'a', 5)")
    stranger.close()
    stored = store.get(a_key("a"))
    assert stored
    assert store.revision == stored.revision == 5
    page = store.list("configmaps")
    assert page.revision == 5
    watch = store.watch("configmaps", since=page.revision)
    assert watch.progress == 5 > published == store._hub.revision
