"""Laws that hold for any sequence of writes."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.store import (
    Delete,
    Exists,
    Key,
    Missing,
    Precondition,
    Put,
    Retention,
    Stale,
    Store,
)

from .store_builders import collect, replay, saying, state_of

KEYS = [Key("pods", namespace, name) for namespace in "ab" for name in "xyz"]
Model = dict[Key, tuple[int, bytes]]

attempts = st.tuples(
    st.sampled_from(["put", "put", "delete"]),
    st.sampled_from(KEYS),
    st.sampled_from(["right", "right", "right", "none", "wrong"]),
)
calls = st.lists(attempts, min_size=1, max_size=3)
turns = st.lists(st.lists(calls, min_size=1, max_size=4), max_size=12)  # calls made at once


def change(attempt: tuple[str, Key, str], model: Model) -> Put | Delete:
    verb, key, expectation = attempt
    current = model[key][0] if key in model else None
    expected = {"right": current, "none": None, "wrong": 1}[expectation]
    text = saying(f"{verb} {key}")
    if verb == "put":
        return Put(key, expected, text)
    return Delete(key, 1 if expected is None else expected, text)


def expect(changes: list[Put | Delete], model: Model, revision: int) -> Model | type[Precondition]:
    """What the call must lead to, said as plainly as possible."""
    model = dict(model)
    for number, change in enumerate(changes, revision + 1):
        current = model.get(change.key, (None, b""))[0]
        if current != change.expected:
            return Missing if current is None else Exists if change.expected is None else Stale
        if isinstance(change, Delete):
            del model[change.key]
        else:
            model[change.key] = (number, change.encode(number))
    return model


@settings(max_examples=60, deadline=None)
@given(turns, st.data())
def test_store_follows_the_model_and_watch_replays_every_list(
    turns: list[list[list[tuple[str, Key, str]]]], data: st.DataObject
) -> None:
    asyncio.run(follow(turns, data))


async def follow(turns: list[list[list[tuple[str, Key, str]]]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store.db"
        store = Store.open(path, keep=Retention(revisions=1000))
        live = store.watch("pods", since=1)
        model: Model = {}
        states = {1: dict[Key, bytes]()}
        for turn in turns:
            # Calls made at once are decided in order, against what was known before the turn.
            made = [[change(attempt, model) for attempt in call] for call in turn]
            outcomes = await asyncio.gather(
                *(store.write(*changes) for changes in made), return_exceptions=True
            )
            revision = max(states)
            for changes, outcome in zip(made, outcomes, strict=True):
                expected = expect(changes, model, revision)
                if isinstance(expected, dict):
                    assert isinstance(outcome, list), outcome
                    revision += len(changes)
                    assert [s.revision for s in outcome][-1] == revision
                    model = expected
                    states[revision] = {key: value for key, (_, value) in model.items()}
                else:
                    assert type(outcome) is expected
            assert store.revision == revision
            assert {i.key: (i.revision, i.value) for i in store.list("pods").items} == model
            assert store.count("pods") == len(model)
            assert store.count("pods", "a") == sum(key.namespace == "a" for key in model)
            if data.draw(st.booleans(), "restart"):
                events = await collect(live, revision)
                assert replay(events, states[live.since]) == states[revision]
                await store.close()
                store = Store.open(path, keep=Retention(revisions=1000))
                live = store.watch("pods", since=revision)
        since = data.draw(st.sampled_from(sorted(states)), "since")
        assert state_of(store, "pods", revision=since) == states[since]
        events = await collect(store.watch("pods", since=since), store.revision)
        assert replay(events, states[since]) == states[max(states)]
        assert [e.revision for e in events] == list(range(since + 1, store.revision + 1))
        for limit in (1, 2):  # pages at that revision
            items = []
            page = store.list("pods", limit=limit, revision=since)
            while True:
                items += page.items
                assert page.remaining == len(states[since]) - len(items)
                if not page.more:
                    break
                after = items[-1].key[1:]
                page = store.list("pods", after=after, limit=limit, revision=since)
            assert {item.key: item.value for item in items} == states[since]
        await store.close()
