"""Whatever happens to lists and streams, the informer ends up with what the server holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from livevirt.errors import ApiError, Forbidden
from livevirt.kube.client.local import LocalClient
from livevirt.kube.control import informer as module
from livevirt.kube.control.cache import Change, Key
from livevirt.kube.control.clock import ManualClock
from livevirt.kube.control.informer import Informer, Transform
from livevirt.kube.objects.core import NODE, POD
from livevirt.kube.objects.request import Object, Request, User

from .memory_handler import UNREACHABLE, MemoryHandler, settle, until

NAMES = st.sampled_from("abc")


def node_of(obj: Object) -> list[str]:
    return [obj["node"]] if obj.get("node") else []


class Mirror:
    """Rebuilds the objects from changes alone, and insists that each fits the one before."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.changes: list[Change] = []

    def __call__(self, change: Change) -> None:
        self.changes.append(change)
        known = self.objects.get(change.key)
        if change.old is None:
            assert known is None, "added twice"
        elif change.new is None:
            assert known is not None, "deleted but never added"
            assert known["metadata"]["uid"] == change.old["metadata"]["uid"]
        else:
            assert known is change.old, "updated from something else"
        if change.new is None:
            del self.objects[change.key]
        else:
            self.objects[change.key] = change.new

    def told(self) -> list[tuple[str, bool, bool]]:
        return [(c.key.name, c.old is not None, c.new is not None) for c in self.changes]


ADDED, UPDATED, DELETED = (False, True), (True, True), (True, False)


