"""Instance types through v1beta1 and v1beta2 of a real server: no field is ever lost."""

from __future__ import annotations

import asyncio
import copy
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livevirt.api.registry import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE
from livevirt.api.request import Object, Request
from livevirt.errors import Conflict, Invalid
from livevirt.rollout.live_patch import apply

from .catalog_server import ADMIN, Server, a_server, an_object

KIND = CLUSTER_INSTANCETYPE
VERSIONS = ("v1beta1", "v1beta2")
bounded = settings(
    max_examples=25, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip

#: Writers that do not get in each other's way: each has a field of its own.
FIELDS: tuple[tuple[str, ...], ...] = (
    ("cpu", "model"), ("cpu", "maxSockets"), ("cpu", "dedicatedCPUPlacement"), ("cpu", "guest"),
    ("memory", "guest"), ("memory", "hugepages", "pageSize"), ("schedulerName",),
    ("ioThreadsPolicy",), ("annotations", "a"), ("annotations", "b"), ("nodeSelector", "n"),
)  # fmt: skip
VALUES: dict[str, Any] = {
    "model": "m", "maxSockets": 8, "dedicatedCPUPlacement": True, "guest": 2, "pageSize": "2Mi",
    "ioThreadsPolicy": "auto",
}  # fmt: skip


def value_of(path: tuple[str, ...]) -> Any:
    return "1Gi" if path == ("memory", "guest") else VALUES.get(path[-1], "x")


def patch_of(path: tuple[str, ...]) -> Object:
    patch: Any = value_of(path)
    for name in reversed(path):
        patch = {name: patch}
    found: Object = {"spec": patch}
    return found


async def patch(server: Server, version: str, path: tuple[str, ...]) -> None:
    await server.call("patch", version, patch_of(path), "t")


async def replace(server: Server, version: str, path: tuple[str, ...]) -> None:
    """Read, change and write back, again if somebody else wrote meanwhile."""
    while True:
        obj = await server.call("get", version, name="t")
        await asyncio.sleep(0)
        try:
            await server.call("update", version, apply(patch_of(path), copy.deepcopy(obj)), "t")
        except Conflict:
            continue
        return


writers = st.lists(
    st.tuples(st.sampled_from((patch, replace)), st.sampled_from(VERSIONS)),
    min_size=len(FIELDS), max_size=len(FIELDS),
)  # fmt: skip


@bounded
@given(
    writers,
    st.sets(st.sampled_from(FIELDS), min_size=2),
    st.sampled_from(({}, {"cpu": {"guest": 4}}, {"memory": {"guest": "2Gi"}})),
)
def test_given_writers_of_both_versions_at_once_when_all_are_done_then_nothing_is_lost(
    how: list[tuple[Any, str]], chosen: set[tuple[str, ...]], first: Object
) -> None:
    async def run() -> None:
        async with a_server() as server:
            await server.call("create", "v1beta2", an_object(KIND, "v1beta2", "t", first))
            works = [
                write(server, version, path)
                for (write, version), path in zip(how, FIELDS, strict=True)
                if path in chosen
            ]
            await asyncio.gather(*works)
            wanted: Object = {"spec": {"cpu": {}, "memory": {}, **first}}
            for path in chosen:
                wanted = apply(patch_of(path), wanted)
            assert (await server.call("get", "v1beta2", name="t"))["spec"] == wanted["spec"]
            shown = (await server.call("get", "v1beta1", name="t"))["spec"]
            for part, zero in (("cpu", 0), ("memory", "0")):
                wanted["spec"][part].setdefault("guest", zero)
            assert shown == wanted["spec"]

    asyncio.run(run())


async def test_given_an_open_type_when_labelled_through_v1beta1_then_it_stays_open() -> None:
    async with a_server() as server:
        await server.call("create", "v1beta2", an_object(KIND, "v1beta2", "t", {}))
        labels = {"metadata": {"labels": {"a": "b"}}}
        shown = await server.call("patch", "v1beta1", labels, "t")
        assert shown["spec"] == {"cpu": {"guest": 0}, "memory": {"guest": "0"}}
        stored = server.read.get(KIND, "t")
        assert stored is not None
        assert stored["spec"] == {"cpu": {}, "memory": {}}
        assert stored["metadata"]["generation"] == 1


async def test_v1beta1_cannot_make_an_open_type() -> None:
    async with a_server() as server:
        for spec, field in (
            ({"cpu": {}, "memory": {"guest": "1Gi"}}, "spec.cpu.guest"),
            ({"cpu": {"guest": 0}, "memory": {"guest": "1Gi"}}, "spec.cpu.guest"),
            ({"cpu": {"guest": 1}, "memory": {"guest": "0"}}, "spec.memory.guest"),
        ):
            with pytest.raises(Invalid, match=field):
                await server.call("create", "v1beta1", an_object(KIND, "v1beta1", "t", spec))


async def test_given_a_closed_type_when_v1beta1_writes_zero_then_it_is_refused() -> None:
    async with a_server() as server:
        sized = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}
        await server.call("create", "v1beta1", an_object(KIND, "v1beta1", "t", sized))
        with pytest.raises(Invalid, match="must be greater than 0"):
            await server.call("patch", "v1beta1", {"spec": {"cpu": {"guest": 0}}}, "t")


async def test_lists_and_watches_show_the_version_they_are_asked_in() -> None:
    async with a_server() as server:
        await server.call("create", "v1beta2", an_object(KIND, "v1beta2", "t", {}))
        for version, cpu in (("v1beta1", {"guest": 0}), ("v1beta2", {})):
            (listed,) = (await server.call("list", version))["items"]
            request = Request("watch", KIND, version, ADMIN)
            async with aclosing(server.api.watch(request)) as events:
                watched = (await anext(events)).object
            for item in (listed, watched):
                assert item["spec"]["cpu"] == cpu
                assert item["apiVersion"] == f"instancetype.kubevirt.io/{version}"


async def test_a_preference_is_the_same_in_both_versions() -> None:
    kind, spec = CLUSTER_PREFERENCE, {"cpu": {"preferredCPUTopology": "cores"}}
    async with a_server() as server:
        await server.call("create", "v1beta1", an_object(kind, "v1beta1", "p", spec), kind=kind)
        for version in VERSIONS:
            assert (await server.call("get", version, name="p", kind=kind))["spec"] == spec
