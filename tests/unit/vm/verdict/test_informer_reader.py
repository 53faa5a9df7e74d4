"""Whoever reads the inputs of a verdict, it is the same verdict: caches, a client, admission."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.errors import NotFound
from livevirt.kube.client.interface import Client
from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share, instance_of, taken
from livevirt.kube.objects.request import Object, Page
from livevirt.vm import kinds
from livevirt.vm.lifecycle.vmi import launcher
from livevirt.vm.spec.resources import Namespace
from livevirt.vm.verdict.gather import gather, gather_now
from livevirt.vm.verdict.plan_subresource import ClientReader
from livevirt.vm.verdict.verdict import judge

from ..cases import LIVE, NOON, a_spec, edited, running

OTHERS = (kinds.VMI, core.REVISION, kinds.KUBEVIRT)
SPEC = a_spec()


class Listed:
    """Every object there is, looked for each time: the plainest reader, as admission has one."""

    def __init__(self, objects: Sequence[tuple[Kind, Object]]) -> None:
        self.objects = objects

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        named = (obj for obj in self.list(kind, namespace) if obj["metadata"]["name"] == name)
        return next(named, None)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return [
            obj
            for each, obj in self.objects
            if each == kind and (not namespace or obj["metadata"].get("namespace") == namespace)
        ]

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        pods = [pod for pod in self.list(core.POD) if pod["spec"].get("nodeName") == node]
        own = next((pod for pod in pods if instance_of(pod) == instance), None)
        return own, taken(pods, own)


class Remote:
    """A client of the same objects, which answers a moment later."""

    def __init__(self, objects: Sequence[tuple[Kind, Object]]) -> None:
        self._listed = Listed(objects)

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        await asyncio.sleep(0)
        found = self._listed.get(kind, name, namespace)
        if found is None:
            raise NotFound(name)
        return found

    async def list(self, kind: Kind, namespace: str = "") -> Page:
        await asyncio.sleep(0)
        return Page(self._listed.list(kind, namespace), "7")


def named(name: str, namespace: str = "", **rest: Any) -> Object:
    meta = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1"}
    return {"metadata": meta | ({"namespace": namespace} if namespace else {}), **rest}


def a_node(name: str, cpu: int) -> Object:
    labels = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": "amd64",
        "machine-type.node.kubevirt.io/q35": "true",
        "livevirt.io/accelerator": "kvm",
    }
    node = named(name, status={"allocatable": {"cpu": f"{cpu}00m", "memory": "8Gi"}})
    node["metadata"]["labels"] = labels
    return node


def another_pod(number: int, node: str, cpu: int) -> Object:
    resources = {"requests": {"cpu": f"{cpu}00m", "memory": "64Mi"}}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": resources}]}
    return named(f"other-{number}", "elsewhere", spec=spec, status={"phase": "Running"})


def a_guest() -> Object:
    status = {"virtualMachineRevisionName": "start-1", "nodeName": "a"}
    movable = [{"type": "LiveMigratable", "status": "True"}]
    vmi = running(SPEC, **status, conditions=movable)
    vmi["metadata"] |= {"namespace": "default", "resourceVersion": "1"}
    return vmi


def its_pod(vmi: Object) -> Object:
    pod = launcher.pod_of(vmi, Namespace())
    pod["metadata"] |= {"uid": "pod", "resourceVersion": "1"}
    pod["spec"]["nodeName"] = "a"
    return {**pod, "status": {"phase": "Running"}}


def kubevirt(*, closed: bool, moves: bool) -> Object:
    gates = {"featureGates": sorted(LIVE.gates)}
    if closed:
        gates["disabledFeatureGates"] = ["InPlaceHotplug"]
    configuration = {"vmRolloutStrategy": "LiveUpdate", "developerConfiguration": gates}
    methods = {"workloadUpdateMethods": ["LiveMigrate"] if moves else []}
    spec = {"configuration": configuration, "workloadUpdateStrategy": methods}
    return named("kubevirt", "kubevirt", spec=spec)


def a_vm(spec: Object) -> Object:
    meta = {"name": "web", "namespace": "default", "uid": "vm-uid"}
    return {"metadata": meta, "spec": {"runStrategy": "Always", "template": {"spec": spec}}}


def a_quota(cpu: int) -> Object:
    counted = {"hard": {"requests.cpu": f"{cpu}01m"}, "used": {"requests.cpu": "201m"}}
    return named("team", "default", spec={"hard": counted["hard"]}, status=counted)


def a_range(cpu: int) -> Object:
    limits = [{"type": "Container", "max": {"cpu": f"{cpu}00m"}}]
    return named("sane", "default", spec={"limits": limits})


edits = st.fixed_dictionaries(
    {},
    optional={
        "domain.cpu.sockets": st.integers(1, 5),
        "domain.memory.guest": st.sampled_from(["1Gi", "2Gi", "1000M"]),
        "nodeSelector": st.just({"zone": "a"}),
        "hostname": st.just("other"),
    },
)
tenths = st.integers(0, 9)


@settings(max_examples=60, deadline=None)
@given(
    edit=edits,
    nodes=st.tuples(tenths, tenths),
    others=st.lists(st.tuples(st.sampled_from(["a", "b"]), tenths), max_size=3),
    quota=st.none() | tenths,
    most=st.none() | tenths,
    closed=st.booleans(),
    moves=st.booleans(),
)
def test_given_any_state_then_every_reader_leads_to_the_same_verdict(
    edit: dict[str, Any],
    nodes: tuple[int, int],
    others: list[tuple[str, int]],
    quota: int | None,
    most: int | None,
    closed: bool,
    moves: bool,
) -> None:
    vmi = a_guest()
    objects: list[tuple[Kind, Object]] = [
        (kinds.VMI, vmi),
        (core.REVISION, named("start-1", "default", data=a_vm(SPEC))),
        (kinds.KUBEVIRT, kubevirt(closed=closed, moves=moves)),
        (core.NAMESPACE, named("default")),
        (core.POD, its_pod(vmi)),
        *((core.NODE, a_node(name, cpu)) for name, cpu in zip("ab", nodes, strict=True)),
        *((core.POD, another_pod(n, *each)) for n, each in enumerate(others)),
        *([(core.QUOTA, a_quota(quota))] if quota is not None else []),
        *([(core.LIMIT_RANGE, a_range(most))] if most is not None else []),
    ]
    informers = Informers(cast(Client, None))
    for kind, obj in objects:
        informers.of(kind)._cache.put(obj)
    vm = a_vm(edited(SPEC, edit))

    by_admission = gather_now(vm, Listed(objects), NOON)
    by_controller = gather_now(vm, InformerReader(informers, *OTHERS), NOON)
    by_plan = asyncio.run(gather(vm, ClientReader(cast(Client, Remote(objects))), NOON))

    assert by_admission == by_controller == by_plan
    assert judge(by_admission) == judge(by_controller) == judge(by_plan)
    assert judge(by_admission).running


def test_a_pod_that_changes_or_goes_is_counted_as_it_is_then() -> None:
    informers = Informers(cast(Client, None))
    pods, reader = informers.of(core.POD), InformerReader(informers)

    def used() -> str:
        return str(reader.occupancy("a", "nobody")[1].cpu)

    pods._cache.put(another_pod(1, "a", 3))
    assert used() == "300m"
    larger = another_pod(1, "a", 5)
    larger["metadata"]["resourceVersion"] = "2"
    pods._publish(pods._cache.put(larger))
    pods._publish(pods._cache.put(another_pod(2, "a", 1)))
    assert used() == "600m"
    pods._publish(pods._cache.remove(larger))
    assert used() == "100m"
