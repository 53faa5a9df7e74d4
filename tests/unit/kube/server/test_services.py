"""What the pods of a node take of it, followed through everything that happens to them."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livevirt.kube.objects.node_share import NOTHING, Share
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.kube.server.services import Occupancy
from livevirt.kube.store import Delete, Key, Put, Store

OWN = "instance-1"


def a_pod(node: str, cpu: str = "1", instance: str = "", phase: str = "Running") -> Object:
    meta = {"uid": cpu, "labels": {"kubevirt.io/created-by": instance}}
    wanted = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    spec = {"nodeName": node, "containers": [{"name": "compute", "resources": wanted}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def share(cpu: str, memory: str) -> Share:
    return Share(parse(cpu), parse(memory))


async def put(store: Store, name: str, pod: Object) -> None:
    """Write a pod, whatever was there."""
    key = Key("pods", "default", name)
    stored = store.get(key)
    value = msgspec.json.encode(pod)
    await store.write(Put(key, None if stored is None else stored.revision, lambda _: value))


async def delete(store: Store, name: str) -> None:
    key = Key("pods", "default", name)
    stored = store.get(key)
    if stored is not None:
        value = stored.value
        await store.write(Delete(key, stored.revision, lambda _: value))


async def told(occupancy: Occupancy, node: str, expected: Share) -> None:
    """Return once a node is said to be taken that much."""
    async with asyncio.timeout(5):
        while occupancy.around(node, OWN)[1] != expected:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0)


async def test_a_pod_is_told_apart_from_the_others_of_its_node(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    own = a_pod("a", "4", OWN)
    await put(store, "own", own)
    await put(store, "other", a_pod("a", "2"))
    await put(store, "elsewhere", a_pod("b", "1"))
    await put(store, "target", a_pod("c", "4", OWN))
    await put(store, "nowhere", a_pod("", "1"))
    await put(store, "over", a_pod("a", "1", OWN, "Succeeded"))
    occupancy = Occupancy(store)
    assert occupancy.around("a", OWN) == (own, share("2", "1Gi"))
    assert occupancy.around("b", OWN) == (None, share("1", "1Gi"))
    assert occupancy.around("c", OWN)[1] == NOTHING
    assert occupancy.around("d", OWN) == (None, NOTHING)
    await store.close()


CHANGES = {
    "a new pod": ("new", a_pod("a", "3"), share("5", "2Gi")),
    "a pod that grew": ("other", a_pod("a", "4"), share("4", "1Gi")),
    "a pod that ended": ("other", a_pod("a", "2", phase="Failed"), NOTHING),
    "a pod that is gone": ("other", None, NOTHING),
    "a pod that was bound": ("nowhere", a_pod("a", "1"), share("3", "2Gi")),
}


@pytest.mark.parametrize(("name", "pod", "expected"), CHANGES.values(), ids=CHANGES)
async def test_what_happens_to_pods_is_followed(
    tmp_path: Path, name: str, pod: Object | None, expected: Share
) -> None:
    store = Store.open(tmp_path / "store.db")
    await put(store, "other", a_pod("a", "2"))
    await put(store, "nowhere", a_pod("", "1"))
    occupancy = Occupancy(store)
    assert occupancy.around("a", OWN)[1] == share("2", "1Gi")
    await (delete(store, name) if pod is None else put(store, name, pod))
    await told(occupancy, "a", expected)
    await store.close()


async def test_given_more_changes_than_a_watch_holds_then_all_is_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "store.db")
    occupancy = Occupancy(store)
    occupancy.around("a", OWN)
    monkeypatch.setattr("livevirt.kube.store.watch.QUEUE", 2)
    await asyncio.gather(*(put(store, f"p{number}", a_pod("a")) for number in range(5)))
    await told(occupancy, "a", share("5", "5Gi"))
    await put(store, "p0", a_pod("a", "2"))
    await told(occupancy, "a", share("6", "5Gi"))
    await store.close()


PODS = st.builds(
    a_pod,
    st.sampled_from(["a", "b", ""]),
    st.sampled_from(["1", "250m", "3"]),
    st.sampled_from(["", OWN]),
    st.sampled_from(["Pending", "Running", "Failed"]),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.none() | PODS), max_size=12))
def test_given_any_changes_then_it_is_as_if_counted_afresh(
    changes: list[tuple[str, Object | None]],
) -> None:
    async def law() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Store.open(Path(folder) / "store.db")
            occupancy = Occupancy(store)
            occupancy.around("a", OWN)
            for name, pod in changes:
                await (delete(store, name) if pod is None else put(store, name, pod))
            await put(store, "last", a_pod("last"))
            await told(occupancy, "last", share("1", "1Gi"))
            for node in "ab":
                fresh = Occupancy(store).around(node, "nobody")
                assert occupancy.around(node, "nobody") == fresh
            await store.close()

    asyncio.run(law())