class InformerMachine(RuleBasedStateMachine):
    """Random histories; in the end the copy, the changes told and the index equal the server."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()

    @initialize(existing=st.sets(NAMES))
    def start(self, existing: set[str]) -> None:
        self.wait(self._start(existing))

    async def _start(self, existing: set[str]) -> None:
        self.server = MemoryHandler()
        for name in existing:
            self.server.put("pods", "ns", name)
        self.informer = Informer(LocalClient(self.server, User("test")), POD, clock=self.clock)
        self.mirror = Mirror()
        self.informer.on_change(self.mirror)
        self.informer.index("node", node_of)
        self.running = asyncio.create_task(self.informer.run())

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    @rule(name=NAMES, node=st.sampled_from(["", "one", "two"]))
    def put(self, name: str, node: str) -> None:
        self.server.put("pods", "ns", name, node=node)

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        self.server.drop("pods", "ns", name)

    @rule(name=NAMES)
    def replace(self, name: str) -> None:
        self.server.drop("pods", "ns", name)
        self.server.put("pods", "ns", name)

    @rule(loss=st.sampled_from([None, UNREACHABLE, ApiError("broken"), RuntimeError("a bug")]))
    def lose_streams(self, loss: Exception | None) -> None:
        self.server.lose_streams(loss)

    @rule()
    def compact(self) -> None:
        self.server.compact()

    @rule()
    def bookmark(self) -> None:
        self.server.bookmark("pods")

    @rule(verb=st.sampled_from(["list", "watch", ""]))
    def refuse(self, verb: str) -> None:
        error = Forbidden("not now")
        self.server.refuse = lambda request: error if request.verb == verb else None

    @rule(rounds=st.integers(1, 12), seconds=st.sampled_from([0, 1, 40]))
    def go_on(self, rounds: int, seconds: int) -> None:
        self.clock.advance(seconds)
        self.wait(settle(rounds))

    @invariant()
    def what_was_told_is_what_can_be_read(self) -> None:
        if hasattr(self, "informer"):
            assert list(self.mirror.objects.values()) == [
                self.informer.get(key) for key in self.mirror.objects
            ]
            assert len(self.mirror.objects) == len(self.informer)

    def teardown(self) -> None:
        try:
            if hasattr(self, "informer"):
                self.wait(self._end())
        finally:
            self.loop.close()

    async def _end(self) -> None:
        try:
            self.server.refuse = lambda request: None
            for _ in range(4):
                self.clock.advance(60)
                await settle()
            self.assert_equal_to_the_server()
        finally:
            self.running.cancel()
            await asyncio.wait({self.running})

    def assert_equal_to_the_server(self) -> None:
        held = {Key(ns, name): obj for (_, ns, name), obj in self.server.objects.items()}
        assert self.mirror.objects == held
        assert {key: self.informer.get(key) for key in held} == held
        assert len(self.informer) == len(held)
        for node in ("one", "two"):
            indexed = [obj["metadata"]["name"] for obj in self.informer.by("node", node)]
            assert sorted(indexed) == sorted(
                k.name for k, o in held.items() if o.get("node") == node
            )


TestInformer = InformerMachine.TestCase
TestInformer.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@asynccontextmanager
async def following(
    server: MemoryHandler, clock: ManualClock, transform: Transform | None = None
) -> AsyncIterator[tuple[Informer, Mirror]]:
    client = LocalClient(server, User("test"))
    informer = Informer(client, POD, clock=clock)
    informer.transform = transform
    mirror = Mirror()
    informer.on_change(mirror)
    task = asyncio.create_task(informer.run())
    try:
        yield informer, mirror
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_it_is_synced_once_the_first_list_is_in() -> None:
    server = MemoryHandler()
    server.put("pods", "ns", "a")
    server.hold = asyncio.Event()
    async with following(server, ManualClock()) as (informer, _):
        await settle()
        assert not informer.synced.is_set()
        server.hold.set()
        await until(informer.synced.is_set)
        assert informer.get(Key("ns", "a")) is not None


async def test_the_copy_shares_the_servers_objects() -> None:
    server = MemoryHandler()
    async with following(server, ManualClock()) as (informer, _):
        await until(informer.synced.is_set)
        obj = server.put("pods", "ns", "a")
        await until(lambda: informer.get(Key("ns", "a")) is obj)


async def test_given_a_lost_stream_when_it_reconnects_then_it_goes_on_without_listing() -> None:
    server = MemoryHandler()
    async with following(server, ManualClock()) as (informer, mirror):
        await until(informer.synced.is_set)
        server.put("pods", "ns", "a")
        await until(lambda: len(informer) == 1)
        server.lose_streams(UNREACHABLE)
        server.put("pods", "ns", "b")
        await until(lambda: len(informer) == 2)
        assert [request.verb for request in server.requests] == ["list", "watch", "watch"]
        assert mirror.told() == [("a", *ADDED), ("b", *ADDED)]


async def test_given_only_bookmarks_when_history_is_forgotten_then_it_need_not_list() -> None:
    server = MemoryHandler()
    async with following(server, ManualClock()) as (informer, _):
        await until(informer.synced.is_set)
        server.put("nodes", "", "n")  # versions pass that pods do not see
        server.bookmark("pods")
        await settle()
        server.compact()
        server.lose_streams()
        server.put("pods", "ns", "a")
        await until(lambda: len(informer) == 1)
        assert [request.verb for request in server.requests] == ["list", "watch", "watch"]


async def test_given_history_is_forgotten_while_away_then_every_difference_is_told() -> None:
    server = MemoryHandler()
    for name in ("gone", "changed", "same", "replaced"):
        server.put("pods", "ns", name)
    clock = ManualClock()
    async with following(server, clock) as (informer, mirror):
        await until(informer.synced.is_set)
        server.refuse = lambda request: UNREACHABLE
        server.lose_streams(UNREACHABLE)
        await settle()
        mirror.changes.clear()
        server.drop("pods", "ns", "gone")
        server.put("pods", "ns", "changed", spec={})
        server.drop("pods", "ns", "replaced")
        server.put("pods", "ns", "replaced")
        server.put("pods", "ns", "new")
        server.compact()
        server.refuse = lambda request: None
        await until(lambda: mirror.changes, clock)
        assert mirror.told() == [
            ("gone", *DELETED), ("changed", *UPDATED), ("new", *ADDED),
            ("replaced", *DELETED), ("replaced", *ADDED),
        ]  # fmt: skip


async def test_a_server_that_keeps_refusing_is_asked_ever_less_often() -> None:
    server = MemoryHandler()
    server.refuse = lambda request: Forbidden("no")
    clock = ManualClock()
    async with following(server, clock):
        await settle()
        for _ in range(600):
            clock.advance(1)
            await settle(5)
    assert 600 / module.LONGEST_WAIT < len(server.requests) < 2 * 600 / module.LONGEST_WAIT + 10


async def test_a_refused_watch_is_not_hidden_by_lists_that_succeed() -> None:
    server = MemoryHandler()
    server.refuse = lambda request: Forbidden("no") if request.verb == "watch" else None
    clock = ManualClock()
    async with following(server, clock):
        await settle()
        for _ in range(600):
            clock.advance(1)
            await settle(5)
    assert len(server.requests) < 2 * (2 * 600 / module.LONGEST_WAIT + 10)


async def test_long_lists_are_read_in_pages_and_in_one_piece_when_a_page_expires() -> None:
    server = MemoryHandler()
    for number in range(module.PAGE * 2 + 1):
        server.put("pods", "ns", f"pod-{number}")

    def compact_on_the_third_page(request: Request) -> None:
        if len(server.requests) == 3:
            server.put("pods", "ns", "late")
            server.compact()

    server.refuse = compact_on_the_third_page
    async with following(server, ManualClock()) as (informer, _):
        await until(informer.synced.is_set)
        assert len(informer) == module.PAGE * 2 + 2
    lists = [request.options for request in server.requests if request.verb == "list"]
    assert [bool(options.get("limit")) for options in lists] == [True, True, True, False]


async def test_given_a_transform_then_the_copy_holds_only_what_it_keeps() -> None:
    server = MemoryHandler()
    server.put("pods", "ns", "listed", node="x")
    async with following(server, ManualClock(), lambda obj: {"metadata": obj["metadata"]}) as (
        informer,
        mirror,
    ):
        await until(informer.synced.is_set)
        server.put("pods", "ns", "watched", node="y")
        await until(lambda: len(informer) == 2)
        server.drop("pods", "ns", "listed")
        await until(lambda: len(informer) == 1)
    sides = [side for change in mirror.changes for side in (change.old, change.new) if side]
    assert [set(side) for side in sides] == [{"metadata"}] * 3


async def test_a_handler_that_comes_late_is_told_of_what_is_there() -> None:
    server = MemoryHandler()
    server.put("pods", "ns", "a")
    async with following(server, ManualClock()) as (informer, _):
        await until(informer.synced.is_set)
        late = Mirror()
        informer.on_change(late)
        assert late.told() == [("a", *ADDED)]


async def test_a_handler_that_raises_harms_nobody() -> None:
    def broken(change: Change) -> None:
        raise RuntimeError("a bug in a handler")

    server = MemoryHandler()
    informer = Informer(LocalClient(server, User("test")), NODE)
    mirror = Mirror()
    informer.on_change(broken)
    informer.on_change(mirror)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        server.put("nodes", "", "n")
        await until(lambda: mirror.told() == [("n", *ADDED)])
        task.cancel()
