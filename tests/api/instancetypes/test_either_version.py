"""Instance types through v1beta1 and v1beta2 of a real server: no field is ever lost."""

from __future__ import annotations

import asyncio
import copy
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from livevirt.errors import Conflict, Invalid
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.request import Object, Request
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, INSTANCETYPE, PREFERENCE

from ..manifests import an_object
from .catalog_server import ADMIN, Server, a_server

KIND = CLUSTER_INSTANCETYPE
VERSIONS = ("v1beta1", "v1beta2")
bounded = settings(
    max_examples=25, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip

Path = tuple[str, ...]
#: Writers that do not get in each other's way: each has a field of its own.
SIZES: dict[Path, Any] = {
    ("cpu", "model"): "m", ("cpu", "maxSockets"): 8, ("cpu", "dedicatedCPUPlacement"): True,
    ("cpu", "isolateEmulatorThread"): False, ("cpu", "guest"): 2,
    ("cpu", "numa", "guestMappingPassthrough"): {}, ("cpu", "realtime", "mask"): "0-1",
    ("memory", "guest"): "1Gi", ("memory", "maxGuest"): "64Gi",
    ("memory", "hugepages", "pageSize"): "2Mi", ("schedulerName",): "x",
    ("ioThreadsPolicy",): "supplementalPool", ("ioThreads", "supplementalPoolThreadCount"): 2,
    ("annotations", "a"): "x", ("annotations", "b"): "x", ("nodeSelector", "n"): "x",
    ("gpus",): [{"name": "g", "deviceName": "d"}],
    ("hostDevices",): [{"name": "h", "deviceName": "d"}],
}  # fmt: skip
PREFERRED: dict[Path, Any] = {
    ("cpu", "preferredCPUTopology"): "cores",
    ("cpu", "preferredCPUFeatures"): [{"name": "f", "policy": "require"}],
    ("devices", "preferredDiskBus"): "sata", ("devices", "preferredInterfaceModel"): "e1000e",
    ("devices", "preferredAutoattachMemBalloon"): False, ("devices", "preferredRng"): {},
    ("features", "preferredAcpi", "enabled"): False, ("firmware", "preferredUseBios"): True,
    ("machine", "preferredMachineType"): "q35",
    ("clock", "preferredClockOffset", "timezone"): "UTC",
    ("volumes", "preferredStorageClassName"): "x", ("requirements", "cpu", "guest"): 2,
    ("requirements", "memory", "guest"): "1Gi", ("annotations", "a"): "x",
    ("annotations", "b"): "x", ("preferredSubdomain",): "x",
    ("preferredTerminationGracePeriodSeconds",): 30, ("preferSpreadSocketToCoreRatio",): 2,
}  # fmt: skip
FIELDS = {
    CLUSTER_INSTANCETYPE: SIZES,
    INSTANCETYPE: SIZES,
    CLUSTER_PREFERENCE: PREFERRED,
    PREFERENCE: PREFERRED,
}


def patch_of(path: Path, value: Any) -> Object:
    for name in reversed(path):
        value = {name: value}
    found: Object = {"spec": value}
    return found


async def patch(server: Server, version: str, kind: Kind, change: Object) -> None:
    await server.call("patch", version, change, "t", kind=kind)


async def replace(server: Server, version: str, kind: Kind, change: Object) -> None:
    """Read, change and write back, again if somebody else wrote meanwhile."""
    while True:
        obj = await server.call("get", version, name="t", kind=kind)
        await asyncio.sleep(0)
        try:
            changed = apply(change, copy.deepcopy(obj))
            await server.call("update", version, changed, "t", kind=kind)
        except Conflict:
            continue
        return


writers = st.tuples(st.sampled_from((patch, replace)), st.sampled_from(VERSIONS))


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.kind)
@bounded
@given(st.data())
def test_given_writers_of_both_versions_at_once_when_all_are_done_then_nothing_is_lost(
    kind: Kind, data: st.DataObject
) -> None:
    fields, sized = FIELDS[kind], FIELDS[kind] is SIZES
    starts = [{}, {"cpu": {"guest": 4}}, {"memory": {"guest": "2Gi"}}] if sized else [{}]
    first = data.draw(st.sampled_from(starts))
    chosen = data.draw(st.dictionaries(st.sampled_from(sorted(fields)), writers, min_size=2))

    async def run() -> None:
        async with a_server() as server:
            await server.call("create", "v1beta2", an_object(kind, "t", spec=first), kind=kind)
            changes = {path: patch_of(path, fields[path]) for path in chosen}
            works = [
                write(server, version, kind, changes[path])
                for path, (write, version) in chosen.items()
            ]
            await asyncio.gather(*works)
            wanted: Object = {"spec": {**({"cpu": {}, "memory": {}} if sized else {}), **first}}
            for change in changes.values():
                wanted = apply(change, wanted)
            newer = await server.call("get", "v1beta2", name="t", kind=kind)
            assert newer["spec"] == wanted["spec"]
            older = await server.call("get", "v1beta1", name="t", kind=kind)
            for part, zero in (("cpu", 0), ("memory", "0")) if sized else ():
                wanted["spec"][part].setdefault("guest", zero)
            assert older["spec"] == wanted["spec"]

    asyncio.run(run())


async def test_given_an_open_type_when_labelled_through_v1beta1_then_it_stays_open() -> None:
    async with a_server() as server:
        await server.call("create", "v1beta2", an_object(KIND, "t", spec={}))
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
                await server.call("create", "v1beta1", an_object(KIND, "t", "v1beta1", spec=spec))


async def test_given_a_closed_type_when_v1beta1_writes_zero_then_it_is_refused() -> None:
    async with a_server() as server:
        sized = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}
        await server.call("create", "v1beta1", an_object(KIND, "t", "v1beta1", spec=sized))
        with pytest.raises(Invalid, match="must be greater than 0"):
            await server.call("patch", "v1beta1", {"spec": {"cpu": {"guest": 0}}}, "t")


async def test_lists_and_watches_show_the_version_they_are_asked_in() -> None:
    async with a_server() as server:
        await server.call("create", "v1beta2", an_object(KIND, "t", spec={}))
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
        await server.call(
            "create", "v1beta1", an_object(kind, "p", "v1beta1", spec=spec), kind=kind
        )
        for version in VERSIONS:
            assert (await server.call("get", version, name="p", kind=kind))["spec"] == spec
