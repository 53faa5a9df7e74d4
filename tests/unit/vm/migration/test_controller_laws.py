"""What holds for the real controller whatever happens, and in whatever order it hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.objects.conditions import FINAL
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.migration.snapshot import JOB_UID, TARGET_NODE

from .migration_world import KINDS, SPACE, World

GUESTS = {"g0": "a", "g1": "a", "g2": "a", "g3": "b"}
MIGRATIONS = {f"m{number}": f"g{number % 4}" for number in range(8)}
_guest, _migration = st.sampled_from(sorted(GUESTS)), st.sampled_from(sorted(MIGRATIONS))
ACTIONS = st.one_of(
    st.tuples(st.just("reconcile"), _migration),
    st.tuples(st.just("reconcile"), _migration),
    st.tuples(st.just("tell"), st.sampled_from(KINDS[:3])),
    st.tuples(st.just("tell"), st.sampled_from(KINDS[:3])),
    st.tuples(st.just("tell all"), st.none()),
    st.tuples(st.just("create"), _migration),
    st.tuples(st.just("cancel"), _migration),
    st.tuples(st.just("pod starts"), st.integers(0, 3)),
    st.tuples(st.just("pod fails"), st.integers(0, 3)),
    st.tuples(st.just("node goes on"), _guest),
    st.tuples(st.just("node goes on"), _guest),
    st.tuples(st.just("node fails"), _guest),
    st.tuples(st.just("pods end"), st.none()),
    st.tuples(st.just("guest grows"), _guest),
    st.tuples(st.just("quota"), st.booleans()),
    st.tuples(st.just("controller restarts"), st.none()),
    st.tuples(st.just("time passes"), st.sampled_from([1, 60, 400])),
)


async def happen(world: World, what: str, whom: Any) -> None:
    match what:
        case "reconcile":
            await world.reconcile(whom)
        case "tell":
            world.tell(whom)
        case "tell all":
            world.tell_all()
        case "create":
            urgent = {"priority": "system-critical"} if whom in ("m2", "m3") else {}
            world.add_migration(whom, MIGRATIONS[whom], **urgent)
        case "cancel":
            await world.cancel(whom)
        case "pod starts":
            world.start_pod(whom)
        case "pod fails":
            world.start_pod(whom, well=False)
        case "node goes on":
            world.node_step(whom, well=True)
        case "node fails":
            world.node_step(whom, well=False)
        case "pods end":
            world.end_pods()
        case "guest grows":
            world.grow(whom)
        case "quota":
            world.over_quota = whom
        case "controller restarts":
            world.start_controller()
        case "time passes":
            world.pass_time(whom)


async def settle(world: World, cluster: int, node: int) -> None:
    """Let everybody do their work until all migrations have ended."""
    world.over_quota = False
    for _ in range(60):
        if all(_done(obj) for obj in world.all(kinds.MIGRATION)):
            return
        for name in MIGRATIONS:
            world.tell_all()
            await world.reconcile(name)
            world.check(cluster, node)
        world.start_pod(0)
        for guest in GUESTS:
            world.node_step(guest, well=True)
        world.end_pods()
        world.pass_time(10)


def _done(migration: Object) -> bool:
    ended = (migration.get("status") or {}).get("phase") in FINAL
    return ended and not migration["metadata"].get("finalizers")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), st.lists(ACTIONS, min_size=10, max_size=80))
def test_given_any_order_of_things_then_the_promises_hold_and_all_ends(
    cluster: int, node: int, actions: list[tuple[str, Any]]
) -> None:
    async def run() -> None:
        world = World(cluster, node)
        for name, at in GUESTS.items():
            world.add_guest(name, at)
        world.tell_all()
        for name in ("m0", "m1"):
            world.add_migration(name, MIGRATIONS[name])
        world.tell_all()
        for what, whom in actions:
            await happen(world, what, whom)
            world.check(cluster, node)
        await settle(world, cluster, node)
        world.tell_all()
        for name in MIGRATIONS:  # what is left of those that are gone
            await world.reconcile(name)
        check_settled(world)

    asyncio.run(run())


def check_settled(world: World) -> None:
    alive = {obj["metadata"]["uid"] for obj in world.all(kinds.MIGRATION)}
    for obj in world.all(kinds.MIGRATION):
        assert (obj.get("status") or {}).get("phase") in FINAL
        assert not obj["metadata"].get("finalizers")
    homes = set(world.homes.values())
    for pod in world.pods():
        name, phase = pod["metadata"]["name"], pod["status"]["phase"]
        if name in homes:
            assert phase == "Running"
            continue
        assert phase in FINAL, f"{name} was left behind"
        assert pod["metadata"]["labels"][JOB_UID] in alive, f"{name} outlived its migration"
    for vmi in world.all(kinds.VMI):
        assert TARGET_NODE not in (vmi["metadata"].get("labels") or {})
        assert vmi["metadata"]["namespace"] == SPACE
