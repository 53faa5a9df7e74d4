"""Reads what a verdict depends on: one way for admission, the plan subresource and controllers.

The few objects that every verdict needs are always read. Pods, nodes, quotas and limit ranges are
read only if the edit changes the guest's size, because nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from livevirt.kube.objects import core
from livevirt.kube.objects.kind import Kind
from livevirt.kube.objects.node_share import Share
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings as config
from livevirt.vm.config.settings import Config
from livevirt.vm.migration.migratability import hindrance, node_of
from livevirt.vm.sizing import baseline
from livevirt.vm.sizing.reservation import size_of
from livevirt.vm.spec import instance
from livevirt.vm.spec.defaults import run_strategy
from livevirt.vm.spec.resources import as_started, namespace_of
from livevirt.vm.verdict import headroom, rollout_policy
from livevirt.vm.verdict.verdict_inputs import ACCELERATOR, VerdictInputs, is_running, revision_of

T = TypeVar("T")


class Reader(Protocol):
    """Looks up objects, over a network or in caches. What it returns must not be changed."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, None if there is none."""

    async def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with "")."""

    async def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the other pods of that node use."""


class LocalReader(Protocol):
    """The same in process, as admission has it: it never waits."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, None if there is none."""

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a namespace (all with "")."""

    def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        """Return the pod of an instance on a node, and what the other pods of that node use."""


async def gather(vm: Object, read: Reader, now: datetime) -> VerdictInputs:
    """Return the inputs of the verdict on a VM, expanded by its instance type and preference.

    A VM that is to be halted has no guest an edit could reach.
    """
    meta, spec = vm["metadata"], vm.get("spec") or {}
    name, namespace = meta["name"], meta.get("namespace") or ""
    vmi = await read.get(kinds.VMI, name, namespace)
    revision, node = revision_of(vmi), node_of(vmi)
    objects = {
        "virtualMachineInstance": vmi,
        "controllerRevision": (
            await read.get(core.REVISION, revision, namespace) if revision else None
        ),
        "kubevirt": await read.get(kinds.KUBEVIRT, config.NAME, config.NAMESPACE),
        "node": await read.get(core.NODE, node) if node else None,
    }
    template, cluster = spec.get("template") or {}, config.read(objects["kubevirt"])
    wanted = template.get("spec") or {}
    if vmi is None or not _reachable(vmi, vm):
        return VerdictInputs(wanted, wanted, None, cluster, objects=objects)
    if (record := objects["controllerRevision"]) is None:
        unknown = _lost(revision)
        return VerdictInputs(wanted, wanted, vmi, cluster, unknown=unknown, objects=objects)
    objects["namespace"] = await read.get(core.NAMESPACE, namespace)
    rollout = rollout_policy.decide(vm, objects["namespace"], cluster, now)
    settings = rollout_policy.config_of(rollout, cluster)
    at_start = record["data"]["spec"]["template"]
    labels = ((objects["node"] or {}).get("metadata") or {}).get("labels") or {}
    inputs = VerdictInputs(
        at_start["spec"],
        wanted,
        vmi,
        settings,
        accelerator=labels.get(ACCELERATOR, ""),
        volumes_strategy=spec.get("updateVolumesStrategy") or "",
        migration_obstacle=hindrance(vmi, settings),
        started_metadata=at_start.get("metadata") or {},
        wanted_metadata=template.get("metadata") or {},
        rollout_reason=rollout.why,
        opens=rollout.opens,
        objects=objects,
    )
    began = baseline.in_force(at_start["spec"], vmi)
    moves = resizes(vmi, wanted, settings) or _reallocates(began, wanted, settings)
    return await gather_room(inputs, vmi, read) if moves else inputs


async def gather_room(inputs: VerdictInputs, vmi: Object, read: Reader) -> VerdictInputs:
    """Return the inputs with what nodes, quotas and limit ranges leave for the guest's pod."""
    name, uid = vmi["metadata"]["namespace"], vmi["metadata"]["uid"]
    quotas = await read.list(core.QUOTA, name)
    ranges = await read.list(core.LIMIT_RANGE, name)
    nodes = await read.list(core.NODE)
    pod, others = await read.occupancy(node_of(vmi), uid)
    shares = [(node, (await read.occupancy(node["metadata"]["name"], uid))[1]) for node in nodes]
    found = dict(inputs.objects) | {
        "namespace": inputs.objects.get("namespace") or await read.get(core.NAMESPACE, name),
        "pod": pod,
        "resourceQuotas": quotas,
        "limitRanges": ranges,
        "otherNodes": [node for node in nodes if node["metadata"]["name"] != node_of(vmi)],
    }
    demands = as_started(namespace_of(quotas, found["namespace"], found.get("kubevirt")), pod)
    inputs = replace(inputs, namespace=demands, objects=found)
    if pod is None:
        return inputs
    asked = headroom.asked_by(vmi, demands)
    # In the order in which they are asked, for the first that is short gives the reason.
    bounds = (
        *headroom.under_limit_ranges(pod, asked, ranges),
        *headroom.under_quotas(pod, asked, quotas),
        *headroom.on_node(pod, asked, found.get("node"), others),
    )
    return replace(
        inputs,
        bounds=bounds,
        other_nodes=tuple(headroom.on_others(pod, vmi, asked, shares)),
        second_pod=tuple(headroom.for_second(pod, quotas)),
    )


def gather_now(vm: Object, reader: LocalReader, now: datetime) -> VerdictInputs:
    """Return what `gather` does, from a reader that never waits."""
    return _now(gather(vm, _Immediate(reader), now))


def gather_room_now(inputs: VerdictInputs, vmi: Object, reader: LocalReader) -> VerdictInputs:
    """Return what `gather_room` does, from a reader that never waits."""
    return _now(gather_room(inputs, vmi, _Immediate(reader)))


def resizes(vmi: Object, wanted: Object, settings: Config) -> bool:
    """Return whether an edit may resize the pod, so that its verdict depends on the room left.

    Without the rollout strategy LiveUpdate every size waits for a restart, whatever room is left.
    """
    if not settings.live_update:
        return False
    return size_of(instance.read(vmi["spec"])) != size_of(instance.read(wanted))


def _reallocates(began: Object, wanted: Object, settings: Config) -> bool:
    """Return whether an edit changes requests or limits of the pod by themselves."""
    before, after = (instance.read(spec).domain.resources for spec in (began, wanted))
    return settings.live_update and before != after


class _Immediate:
    """A reader in process as one that could wait."""

    def __init__(self, reader: LocalReader) -> None:
        self._reader = reader

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self._reader.get(kind, name, namespace)

    async def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        return self._reader.list(kind, namespace)

    async def occupancy(self, node: str, instance: str) -> tuple[Object | None, Share]:
        return self._reader.occupancy(node, instance)


def _now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a reader in process must not wait")


def _lost(revision: str) -> str:
    name = revision or "none"
    return f"the record of the guest's start ({name}) is missing; a restart makes a new one"


def _reachable(vmi: Object, vm: Object) -> bool:
    """Return whether a VM is to run and an instance of its name is its running guest."""
    uid = vm["metadata"].get("uid")
    if not is_running(vmi) or run_strategy(vm.get("spec") or {}) == "Halted":
        return False
    owners = vmi["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)
