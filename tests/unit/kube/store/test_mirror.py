"""A mirror holds exactly what the store last published."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.store import Delete, Key, Put, Store

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.tuples(st.sampled_from(["x", "y"]), NAMES, st.booleans()), max_size=25)


def encode(number: int):
    return lambda revision: msgspec.json.encode({"number": number, "revision": revision})


@given(STEPS)
@settings(max_examples=25, deadline=None)
async def test_given_any_writes_a_mirror_equals_the_list(
    tmp_path_factory, steps: list[tuple[str, str, bool]]
) -> None:
    store = Store.open(tmp_path_factory.mktemp("m") / "s.db")
    try:
        mirror = store.mirror("things")
        for number, (namespace, name, remove) in enumerate(steps):
            key = Key("things", namespace, name)
            stored = store.get(key)
            expected = stored.revision if stored else None
            if remove and expected is not None:
                await store.write(Delete(key, expected, encode(number)))
            else:
                await store.write(Put(key, expected, encode(number)))
            await store.write(Put(Key("others", namespace, str(number)), None, encode(0)))
        listed = store.list("things").items
        held = mirror.list()
        assert [(h.key, h.revision) for h in held] == [(i.key, i.revision) for i in listed]
        assert [h.object for h in held] == [msgspec.json.decode(i.value) for i in listed]
        in_x = [h.key for h in mirror.list("x")]
        assert in_x == [i.key for i in listed if i.key.namespace == "x"]
    finally:
        await store.close()


async def test_a_mirror_begins_with_what_is_there(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    key = Key("things", "x", "a")
    await store.write(Put(key, None, encode(1)))
    held = store.mirror("things").get("x", "a")
    assert held is not None
    assert held.object["number"] == 1
    assert store.mirror("things") is store.mirror("things")
    await store.close()
